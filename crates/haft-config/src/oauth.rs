//! Resolves the OAuth settings of a remote MCP server.

use haft_core::settings::mcp::OAuthGrant;

use super::mcp::{ExpandedSecret, VariableExpander};
use super::written;

/// The OAuth settings of one server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpOauthSettings {
    pub client_id: Option<String>,
    pub issuer: Option<String>,
    pub client_secret: Option<ExpandedSecret>,
    pub client_metadata_url: Option<String>,
    pub scopes: Vec<String>,
    pub grant: OAuthGrant,
    /// The port of the redirect URI; 0 for any free port.
    pub redirect_port: u16,
}

impl VariableExpander<'_> {
    pub(super) fn oauth(&self, written: Option<&written::RawMcpOauth>) -> Result<McpOauthSettings, String> {
        let Some(written) = written else { return Ok(McpOauthSettings::default()) };
        let text = |key: &str, text: Option<&_>| {
            text.map(|text| self.text(&format!("oauth.{key}"), text)).transpose()
        };
        let meant = McpOauthSettings {
            client_id: text("clientId", written.client_id.as_ref())?,
            issuer: text("issuer", written.issuer.as_ref())?,
            client_secret: text("clientSecret", written.client_secret.as_ref())?.map(ExpandedSecret),
            client_metadata_url: text("clientMetadataUrl", written.client_metadata_url.as_ref())?,
            scopes: written.scopes.clone().unwrap_or_default(),
            grant: written.grant.map_or(OAuthGrant::Person, Into::into),
            redirect_port: written.redirect_port.unwrap_or(0),
        };
        meant.checked()
    }
}

impl McpOauthSettings {
    /// Refuses combinations of keys that cannot work, before a login starts.
    fn checked(self) -> Result<Self, String> {
        match (&self.client_id, &self.client_secret, self.grant) {
            (None, Some(_), _) => Err("`oauth.clientSecret` is set; set `oauth.clientId` too".into()),
            (_, None, OAuthGrant::ClientCredentials) => {
                Err("`oauth.grant` is `clientCredentials`; set `oauth.clientId` and `oauth.clientSecret` too"
                    .into())
            }
            (_, _, OAuthGrant::Person | OAuthGrant::ClientCredentials) => Ok(self),
        }
    }
}
