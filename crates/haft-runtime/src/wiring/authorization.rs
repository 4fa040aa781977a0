//! Builds the OAuth authorizer of a remote MCP server from its configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use haft_core::name::Namespace;
use haft_core::principal::Principal;
use haft_sandbox::Home;
use haft_store::mcp_tokens::open_token_directory;
use haft_tools::mcp::{
    Authorizer, IdentityProvider, KeyringPreference, OAuthAccount, OAuthGrant, OauthConfig, OauthConsent,
    OauthGrantConfig, PreregisteredClient, RemoteTransport, SigningKey, TokenFile,
};
use secrecy::SecretString;
use url::Url;

#[cfg(feature = "keyring")]
use crate::keyring::SecretServiceKeyring;
use haft_config::ResolvedConfig;
use haft_config::resolved::{McpEndpoint, McpOauthSettings, McpServerSettings};

/// The storage for tokens: files in haft's home directory or, if preferred, the keyring.
#[derive(Debug, Clone, Copy)]
pub struct TokenStorage<'a> {
    /// The directory for token files.
    pub home: &'a Home,
    /// Selects whether the keyring is preferred over files.
    pub keyring: KeyringPreference,
    /// The caller. Each principal has separate tokens, unless all of them use the account of the operator. Only tokens
    /// of the operator, who is the local user, may be in the keyring.
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
    if has_authorization(headers) || *protocol == RemoteTransport::WebSocket {
        return if *oauth == McpOauthSettings::default() {
            Ok(None)
        } else {
            Err("an MCP server with an `Authorization` header or a WebSocket URL cannot also use `oauth`"
                .into())
        };
    }
    let url = address("url", &url.0)?;
    let TokenStorage { home, keyring, principal } = keeping;
    let tokens = home.data().join("tokens");
    let file = if token_owner(oauth, principal) == TokenOwner::Operator {
        with_keyring(TokenFile::new(&tokens, Namespace::sanitize(name).as_str(), &url), keyring)?
    } else {
        let directory = open_token_directory(home, principal)
            .map_err(|error| format!("haft cannot create the directory of the tokens: {error}"))?;
        TokenFile::new(&directory, Namespace::sanitize(name).as_str(), &url)
    };
    let made = Authorizer::new(name, &url, meant(oauth)?, file, consent);
    made.map(Some).map_err(|error| error.to_string())
}

/// The owner of the tokens for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenOwner {
    /// The local user, who logs in at the terminal.
    Operator,
    /// The caller, who is not the local user.
    Caller,
}

fn token_owner(oauth: &McpOauthSettings, caller: &Principal) -> TokenOwner {
    match oauth.account {
        OAuthAccount::Operator => TokenOwner::Operator,
        OAuthAccount::Principal if *caller == Principal::local() => TokenOwner::Operator,
        OAuthAccount::Principal => TokenOwner::Caller,
    }
}

/// Returns true if the caller uses its own account at the server, for which the caller must log in. Such a server may
/// offer different tools to each account.
pub fn has_own_account(server: &McpServerSettings, caller: &Principal) -> bool {
    let oauth = server.reach.as_ref().ok().and_then(person_login);
    oauth.is_some_and(|oauth| token_owner(oauth, caller) == TokenOwner::Caller)
}

/// Returns the OAuth settings of a server at which a person logs in.
fn person_login(reach: &McpEndpoint) -> Option<&McpOauthSettings> {
    let McpEndpoint::Remote { headers, protocol, oauth, .. } = reach else { return None };
    let is_person = oauth.grant == OAuthGrant::Person && *protocol != RemoteTransport::WebSocket;
    (is_person && !has_authorization(headers)).then_some(oauth)
}

fn has_authorization<V>(headers: &BTreeMap<String, V>) -> bool {
    headers.keys().any(|header| header.eq_ignore_ascii_case("authorization"))
}

/// A server at which a caller can log in, with everything that the login needs.
#[derive(Debug, Clone)]
pub struct LoginTarget {
    /// The name of the server, as the operator wrote it.
    pub name: String,
    /// The host of the server, for the user who decides about the login.
    pub host: String,
    /// The local port for the redirect; 0 for any free port.
    pub redirect_port: u16,
    reach: McpEndpoint,
    home: Home,
    keyring: KeyringPreference,
    principal: Principal,
}

impl LoginTarget {
    /// Returns the servers at which this caller can log in. A caller cannot log in for the operator.
    pub fn all(config: &ResolvedConfig, home: &Home, caller: &Principal) -> Vec<Self> {
        let servers = config.mcp_servers.iter().filter(|(_, server)| server.enabled);
        let target = |(name, server): (&String, &McpServerSettings)| {
            let reach = server.reach.as_ref().ok()?;
            let oauth = person_login(reach).filter(|oauth| may_log_in(oauth, caller))?;
            let McpEndpoint::Remote { url, .. } = reach else { return None };
            Some(Self {
                name: name.clone(),
                host: Url::parse(&url.0).ok()?.host_str()?.to_owned(),
                redirect_port: oauth.redirect_port,
                reach: reach.clone(),
                home: home.clone(),
                keyring: config.token_store,
                principal: caller.clone(),
            })
        };
        servers.filter_map(target).collect()
    }

    /// Returns the namespace of the server's tools.
    pub fn namespace(&self) -> Namespace {
        Namespace::sanitize(&self.name)
    }

    /// Builds the authorizer, which asks for the user's consent through `consent`.
    pub fn authorizer(&self, consent: Arc<dyn OauthConsent>) -> Result<Authorizer, String> {
        let Self { home, keyring, principal, .. } = self;
        let keeping = TokenStorage { home, keyring: *keyring, principal };
        let made = authorizer(&self.name, &self.reach, keeping, Some(consent))?;
        made.ok_or_else(|| "the MCP server does not use OAuth".to_owned())
    }
}

/// Returns true if the caller can log in at the server.
pub(super) fn may_log_in_at(server: &McpServerSettings, caller: &Principal) -> bool {
    let oauth = server.reach.as_ref().ok().and_then(person_login);
    oauth.is_some_and(|oauth| may_log_in(oauth, caller))
}

fn may_log_in(oauth: &McpOauthSettings, caller: &Principal) -> bool {
    *caller == Principal::local() || token_owner(oauth, caller) == TokenOwner::Caller
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
    let key = key.map_err(|problem| format!("haft cannot use the key in `oauth.privateKey`: {problem}"))?;
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
