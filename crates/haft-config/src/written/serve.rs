//! The keys of `haft serve`, as written.

use std::collections::BTreeMap;

use haft_core::settings::server::KeyScope;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::value_format::words;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawServe {
    /// The address under which clients reach the server, such as `https://haft.example.com`
    pub(crate) public_url: Option<String>,

    /// Issuers of access tokens (`OpenID` Connect, OAuth) that count beside API keys
    #[schemars(extend("default" = []))]
    pub(crate) issuers: Option<Vec<RawTokenIssuer>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawTokenIssuer {
    /// The issuer, exactly as in the claim `iss`; also the address of its discovery document
    pub(crate) issuer: String,

    /// Values of the claim `aud` that name this server, in addition to `publicUrl`
    pub(crate) audience: Option<Vec<String>>,

    /// The address of the issuer's keys (JWKS); by default the discovery document names it
    pub(crate) jwks_url: Option<String>,

    /// The tenant of all subjects of this issuer [default: `default`]
    pub(crate) tenant: Option<String>,

    /// The claim that names the tenant, instead of `tenant`; then this must be the only issuer
    pub(crate) tenant_claim: Option<String>,

    /// The claim that names the subject [default: `sub`]
    pub(crate) subject_claim: Option<String>,

    /// The permissions that each scope of a token (claim `scope` or `scp`) gives
    pub(crate) scopes: Option<BTreeMap<String, Vec<RawKeyScope>>>,

    /// The permissions that each role of a subject (claim `rolesClaim`) gives
    pub(crate) roles: Option<BTreeMap<String, Vec<RawKeyScope>>>,

    /// The claim that lists roles; `a.b` is the claim `b` inside of `a` [default: `roles`]
    pub(crate) roles_claim: Option<String>,

    /// Limits of each subject
    pub(crate) limits: Option<RawKeyLimits>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct RawKeyLimits {
    /// The requests in a minute
    pub(crate) requests_per_minute: Option<u32>,

    /// The tokens of models in a minute
    pub(crate) tokens_per_minute: Option<u64>,

    /// The responses in progress at the same time
    pub(crate) concurrent_responses: Option<u32>,
}

words! {
    pub(crate) RawKeyScope for KeyScope {
        "api" Api, "builtin-tools" BuiltinTools, "approvals" Approvals, "admin" Admin,
    }
}
