//! The configuration keys of the MCP gateway, as the configuration file contains them, before defaults are applied.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::gateway::GatewayListing;
use super::super::value_format::{ClientText, GlobText, GroupText, profile_names, words};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawGateway {
    /// Profiles by name; each is a selection of the tools that clients of `haft mcp serve` and of `/mcp` see. `haft mcp serve --profile NAME` and the path `/mcp/NAME` use the profile NAME
    #[schemars(extend("propertyNames" = profile_names()))]
    pub(crate) profiles: Option<BTreeMap<String, RawGatewayProfile>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawGatewayProfile {
    /// The tools of the profile; without `tools` and `groups`, the profile has all active tools
    pub(crate) tools: Option<Vec<GlobText>>,

    /// The groups whose tools the profile has, in addition to `tools`
    pub(crate) groups: Option<Vec<GroupText>>,

    /// Whether the profile has only read-only tools
    #[schemars(extend("default" = false))]
    pub(crate) read_only: Option<bool>,

    /// Whether clients see all tools of the profile (`all`), or only search tools with which a model finds and calls the others (`search`)
    #[schemars(extend("default" = "all"))]
    pub(crate) expose: Option<RawGatewayListing>,

    /// The clients that get the profile if neither `--profile` nor the path names one; the most specific pattern wins. A client chooses its name itself
    #[schemars(extend("default" = []))]
    pub(crate) clients: Option<Vec<ClientText>>,
}

words! {
    pub(crate) RawGatewayListing for GatewayListing { "all" All, "search" Search }
}
