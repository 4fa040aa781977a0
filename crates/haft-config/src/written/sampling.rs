//! The keys of an MCP server's access to models (sampling), as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::default;
use super::Decision;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct McpSampling {
    /// Who decides about each request: `ask` a person at the terminal, and where nobody is there refuse it; `allow` without asking; `deny` as if this key were not there
    #[schemars(extend("default" = "ask"))]
    pub(crate) approval: Option<Decision>,

    /// The model that writes, as `provider/model`; without this key that of the run, else `models.default`
    pub(crate) model: Option<String>,

    /// The most that is written for one request
    #[schemars(range(min = 1), extend("default" = default::MCP_SAMPLING_OUTPUT_TOKENS_MAX, "x-unit" = "tokens"))]
    pub(crate) max_output_tokens: Option<u32>,

    /// How often the server may ask while one call of its tools is under way
    #[schemars(range(min = 1), extend("default" = default::MCP_SAMPLING_REQUESTS_MAX))]
    pub(crate) max_requests_per_call: Option<u32>,
}
