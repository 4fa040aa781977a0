//! The keys of an MCP server's access to models (sampling), as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::default;
use super::RawApproval;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawMcpSampling {
    /// The decision for each request: `ask` a person at the terminal (without a terminal, refuse), `allow` all, or `deny` all as without `sampling`
    #[schemars(extend("default" = "ask"))]
    pub(crate) approval: Option<RawApproval>,

    /// The model, as `provider/model`; by default the model of the run, else `models.default`
    pub(crate) model: Option<String>,

    /// The most tokens of one reply
    #[schemars(range(min = 1), extend("default" = default::MCP_SAMPLING_OUTPUT_TOKENS_MAX, "x-unit" = "tokens"))]
    pub(crate) max_output_tokens: Option<u32>,

    /// The most requests of the server during one call of its tools
    #[schemars(range(min = 1), extend("default" = default::MCP_SAMPLING_REQUESTS_MAX))]
    pub(crate) max_requests_per_call: Option<u32>,
}
