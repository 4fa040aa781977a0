//! The configuration keys of `haft serve`, as the configuration file contains them, before defaults are applied.

use std::collections::BTreeMap;

use haft_core::settings::server::KeyScope;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::default;
use super::super::value_format::{Millis, PathText, TemplateText, words};
use super::RawServerUrls;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawServe {
    /// The URL that clients use for the server, without a path, such as `https://haft.example.com`
    pub(crate) public_url: Option<String>,

    /// The addresses or networks of the reverse proxies in front of the server, such as `127.0.0.1` or `10.0.0.0/8`; haft uses the header `X-Forwarded-For` only in requests from them
    #[schemars(extend("default" = []))]
    pub(crate) trusted_proxies: Option<Vec<String>>,

    /// The files for TLS; without them the server speaks plain HTTP
    pub(crate) tls: Option<RawServeTls>,

    /// The issuers (OIDC, OAuth) whose access tokens the server accepts in addition to API keys
    #[schemars(extend("default" = []))]
    pub(crate) issuers: Option<Vec<RawTokenIssuer>>,

    /// The MCP servers that a request may name by their `server_url`: none (`off`), those at `public` addresses, or all (`any`), even those in the network of the server
    #[schemars(extend("default" = "public"))]
    pub(crate) server_urls: Option<RawServerUrls>,

    /// The maximum number of runs that work at the same time; further runs wait
    #[schemars(range(min = 1), extend("default" = default::SERVE_RUNS_MAX))]
    pub(crate) max_runs: Option<u64>,

    /// The maximum number of waiting runs; haft refuses further runs, and refuses a tenant that would fill more than half of the queue
    #[schemars(extend("default" = default::SERVE_WAITING_RUNS_MAX))]
    pub(crate) max_waiting_runs: Option<u64>,

    /// The maximum number of connections that are open at the same time; further clients wait
    #[schemars(range(min = 1), extend("default" = default::SERVE_CONNECTIONS_MAX))]
    pub(crate) max_connections: Option<u64>,

    /// The time after which the server closes the connection of a client that reads none of the data that the server sends; slow clients and silent streams keep their connections
    #[schemars(extend("default" = default::SERVE_SEND_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(crate) send_timeout: Option<Millis>,

    /// The directory in which commands work: one for each conversation (`perConversation`), one for each tenant (`perTenant`), or an absolute path, which all requests share
    #[schemars(extend("default" = "perConversation"))]
    pub(crate) workspace: Option<String>,

    /// The maximum size of a workspace together with its `/tmp`; a response that exceeds it fails. The limit does not apply if `workspace` is a path
    #[schemars(range(min = 1), extend("default" = default::WORKSPACE_BYTES_MAX, "x-unit" = "bytes"))]
    pub(crate) max_workspace_bytes: Option<u64>,

    /// How long haft keeps a workspace after its last use. The key has no effect if `workspace` is a path
    #[schemars(extend("default" = default::WORKSPACE_KEEP_MS, "x-unit" = "milliseconds"))]
    pub(crate) workspace_keep: Option<Millis>,

    /// The limits for the stored responses, conversations and event logs of each tenant; haft removes the oldest ones first
    pub(crate) retention: Option<RawRetention>,

    /// The maximum disk space of a tenant: stored responses, conversations, events, sessions, tool outputs and workspaces; above it haft refuses new runs of the tenant
    #[schemars(range(min = 1), extend("default" = default::TENANT_BYTES_MAX, "x-unit" = "bytes"))]
    pub(crate) max_tenant_bytes: Option<u64>,

    /// The share of the disk that must be free, in percent; below it haft refuses new runs and finishes those in progress
    #[schemars(range(max = 100), extend("default" = default::FREE_DISK_PERCENT_MIN))]
    pub(crate) min_free_disk_percent: Option<u64>,

    /// The time in which clients can answer an approval request; after it, haft denies the call and ends the run
    #[schemars(extend("default" = default::SERVE_APPROVAL_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(crate) approval_timeout: Option<Millis>,

    /// The receiver of a webhook for each new approval request
    pub(crate) approval_webhook: Option<RawWebhook>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawRetention {
    /// How long haft keeps a response or conversation after its last change
    #[schemars(extend("default" = default::RETENTION_KEEP_MS, "x-unit" = "milliseconds"))]
    pub(crate) keep: Option<Millis>,

    /// The maximum number of stored responses of a tenant
    #[schemars(extend("default" = default::RETENTION_RESPONSES_MAX))]
    pub(crate) max_responses: Option<u64>,

    /// The maximum size of the stored responses, conversations and event logs of a tenant
    #[schemars(extend("default" = default::RETENTION_BYTES_MAX, "x-unit" = "bytes"))]
    pub(crate) max_bytes: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawWebhook {
    /// The URL of the receiver, with https, or with http on a loopback address
    pub(crate) url: String,

    /// The secret for the signatures: `whsec_` and at least 24 bytes in base64
    pub(crate) secret: TemplateText,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawServeTls {
    /// The certificate chain in PEM format: the certificate of the server and those of its issuers
    pub(crate) certificate: PathText,

    /// The private key of the certificate, in PEM format
    pub(crate) key: PathText,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawTokenIssuer {
    /// The URL of the issuer, exactly as in the claim `iss`; haft finds the discovery document under this URL
    pub(crate) issuer: String,

    /// The values of the claim `aud` that haft accepts, in addition to `publicUrl`
    pub(crate) audience: Option<Vec<String>>,

    /// The URL of the issuer's keys (JWKS); by default the URL in the discovery document
    pub(crate) jwks_url: Option<String>,

    /// The tenant of all subjects of this issuer; by default `default`
    pub(crate) tenant: Option<String>,

    /// The claim that contains the tenant, instead of `tenant`; an issuer with this key must be the only issuer
    pub(crate) tenant_claim: Option<String>,

    /// The claim that contains the subject; by default `sub`
    pub(crate) subject_claim: Option<String>,

    /// The permissions for each scope of a token (in the claim `scope` or `scp`)
    pub(crate) scopes: Option<BTreeMap<String, Vec<RawKeyScope>>>,

    /// The permissions for each role of a subject (in the claim `rolesClaim`)
    pub(crate) roles: Option<BTreeMap<String, Vec<RawKeyScope>>>,

    /// The claim that lists the roles; `a.b` means the claim `b` inside the claim `a`. By default `roles`
    pub(crate) roles_claim: Option<String>,

    /// The limits for each subject
    pub(crate) limits: Option<RawKeyLimits>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawKeyLimits {
    /// The maximum number of requests per minute
    pub(crate) requests_per_minute: Option<u32>,

    /// The maximum number of model tokens per minute
    pub(crate) tokens_per_minute: Option<u64>,

    /// The maximum number of responses in progress at the same time
    pub(crate) concurrent_responses: Option<u32>,

    /// The maximum cost of models in a month, in US dollars
    pub(crate) usd_per_month: Option<u32>,
}

words! {
    pub(crate) RawKeyScope for KeyScope {
        "api" Api, "builtin-tools" BuiltinTools, "approvals" Approvals, "admin" Admin,
    }
}
