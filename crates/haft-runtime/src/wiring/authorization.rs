//! Builds the OAuth authorizer of a remote MCP server from its configuration.

use std::sync::Arc;

use haft_core::name::Namespace;
use haft_core::principal::Principal;
use haft_sandbox::Home;
use haft_store::mcp_tokens::token_directory;
use haft_tools::mcp::{
    Authorizer, IdentityProvider, KeyringPreference, OAuthGrant, OauthConfig, OauthConsent, OauthGrantConfig,
    PreregisteredClient, RemoteTransport, SigningKey, TokenFile,
};
use secrecy::SecretString;
use url::Url;

#[cfg(feature = "keyring")]
use crate::keyring::SecretServiceKeyring;
use haft_config::resolved::{McpEndpoint, McpOauthSettings};

/// The storage for tokens: files in haft's home directory or, if preferred, the keyring.
#[derive(Debug, Clone, Copy)]
pub struct TokenStorage<'a> {
    /// The directory for token files.
    pub home: &'a Home,
    /// Selects whether the keyring is preferred over files.
    pub keyring: KeyringPreference,
    /// The owner of the tokens. Each principal has separate tokens; only tokens of the local user may be in the
    /// keyring.
    pub principal: &'a Principal,
}

/// Builds the authorizer that obtains tokens for a server, or returns an error for the operator. Returns `None` for
/// servers that use no OAuth: local processes, servers with an `Authorization` header, and servers behind a WebSocket.
pub fn authorizer(
    name: &str,
    reach: &McpEndpoint,
    keeping: TokenStorage<'_>,
    consent: Option<Arc<dyn OauthConsent>>,
) -> Result<Option<Authorizer>, String> {
    let McpEndpoint::Remote { url, headers, protocol, oauth } = reach else { return Ok(None) };
    let says_who = headers.keys().any(|header| header.eq_ignore_ascii_case("authorization"));
    if says_who || *protocol == RemoteTransport::WebSocket {
        return if *oauth == McpOauthSettings::default() {
            Ok(None)
        } else {
            Err("`oauth` cannot be used together with an `Authorization` header or a WebSocket".into())
        };
    }
    let url = address("url", &url.0)?;
    let TokenStorage { home, keyring, principal } = keeping;
    let tokens = home.data().join("tokens");
    let file = if *principal == Principal::local() {
        with_keyring(TokenFile::new(&tokens, Namespace::sanitize(name).as_str(), &url), keyring)?
    } else {
        TokenFile::new(&token_directory(home, principal), Namespace::sanitize(name).as_str(), &url)
    };
    let made = Authorizer::new(name, &url, meant(oauth)?, file, consent);
    made.map(Some).map_err(|error| error.to_string())
}

#[cfg(feature = "keyring")]
#[expect(clippy::unnecessary_wraps, reason = "fails where there is no keyring support")]
fn with_keyring(file: TokenFile, preference: KeyringPreference) -> Result<TokenFile, String> {
    Ok(file.with_keyring(Arc::new(SecretServiceKeyring), preference))
}

/// Adds the keyring. Refuses a required keyring in a build without keyring support: otherwise tokens would be stored in
/// plain files against the operator's setting.
#[cfg(not(feature = "keyring"))]
fn with_keyring(file: TokenFile, preference: KeyringPreference) -> Result<TokenFile, String> {
    match preference {
        KeyringPreference::Required => {
            Err("`tokenStore` requires a keyring, and this program is built without the feature `keyring`"
                .into())
        }
        KeyringPreference::WhereThereIsOne | KeyringPreference::Never => Ok(file),
    }
}

fn meant(oauth: &McpOauthSettings) -> Result<OauthConfig, String> {
    let secret = oauth.client_secret.as_ref().map(|secret| SecretString::from(secret.0.clone()));
    let key = oauth.private_key.as_ref().map(|pem| SigningKey::of_pem(&pem.0).map(Arc::new)).transpose();
    let key = key.map_err(|problem| format!("its `oauth.privateKey` cannot be used: {problem}"))?;
    let metadata = oauth.client_metadata_url.as_deref();
    Ok(OauthConfig {
        issuer: oauth.issuer.clone(),
        client: oauth.client_id.clone().map(|id| PreregisteredClient { id, secret, key }),
        client_metadata_url: metadata.map(|text| address("oauth.clientMetadataUrl", text)).transpose()?,
        scopes: oauth.scopes.clone(),
        grant: grant(oauth),
    })
}

/// Returns the grant with the settings that it needs. The configuration is complete, because `haft-config` checks it.
fn grant(oauth: &McpOauthSettings) -> OauthGrantConfig {
    let file = oauth.assertion_file.clone().unwrap_or_default();
    match (oauth.grant, &oauth.identity_provider) {
        (OAuthGrant::Person, _) => OauthGrantConfig::Person,
        (OAuthGrant::ClientCredentials, _) => OauthGrantConfig::ClientCredentials,
        (OAuthGrant::Enterprise, Some(provider)) => {
            let secret = provider.client_secret.as_ref().map(|secret| SecretString::from(secret.0.clone()));
            let client = PreregisteredClient { id: provider.client_id.clone(), secret, key: None };
            let provider = IdentityProvider { issuer: provider.issuer.clone(), client };
            OauthGrantConfig::Enterprise { id_token: file, provider }
        }
        (OAuthGrant::JwtBearer | OAuthGrant::Enterprise, _) => {
            OauthGrantConfig::JwtBearer { assertion: file }
        }
    }
}

fn address(key: &str, text: &str) -> Result<Url, String> {
    Url::parse(text).map_err(|error| format!("`{key}` is not a valid URL: {error}"))
}
