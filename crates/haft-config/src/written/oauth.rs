//! The OAuth keys of a remote MCP server, as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::format::TemplateText;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct McpOauth {
    /// What its authorization server knows us as; without this key we describe or register ourselves
    pub(crate) client_id: Option<TemplateText>,

    /// The only authorization server that is asked for tokens and given `clientSecret`, by the name it gives itself; without this key the one that the server names
    pub(crate) issuer: Option<TemplateText>,

    /// The secret that belongs to `clientId`; best a variable
    pub(crate) client_secret: Option<TemplateText>,

    /// Where a description of this client is published, for authorization servers that read one instead of registering us
    pub(crate) client_metadata_url: Option<TemplateText>,

    /// What is asked for when the server does not say
    #[schemars(extend("default" = []))]
    pub(crate) scopes: Option<Vec<String>>,

    /// `person`: somebody logs in with `haft mcp login`; `clientCredentials`: haft itself, with `clientId` and `clientSecret`
    #[schemars(extend("default" = "person"))]
    pub(crate) grant: Option<McpGrant>,

    /// The port on this machine that a login comes back to; 0 is any that is free
    #[schemars(extend("default" = 0))]
    pub(crate) redirect_port: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum McpGrant {
    Person,
    ClientCredentials,
}
