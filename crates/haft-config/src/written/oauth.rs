//! The OAuth keys of a remote MCP server, as written.

use haft_core::settings::mcp::OAuthGrant;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::value_format::{TemplateText, words};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawMcpOauth {
    /// The client id at the authorization server; without this key haft uses a client metadata document or registers itself
    pub(crate) client_id: Option<TemplateText>,

    /// The issuer of the authorization server to trust; no other one gets `clientSecret` or may issue tokens. By default the issuer that the MCP server announces
    pub(crate) issuer: Option<TemplateText>,

    /// The secret of `clientId`; use a variable
    pub(crate) client_secret: Option<TemplateText>,

    /// The URL of the client metadata document, for authorization servers that support one instead of registration
    pub(crate) client_metadata_url: Option<TemplateText>,

    /// The scopes to request if the server names none
    #[schemars(extend("default" = []))]
    pub(crate) scopes: Option<Vec<String>>,

    /// `person`: a person logs in with `haft mcp login`; `clientCredentials`: haft logs in with `clientId` and `clientSecret`
    #[schemars(extend("default" = "person"))]
    pub(crate) grant: Option<RawMcpGrant>,

    /// The local port for the redirect of a login; 0 means any free port
    #[schemars(extend("default" = 0))]
    pub(crate) redirect_port: Option<u16>,
}

words! {
    pub(crate) RawMcpGrant for OAuthGrant { "person" Person, "clientCredentials" ClientCredentials }
}
