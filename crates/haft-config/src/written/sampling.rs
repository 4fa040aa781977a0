//! The configuration keys of an MCP server's access to models (sampling), as the configuration file contains them,
//! before defaults are applied.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::default;
use super::RawApproval;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawMcpSampling {
    /// What haft does with a sampling request: `ask` asks the person at the terminal, and denies the request if there is no terminal; `allow` allows all; `deny` denies all, as if `sampling` were not set
    #[schemars(extend("default" = "ask"))]
    pub(crate) approval: Option<RawApproval>,

    /// The model that answers, as `provider/model`; by default the model of the run, else `models.default`
    pub(crate) model: Option<String>,

    /// The maximum number of tokens in one reply
    #[schemars(range(min = 1), extend("default" = default::MCP_SAMPLING_OUTPUT_TOKENS_MAX, "x-unit" = "tokens"))]
    pub(crate) max_output_tokens: Option<u32>,

    /// The maximum number of sampling requests during one tool call
    #[schemars(range(min = 1), extend("default" = default::MCP_SAMPLING_REQUESTS_MAX))]
    pub(crate) max_requests_per_call: Option<u32>,
}
