//! Discovery: an MCP server names its authorization server (RFC 9728), which names its endpoints (RFC 8414).

use reqwest::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::{Host, Url};

use super::challenge::Challenge;
use super::endpoint_requests;
use super::error::AuthError;
use super::private_target::leads_inside;
use super::signing_key;

/// The authorization server of an MCP server, and the resource and scopes for which tokens are requested.
pub(super) struct OauthDiscovery {
    /// The resource for which tokens are requested, as the server states it.
    pub(super) resource: String,
    pub(super) scopes: Vec<String>,
    pub(super) issuer: AuthorizationServer,
    /// Whether the server and its authorization server support tokens that are bound to a key (`DPoP`).
    pub(super) binds_tokens: bool,
}

/// The metadata of a protected resource (RFC 9728).
#[derive(Deserialize)]
struct ResourceMetadata {
    resource: Option<String>,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    dpop_signing_alg_values_supported: Vec<String>,
    #[serde(default)]
    dpop_bound_access_tokens_required: bool,
}

/// The metadata of an authorization server (RFC 8414, or `OpenID` Connect).
#[derive(Deserialize)]
pub(super) struct AuthorizationServer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: Option<Url>,
    pub(super) token_endpoint: Url,
    pub(super) registration_endpoint: Option<Url>,
    #[serde(default)]
    pub(super) scopes_supported: Vec<String>,
    #[serde(default)]
    pub(super) code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) token_endpoint_auth_methods_supported: Vec<String>,
    #[serde(default)]
    pub(super) dpop_signing_alg_values_supported: Vec<String>,
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// Fetches the metadata of the server, then the metadata of the first authorization server that it names. A server that
/// names none is used as its own authorization server.
pub(super) async fn discover(
    http: &Client,
    server: &Url,
    challenge: &Challenge,
) -> Result<OauthDiscovery, AuthError> {
    let named = challenge.resource_metadata.as_deref().and_then(|text| Url::parse(text).ok());
    let places = named.into_iter().chain(resource_metadata_urls(server));
    let about: Option<ResourceMetadata> = first(http, server, places).await?;
    let resource_binds = challenge.names_dpop || about.as_ref().is_some_and(ResourceMetadata::names_dpop);
    let (resource, scopes, issuer) = match about {
        Some(about) => {
            let resource = about.resource.unwrap_or_else(|| server.to_string());
            if !covers(&resource, server) {
                return Err(AuthError::refused(
                    "the OAuth metadata of the MCP server is for another server URL, so haft refuses it",
                ));
            }
            (resource, about.scopes_supported, about.authorization_servers.into_iter().next())
        }
        None => (server.to_string(), Vec::new(), None),
    };
    let issuer = issuer.unwrap_or_else(|| server.origin().ascii_serialization());
    let issuer = authorization_server(http, server, &issuer).await?;
    // The authorization server alone cannot decide about DPoP: an MCP server that does not know DPoP would reject a
    // token that is bound to a key.
    let binds_tokens = resource_binds && is_listed(&issuer.dpop_signing_alg_values_supported);
    Ok(OauthDiscovery { resource, scopes, issuer, binds_tokens })
}

impl ResourceMetadata {
    fn names_dpop(&self) -> bool {
        self.dpop_bound_access_tokens_required || is_listed(&self.dpop_signing_alg_values_supported)
    }
}

/// Returns whether the list contains the only signing algorithm that this client supports.
fn is_listed(algorithms: &[String]) -> bool {
    algorithms.iter().any(|algorithm| algorithm == signing_key::ALGORITHM)
}

/// Fetches the metadata of an authorization server by its issuer URL.
pub(super) async fn authorization_server(
    http: &Client,
    server: &Url,
    issuer: &str,
) -> Result<AuthorizationServer, AuthError> {
    let address = Url::parse(issuer).map_err(|_| {
        AuthError::refused("the MCP server names an authorization server, but the name is not a URL")
    })?;
    let found: Option<AuthorizationServer> = first(http, server, issuer_metadata_urls(&address)).await?;
    let found = found.ok_or_else(|| {
        let hint = "set an `Authorization` header in the `headers` of the MCP server";
        AuthError::refused(format!("the server requires a login, but publishes no OAuth metadata; {hint}"))
    })?;
    check_metadata(&found, issuer, server)?;
    Ok(found)
}

/// Refuses metadata of another issuer, and metadata with an endpoint that haft must not contact or show to the user.
fn check_metadata(found: &AuthorizationServer, issuer: &str, server: &Url) -> Result<(), AuthError> {
    // Some frameworks add a slash after a bare host. Any other difference may be a server that poses as another issuer
    // (RFC 8414, section 3.3).
    if found.issuer.trim_end_matches('/') != issuer.trim_end_matches('/') {
        return Err(AuthError::refused(
            "the authorization server reports a different issuer from the one that the MCP server announced",
        ));
    }
    if found.endpoints().any(|endpoint| leads_inside(endpoint, server)) {
        return Err(AuthError::refused("the authorization server has a private address, so haft refuses it"));
    }
    if !found.endpoints().all(|endpoint| is_safe(endpoint, server)) {
        return Err(AuthError::refused(
            "an endpoint of the authorization server does not use https, so haft refuses it",
        ));
    }
    Ok(())
}

impl AuthorizationServer {
    fn endpoints(&self) -> impl Iterator<Item = &Url> {
        [
            Some(&self.token_endpoint),
            self.authorization_endpoint.as_ref(),
            self.registration_endpoint.as_ref(),
        ]
        .into_iter()
        .flatten()
    }
}

/// Fetches the URLs in order, and parses the first document that is found.
async fn first<T: DeserializeOwned>(
    http: &Client,
    server: &Url,
    places: impl IntoIterator<Item = Url>,
) -> Result<Option<T>, AuthError> {
    for place in places {
        if !is_safe(&place, server) {
            return Err(AuthError::refused(
                "the URL of the MCP server's OAuth metadata does not use https, so haft refuses it",
            ));
        }
        if leads_inside(&place, server) {
            return Err(AuthError::refused(
                "the URL of the MCP server's OAuth metadata has a private address, so haft refuses it",
            ));
        }
        if let Some(text) = endpoint_requests::get(http, place).await? {
            return serde_json::from_str(&text)
                .map(Some)
                .map_err(|_| AuthError::refused("haft cannot parse the OAuth metadata of the MCP server"));
        }
    }
    Ok(None)
}

/// Returns the metadata URLs of a protected resource: the well-known name before the server's path, then at the root.
fn resource_metadata_urls(server: &Url) -> Vec<Url> {
    places(
        server,
        &[
            ("/.well-known/oauth-protected-resource", WellKnownPosition::Before),
            ("/.well-known/oauth-protected-resource", WellKnownPosition::Root),
        ],
    )
}

fn issuer_metadata_urls(issuer: &Url) -> Vec<Url> {
    places(
        issuer,
        &[
            ("/.well-known/oauth-authorization-server", WellKnownPosition::Before),
            ("/.well-known/openid-configuration", WellKnownPosition::Before),
            ("/.well-known/openid-configuration", WellKnownPosition::After),
        ],
    )
}

/// The position of a well-known name relative to the path.
#[derive(Clone, Copy)]
enum WellKnownPosition {
    Before,
    After,
    Root,
}

fn places(address: &Url, names: &[(&str, WellKnownPosition)]) -> Vec<Url> {
    let path = address.path().trim_end_matches('/');
    let mut found: Vec<Url> = Vec::new();
    for (name, place) in names {
        let mut url = address.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.set_path(&match place {
            WellKnownPosition::Before => format!("{name}{path}"),
            WellKnownPosition::After => format!("{path}{name}"),
            WellKnownPosition::Root => (*name).to_owned(),
        });
        if !found.contains(&url) {
            found.push(url);
        }
    }
    found
}

/// Returns whether a token for `resource` is valid for the server: the same origin, and the same path or a parent of
/// it.
fn covers(resource: &str, server: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    let above = resource.path().trim_end_matches('/');
    let below = server.path().strip_prefix(above);
    resource.origin() == server.origin() && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns whether requests may go to `url`: over TLS, or over plain HTTP if both `url` and the server are on loopback.
fn is_safe(url: &Url, server: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && is_loopback(url) && is_loopback(server))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn metadata_urls_have_the_well_known_name_before_or_after_the_path() {
        let check = |found: Vec<Url>, expected: &[&str]| {
            assert_eq!(found.iter().map(Url::as_str).collect::<Vec<_>>(), expected);
        };
        check(
            resource_metadata_urls(&url("https://h/a/mcp?x=1")),
            &[
                "https://h/.well-known/oauth-protected-resource/a/mcp",
                "https://h/.well-known/oauth-protected-resource",
            ],
        );
        check(
            issuer_metadata_urls(&url("https://as/t")),
            &[
                "https://as/.well-known/oauth-authorization-server/t",
                "https://as/.well-known/openid-configuration/t",
                "https://as/t/.well-known/openid-configuration",
            ],
        );
        check(
            issuer_metadata_urls(&url("https://as")),
            &[
                "https://as/.well-known/oauth-authorization-server",
                "https://as/.well-known/openid-configuration",
            ],
        );
    }

    #[test]
    fn oauth_resource_covers_its_own_url_and_the_paths_below_it() {
        let check = |resource, expected| {
            assert_eq!(covers(resource, &url("https://h/a/mcp")), expected, "{resource}");
        };
        check("https://h/a/mcp", true);
        check("https://h/a", true);
        check("https://h/", true);
        check("https://h", true);
        check("https://h/a/m", false);
        check("https://h/b", false);
        check("https://other/a/mcp", false);
        check("http://h/a/mcp", false);
        check("nonsense", false);
    }

    #[test]
    fn plain_http_is_allowed_only_between_loopback_addresses() {
        let check = |address, server, expected| {
            assert_eq!(is_safe(&url(address), &url(server)), expected, "{address} for {server}");
        };
        check("https://as/token", "https://h/", true);
        check("http://as/token", "https://h/", false);
        check("http://127.0.0.1:1/token", "http://localhost:2/", true);
        check("http://127.0.0.1:1/token", "https://h/", false);
        check("file:///etc/passwd", "http://localhost/", false);
    }

    /// Returns the error for metadata in which one field is different.
    fn refusal(field: &str, value: &str) -> Option<String> {
        let mut document = json!({
            "issuer": "https://as.example.com",
            "authorization_endpoint": "https://as.example.com/authorize",
            "token_endpoint": "https://as.example.com/token",
            "registration_endpoint": "https://as.example.com/register",
        });
        document[field] = value.into();
        let found: AuthorizationServer = serde_json::from_value(document).unwrap();
        let server = url("https://mcp.example.com");
        check_metadata(&found, "https://as.example.com", &server).err().map(|error| error.to_string())
    }

    #[test]
    fn metadata_with_an_unsafe_endpoint_or_another_issuer_is_refused() {
        let check = |field: &str, value: &str, expected: Option<&str>| {
            let found = refusal(field, value);
            let is_expected = match (&found, expected) {
                (Some(reason), Some(part)) => reason.contains(part),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            assert!(is_expected, "{field}: {value}: {found:?}");
        };
        let (plain, private) = (Some("does not use https"), Some("private address"));
        for field in ["authorization_endpoint", "token_endpoint", "registration_endpoint"] {
            check(field, "https://login.example.com/x", None);
            check(field, "file:///..$(touch x)", plain);
            check(field, "javascript:alert(1)", plain);
            check(field, "http://as/", plain);
            check(field, "http://127.0.0.1/", private);
            check(field, "https://169.254.169.254/", private);
            check(field, "https://[::1]/token", private);
        }
        check("issuer", "https://as.example.com/", None);
        check("issuer", "https://evil.example.com", Some("different issuer"));
        check("issuer", "https://as.example.com/tenant", Some("different issuer"));
    }

    /// This test needs no server, because the client checks the address before it connects.
    #[tokio::test]
    async fn metadata_is_not_fetched_from_private_addresses_or_without_tls() {
        let server = url("https://mcp.example.com");
        let check = async |address: &str, expected: &str| {
            let found = first::<ResourceMetadata>(&Client::new(), &server, [url(address)]).await;
            let reason = found.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(reason.contains(expected), "{address}: {reason}");
        };
        check("https://10.0.0.1/.well-known/oauth-protected-resource", "private address").await;
        check("https://[fd00::1]/.well-known/oauth-protected-resource", "private address").await;
        check("http://as.example.com/", "does not use https").await;
        check("file:///etc/passwd", "does not use https").await;
    }
}
