//! The OAuth keys of a remote MCP server, as written.

use haft_core::settings::mcp::OAuthGrant;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::value_format::{TemplateText, words};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawMcpOauth {
    /// The client id for the authorization server; without this key, haft uses a client metadata document or dynamic client registration
    pub(crate) client_id: Option<TemplateText>,

    /// The only authorization server that may issue tokens and that gets `clientSecret`, as its issuer URL; by default the issuer that the MCP server announces
    pub(crate) issuer: Option<TemplateText>,

    /// The secret for `clientId`; write it as a variable, so that the file does not contain it
    pub(crate) client_secret: Option<TemplateText>,

    /// The URL of the client metadata document, for authorization servers that accept such a document instead of a registration
    pub(crate) client_metadata_url: Option<TemplateText>,

    /// The scopes to request if the server does not name any
    #[schemars(extend("default" = []))]
    pub(crate) scopes: Option<Vec<String>>,

    /// `person`: a person logs in with `haft mcp login`; `clientCredentials`: haft logs in with `clientId` and `clientSecret`
    #[schemars(extend("default" = "person"))]
    pub(crate) grant: Option<RawMcpGrant>,

    /// The local port that the browser is redirected to after a login; 0 means any free port
    #[schemars(extend("default" = 0))]
    pub(crate) redirect_port: Option<u16>,
}

words! {
    pub(crate) RawMcpGrant for OAuthGrant { "person" Person, "clientCredentials" ClientCredentials }
}
