//! Resolves the settings of `haft serve`, such as its public address and the issuers whose access tokens the server
//! accepts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_core::principal::Principal;
use haft_core::settings::mcp::RequestedServers;
use haft_core::settings::server::{KeyLimits, KeyScope};
use ipnet::IpNet;
use url::{Host, Url};

use super::position::{child, item};
use super::resolve::{ConfigResolver, count, duration};
use super::{default, expand, written};

/// The tenant of keys and issuers for which the operator names no tenant.
const DEFAULT_TENANT: &str = "default";

/// The settings of `haft serve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeSettings {
    /// The URL that clients use for the server, without a slash at its end.
    pub public_url: Option<String>,
    /// The reverse proxies whose `X-Forwarded-For` header is used.
    pub trusted_proxies: Vec<IpNet>,
    pub issuers: Vec<TokenIssuerSettings>,
    /// The certificate files; with `None` the server speaks plain HTTP.
    pub tls: Option<TlsFiles>,
    /// The MCP servers that a request may name by their addresses.
    pub server_urls: RequestedServers,
    pub run_limits: ServeRunLimits,
    /// The maximum number of connections that are open at the same time. Further clients wait.
    pub connections_max: usize,
    /// The time without progress after which the server closes the connection of a client that does not read.
    pub send_timeout: Duration,
    pub workspaces: WorkspaceSettings,
    pub storage: StorageSettings,
    /// The time in which an approval request can be answered.
    pub approval_timeout: Duration,
    /// The program that haft notifies of new approval requests; `None` to notify no program.
    pub approval_webhook: Option<WebhookSettings>,
}

/// The receiver of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    pub url: Url,
    /// The key that signs webhook requests, or the reason why there is none. If the variable with the secret is not
    /// set, this is an error only for `haft serve`.
    pub secret: Result<WebhookSecret, String>,
}

/// The key that signs the requests of a webhook.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(pub Vec<u8>);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(***)")
    }
}

/// The minimum length of a webhook secret, in bytes. The Standard Webhooks specification requires it.
const WEBHOOK_SECRET_BYTES_MIN: usize = 24;

impl WebhookSecret {
    /// Reads a secret in the form of the Standard Webhooks specification. The error does not contain the secret.
    fn parse(text: &str) -> Result<Self, String> {
        let encoded = text.strip_prefix("whsec_").and_then(|rest| STANDARD.decode(rest).ok());
        let bytes = encoded.ok_or("expected `whsec_` followed by the secret in base64")?;
        if bytes.len() < WEBHOOK_SECRET_BYTES_MIN {
            return Err(format!("expected a secret of at least {WEBHOOK_SECRET_BYTES_MIN} bytes in base64"));
        }
        Ok(Self(bytes))
    }
}

/// The limits on running and waiting runs in the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeRunLimits {
    /// The maximum number of runs that are in progress at the same time.
    pub concurrent_runs_max: usize,
    /// The maximum number of runs that wait for a free slot.
    pub waiting_runs_max: usize,
}

impl Default for ServeRunLimits {
    fn default() -> Self {
        Self {
            concurrent_runs_max: count(default::SERVE_RUNS_MAX),
            waiting_runs_max: count(default::SERVE_WAITING_RUNS_MAX),
        }
    }
}

/// The limits on the data that the server stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageSettings {
    /// The time for which responses and conversations are kept after their last change.
    pub keep: Duration,
    /// The maximum number of stored responses of a tenant.
    pub responses_max: u64,
    /// The maximum size of the responses, conversations and event logs of a tenant, in bytes.
    pub bytes_max: u64,
    /// The maximum disk space that all data of a tenant may take, in bytes.
    pub tenant_bytes_max: u64,
    /// The percentage of the disk that must stay free.
    pub free_disk_percent_min: u64,
}

impl Default for StorageSettings {
    fn default() -> Self {
        Self {
            keep: Duration::from_millis(default::RETENTION_KEEP_MS),
            responses_max: default::RETENTION_RESPONSES_MAX,
            bytes_max: default::RETENTION_BYTES_MAX,
            tenant_bytes_max: default::TENANT_BYTES_MAX,
            free_disk_percent_min: default::FREE_DISK_PERCENT_MIN,
        }
    }
}

/// The settings for the directories in which the commands of requests run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceSettings {
    pub scope: WorkspaceScope,
    /// The maximum size of a workspace together with its `/tmp`, in bytes.
    pub bytes_max: u64,
    /// The time for which an unused workspace is kept.
    pub keep: Duration,
}

/// Selects which requests share a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceScope {
    Conversation,
    Tenant,
    /// All requests work in this directory, which belongs to the operator. haft neither limits nor removes it.
    Directory(PathBuf),
}

impl Default for ServeSettings {
    fn default() -> Self {
        Self {
            public_url: None,
            trusted_proxies: Vec::new(),
            issuers: Vec::new(),
            tls: None,
            server_urls: RequestedServers::Public,
            run_limits: ServeRunLimits::default(),
            connections_max: count(default::SERVE_CONNECTIONS_MAX),
            send_timeout: Duration::from_millis(default::SERVE_SEND_TIMEOUT_MS),
            workspaces: WorkspaceSettings {
                scope: WorkspaceScope::Conversation,
                bytes_max: default::WORKSPACE_BYTES_MAX,
                keep: Duration::from_millis(default::WORKSPACE_KEEP_MS),
            },
            storage: StorageSettings::default(),
            approval_timeout: Duration::from_millis(default::SERVE_APPROVAL_TIMEOUT_MS),
            approval_webhook: None,
        }
    }
}

/// The files of a certificate, in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// An issuer of access tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenIssuerSettings {
    /// The issuer, exactly as in the `iss` claim of its tokens.
    pub issuer: String,
    /// The values of the `aud` claim that identify this server on all its routes; never empty.
    pub audience: Vec<String>,
    /// The URL of the issuer's key set; with `None` it comes from the issuer's discovery document.
    pub jwks_url: Option<Url>,
    pub tenant: TokenTenant,
    pub subject_claim: String,
    /// The permissions that each OAuth scope gives.
    pub scopes: BTreeMap<String, Vec<KeyScope>>,
    /// The permissions that each role gives.
    pub roles: BTreeMap<String, Vec<KeyScope>>,
    pub roles_claim: String,
    /// The limits that apply to each subject of the issuer.
    pub limits: KeyLimits,
}

/// The tenant of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenTenant {
    /// All subjects of the issuer have this tenant.
    Fixed(String),
    /// The tenant is the value of this claim.
    Claim(String),
}

impl ConfigResolver<'_> {
    pub(super) fn serve(&mut self, written: written::RawServe) -> ServeSettings {
        let public_url = written.public_url.and_then(|url| {
            let checked = endpoint(&url).and_then(|parsed| match parsed.path() {
                "/" => Ok(parsed.as_str().trim_end_matches('/').to_owned()),
                path => Err(format!("expected a URL without a path; got the path `{path}`")),
            });
            self.checked("serve.publicUrl", checked)
        });
        let proxies = written.trusted_proxies.unwrap_or_default().into_iter().enumerate();
        let trusted_proxies = proxies
            .filter_map(|(index, text)| self.checked(&item("serve.trustedProxies", index), network(&text)))
            .collect();
        let server_urls = written.server_urls.map_or(RequestedServers::Public, Into::into);
        let issuers = written.issuers.unwrap_or_default().into_iter().enumerate();
        let issuers: Vec<_> = issuers
            .filter_map(|(index, issuer)| {
                self.issuer(&item("serve.issuers", index), issuer, public_url.as_ref())
            })
            .collect();
        if let Err(message) = distinct(&issuers) {
            self.wrong("serve.issuers", message);
        }
        let tls =
            written.tls.map(|tls| TlsFiles { certificate: tls.certificate.0.into(), key: tls.key.0.into() });
        let run_limits = ServeRunLimits {
            concurrent_runs_max: count(written.max_runs.unwrap_or(default::SERVE_RUNS_MAX)),
            waiting_runs_max: count(written.max_waiting_runs.unwrap_or(default::SERVE_WAITING_RUNS_MAX)),
        };
        let scope = written.workspace.map(|text| self.checked("serve.workspace", workspace_scope(&text)));
        let defaults = ServeSettings::default().workspaces;
        let workspaces = WorkspaceSettings {
            scope: scope.flatten().unwrap_or(defaults.scope),
            bytes_max: written.max_workspace_bytes.unwrap_or(defaults.bytes_max),
            keep: written.workspace_keep.map_or(defaults.keep, duration),
        };
        let (retention, defaults) = (written.retention.unwrap_or_default(), StorageSettings::default());
        let storage = StorageSettings {
            keep: retention.keep.map_or(defaults.keep, duration),
            responses_max: retention.max_responses.unwrap_or(defaults.responses_max),
            bytes_max: retention.max_bytes.unwrap_or(defaults.bytes_max),
            tenant_bytes_max: written.max_tenant_bytes.unwrap_or(defaults.tenant_bytes_max),
            free_disk_percent_min: written.min_free_disk_percent.unwrap_or(defaults.free_disk_percent_min),
        };
        let approval_timeout = Duration::from_millis(default::SERVE_APPROVAL_TIMEOUT_MS);
        let send_timeout = Duration::from_millis(default::SERVE_SEND_TIMEOUT_MS);
        ServeSettings {
            public_url,
            trusted_proxies,
            issuers,
            tls,
            server_urls,
            run_limits,
            connections_max: count(written.max_connections.unwrap_or(default::SERVE_CONNECTIONS_MAX)),
            send_timeout: written.send_timeout.map_or(send_timeout, duration),
            workspaces,
            storage,
            approval_timeout: written.approval_timeout.map_or(approval_timeout, duration),
            approval_webhook: written.approval_webhook.and_then(|webhook| self.webhook(&webhook)),
        }
    }

    fn webhook(&mut self, written: &written::RawWebhook) -> Option<WebhookSettings> {
        let url = self.checked("serve.approvalWebhook.url", endpoint(&written.url))?;
        let secret = expand::expand(&written.secret.0, self.variables).map_err(|error| error.to_string());
        let secret = secret.and_then(|text| WebhookSecret::parse(&text));
        let secret = secret.map_err(|problem| format!("`serve.approvalWebhook.secret`: {problem}"));
        Some(WebhookSettings { url, secret })
    }

    fn issuer(
        &mut self,
        path: &str,
        written: written::RawTokenIssuer,
        public_url: Option<&String>,
    ) -> Option<TokenIssuerSettings> {
        self.checked(&child(path, "issuer"), endpoint(&written.issuer))?;
        let jwks_url = match written.jwks_url {
            Some(url) => Some(self.checked(&child(path, "jwksUrl"), endpoint(&url))?),
            None => None,
        };
        let mut audience = written.audience.unwrap_or_default();
        audience.extend(public_url.cloned());
        let tenant = self.checked(path, tenant(written.tenant, written.tenant_claim))?;
        let (scopes, roles) = (permissions(written.scopes), permissions(written.roles));
        // Require both keys: without an audience, a token for another server would be accepted, and without scopes or
        // roles, a token would permit nothing.
        if audience.iter().all(String::is_empty) {
            self.wrong(
                path,
                "set `audience` or `serve.publicUrl`, so that haft accepts only tokens for this server"
                    .into(),
            );
        }
        if scopes.is_empty() && roles.is_empty() {
            self.wrong(path, "set `scopes` or `roles`; without them a token permits nothing".into());
        }
        let limits = written.limits.unwrap_or_default();
        Some(TokenIssuerSettings {
            issuer: written.issuer,
            audience,
            jwks_url,
            tenant,
            subject_claim: written.subject_claim.unwrap_or_else(|| "sub".into()),
            scopes,
            roles,
            roles_claim: written.roles_claim.unwrap_or_else(|| "roles".into()),
            limits: KeyLimits {
                requests_per_minute: limits.requests_per_minute,
                tokens_per_minute: limits.tokens_per_minute,
                concurrent_responses: limits.concurrent_responses,
                nano_usd_per_month: limits.usd_per_month.map(|usd| u64::from(usd) * 1_000_000_000),
            },
        })
    }
}

/// Parses the address or the network of a proxy.
fn network(text: &str) -> Result<IpNet, String> {
    let address = || text.parse().ok().map(|address: IpAddr| IpNet::from(address));
    let network = text.parse().ok().or_else(address);
    network.ok_or_else(|| format!("expected an IP address or a network such as `10.0.0.0/8`; got `{text}`"))
}

fn workspace_scope(text: &str) -> Result<WorkspaceScope, String> {
    match text {
        "perConversation" => Ok(WorkspaceScope::Conversation),
        "perTenant" => Ok(WorkspaceScope::Tenant),
        path if Path::new(path).is_absolute() => Ok(WorkspaceScope::Directory(path.into())),
        other => Err(format!("expected `perConversation`, `perTenant` or an absolute path; got `{other}`")),
    }
}

/// Checks a URL of the issuer. It must use TLS unless it is on this machine, because an attacker could replace keys
/// that arrive without TLS.
fn endpoint(text: &str) -> Result<Url, String> {
    let expected = || format!("expected an https URL, or an http URL of a loopback address; got `{text}`");
    let url = Url::parse(text).map_err(|_| expected())?;
    let is_plain = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    let is_safe = match url.scheme() {
        "https" => true,
        "http" => is_loopback(&url),
        _ => false,
    };
    if is_plain && is_safe { Ok(url) } else { Err(expected()) }
}

/// Returns true if a URL refers to this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

fn tenant(fixed: Option<String>, claim: Option<String>) -> Result<TokenTenant, String> {
    match (fixed, claim) {
        (Some(_), Some(_)) => Err("set `tenant` or `tenantClaim`, not both".into()),
        (None, Some(claim)) => Ok(TokenTenant::Claim(claim)),
        (Some(tenant), None) if tenant.is_empty() || tenant == Principal::local().tenant() => Err(format!(
            "the tenant `{tenant}` is reserved for the user of this machine; choose another name"
        )),
        (Some(tenant), None) if !Principal::is_tenant_name(&tenant) => {
            Err(format!("the tenant `{tenant}` contains a `/`, which is not allowed; choose another name"))
        }
        (fixed, None) => Ok(TokenTenant::Fixed(fixed.unwrap_or_else(|| DEFAULT_TENANT.into()))),
    }
}

fn permissions(
    written: Option<BTreeMap<String, Vec<written::RawKeyScope>>>,
) -> BTreeMap<String, Vec<KeyScope>> {
    let written = written.unwrap_or_default().into_iter();
    written.map(|(name, scopes)| (name, scopes.into_iter().map(Into::into).collect())).collect()
}

/// Checks that no two issuers can name the same subject of the same tenant, because equal subjects of one tenant own
/// the same objects.
fn distinct(issuers: &[TokenIssuerSettings]) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let mut tenants = BTreeSet::new();
    for issuer in issuers {
        if !names.insert(&issuer.issuer) {
            return Err(format!("the token issuer `{}` is listed twice", issuer.issuer));
        }
        match &issuer.tenant {
            TokenTenant::Fixed(tenant) if tenants.insert(tenant) => {}
            TokenTenant::Claim(_) if issuers.len() == 1 => {}
            TokenTenant::Fixed(tenant) => {
                return Err(format!(
                    "two token issuers have the tenant `{tenant}`; give each issuer its own `tenant`"
                ));
            }
            TokenTenant::Claim(_) => {
                return Err(
                    "a token issuer with `tenantClaim` can name every tenant, so it must be the only issuer"
                        .into(),
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serve_workspace_is_a_known_word_or_an_absolute_path() {
        assert_eq!(workspace_scope("perConversation"), Ok(WorkspaceScope::Conversation));
        assert_eq!(workspace_scope("perTenant"), Ok(WorkspaceScope::Tenant));
        assert_eq!(workspace_scope("/srv/project"), Ok(WorkspaceScope::Directory("/srv/project".into())));
        for wrong in ["", "pertenant", "project", "./project", "~/project"] {
            assert!(workspace_scope(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn webhook_secret_must_have_the_standard_webhooks_format() {
        let check =
            |text: &str, expected: bool| assert_eq!(WebhookSecret::parse(text).is_ok(), expected, "{text}");
        check("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true);
        check("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false);
        check("whsec_c2hvcnQ=", false);
        check("whsec_!", false);
        check("whsec_", false);
        let error = WebhookSecret::parse("whsec_!secret").unwrap_err();
        assert!(!error.contains("!secret"), "{error}");
    }

    #[test]
    fn issuer_url_must_use_https_or_a_loopback_address() {
        let check = |text: &str, expected: bool| assert_eq!(endpoint(text).is_ok(), expected, "{text}");
        check("https://login.example.com/realms/a", true);
        check("http://127.0.0.1:8080", true);
        check("http://[::1]:8080/keys", true);
        check("http://localhost/keys", true);
        check("http://login.example.com", false);
        check("http://127.0.0.1.example.com", false);
        check("https://a@login.example.com", false);
        check("https://login.example.com/?a", false);
        check("file:///etc/passwd", false);
        check("login.example.com", false);
    }
}
