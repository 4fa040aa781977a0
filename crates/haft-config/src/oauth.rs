//! Resolves the OAuth settings of a remote MCP server.

use std::path::{Path, PathBuf};

use haft_core::settings::mcp::{OAuthAccount, OAuthGrant};

use super::mcp::{ExpandedSecret, VariableExpander};
use super::written;

/// The OAuth settings of one server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct McpOauthSettings {
    pub client_id: Option<String>,
    pub issuer: Option<String>,
    pub client_secret: Option<ExpandedSecret>,
    /// The private key of the client, in PEM format.
    pub private_key: Option<ExpandedSecret>,
    /// The file with the token that identifies the workload or the user; set for the grants `jwtBearer` and
    /// `enterprise`.
    pub assertion_file: Option<PathBuf>,
    /// The identity provider of the organization; set for the grant `enterprise`.
    pub identity_provider: Option<IdentityProviderSettings>,
    pub client_metadata_url: Option<String>,
    pub scopes: Vec<String>,
    pub grant: OAuthGrant,
    /// The owner of the tokens, for the grant `person`.
    pub account: OAuthAccount,
    /// The port of the redirect URI; 0 for any free port.
    pub redirect_port: u16,
}

/// The settings for the identity provider of an organization.
#[derive(Debug, Clone, PartialEq)]
pub struct IdentityProviderSettings {
    pub issuer: String,
    pub client_id: String,
    pub client_secret: Option<ExpandedSecret>,
}

impl VariableExpander<'_> {
    pub(super) fn oauth(&self, written: Option<&written::RawMcpOauth>) -> Result<McpOauthSettings, String> {
        let Some(written) = written else { return Ok(McpOauthSettings::default()) };
        let text = |key: &str, text: Option<&_>| {
            text.map(|text| self.text(&format!("oauth.{key}"), text)).transpose()
        };
        let provider = written.identity_provider.as_ref().map(|written| self.identity_provider(written));
        let meant = McpOauthSettings {
            client_id: text("clientId", written.client_id.as_ref())?,
            issuer: text("issuer", written.issuer.as_ref())?,
            client_secret: text("clientSecret", written.client_secret.as_ref())?.map(ExpandedSecret),
            private_key: text("privateKey", written.private_key.as_ref())?.map(ExpandedSecret),
            assertion_file: text("assertionFile", written.assertion_file.as_ref())?.map(PathBuf::from),
            identity_provider: provider.transpose()?,
            client_metadata_url: text("clientMetadataUrl", written.client_metadata_url.as_ref())?,
            scopes: written.scopes.clone().unwrap_or_default(),
            grant: written.grant.map_or(OAuthGrant::Person, Into::into),
            account: written.account.map_or(OAuthAccount::Principal, Into::into),
            redirect_port: written.redirect_port.unwrap_or(0),
        };
        meant.checked()
    }

    fn identity_provider(
        &self,
        written: &written::RawIdentityProvider,
    ) -> Result<IdentityProviderSettings, String> {
        let text = |key: &str, text: Option<&_>| {
            text.map(|text| self.text(&format!("oauth.identityProvider.{key}"), text)).transpose()
        };
        let needed = || "`oauth.identityProvider` needs `issuer` and `clientId`".to_owned();
        Ok(IdentityProviderSettings {
            issuer: text("issuer", written.issuer.as_ref())?.ok_or_else(needed)?,
            client_id: text("clientId", written.client_id.as_ref())?.ok_or_else(needed)?,
            client_secret: text("clientSecret", written.client_secret.as_ref())?.map(ExpandedSecret),
        })
    }
}

impl McpOauthSettings {
    /// Refuses combinations of keys that cannot work, so that the error appears before a login starts.
    fn checked(self) -> Result<Self, String> {
        match self.problem() {
            Some(problem) => Err(problem.to_owned()),
            None => Ok(self),
        }
    }

    fn problem(&self) -> Option<&'static str> {
        let has_proof = self.client_secret.is_some() || self.private_key.is_some();
        if self.client_id.is_none() && self.client_secret.is_some() {
            return Some("`oauth.clientSecret` is set; set `oauth.clientId` too");
        }
        if self.client_id.is_none() && self.private_key.is_some() {
            return Some("`oauth.privateKey` is set; set `oauth.clientId` too");
        }
        if self.client_secret.is_some() && self.private_key.is_some() {
            return Some("set `oauth.clientSecret` or `oauth.privateKey`, not both");
        }
        match self.grant {
            OAuthGrant::Person => None,
            OAuthGrant::ClientCredentials => (self.client_id.is_none() || !has_proof).then_some(
                "`oauth.grant` is `clientCredentials`; set `oauth.clientId` and `oauth.clientSecret` or `oauth.privateKey` too",
            ),
            // Require an issuer: the MCP server chooses its authorization server, and a malicious authorization server
            // could use the token of the workload elsewhere.
            OAuthGrant::JwtBearer => (self.client_id.is_none() || self.issuer.is_none() || !self.has_assertion())
                .then_some(
                    "`oauth.grant` is `jwtBearer`; set `oauth.clientId`, `oauth.issuer` and `oauth.assertionFile` (an absolute path) too",
                ),
            OAuthGrant::Enterprise => {
                (self.client_id.is_none() || self.identity_provider.is_none() || !self.has_assertion()).then_some(
                    "`oauth.grant` is `enterprise`; set `oauth.clientId`, `oauth.identityProvider` and `oauth.assertionFile` (an absolute path) too",
                )
            }
        }
    }

    fn has_assertion(&self) -> bool {
        self.assertion_file.as_deref().is_some_and(Path::is_absolute)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_key_of_an_oauth_grant_is_an_error() {
        let secret = || Some(ExpandedSecret("s".into()));
        let provider = || {
            Some(IdentityProviderSettings {
                issuer: "https://i".into(),
                client_id: "c".into(),
                client_secret: None,
            })
        };
        let of =
            |grant| McpOauthSettings { grant, client_id: Some("me".into()), ..McpOauthSettings::default() };
        let check = |settings: McpOauthSettings, expected: Option<&str>| {
            let problem = settings.problem();
            assert_eq!(problem.is_some(), expected.is_some(), "{settings:?}: {problem:?}");
            assert!(problem.unwrap_or_default().contains(expected.unwrap_or_default()), "{problem:?}");
        };
        let file = Some(PathBuf::from("/run/token"));
        check(of(OAuthGrant::Person), None);
        check(McpOauthSettings { private_key: secret(), ..McpOauthSettings::default() }, Some("clientId"));
        check(of(OAuthGrant::ClientCredentials), Some("oauth.privateKey"));
        check(McpOauthSettings { private_key: secret(), ..of(OAuthGrant::ClientCredentials) }, None);
        let both =
            McpOauthSettings { client_secret: secret(), private_key: secret(), ..of(OAuthGrant::Person) };
        check(both, Some("not both"));
        let workload = McpOauthSettings { assertion_file: file.clone(), ..of(OAuthGrant::JwtBearer) };
        check(workload.clone(), Some("oauth.issuer"));
        let workload = McpOauthSettings { issuer: Some("https://as".into()), ..workload };
        check(workload.clone(), None);
        check(McpOauthSettings { assertion_file: Some("token".into()), ..workload }, Some("absolute path"));
        let enterprise = McpOauthSettings { assertion_file: file, ..of(OAuthGrant::Enterprise) };
        check(enterprise.clone(), Some("identityProvider"));
        check(McpOauthSettings { identity_provider: provider(), ..enterprise }, None);
    }
}
