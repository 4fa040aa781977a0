//! The server as an OAuth protected resource: its metadata (RFC 9728), and the challenges that lead clients to it.
//!
//! The challenge tells a client without a token where the metadata is, and the metadata names the issuer of tokens.
//! Both exist only if the operator configured an issuer and the public address.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use haft_config::resolved::{ServeSettings, TokenIssuerSettings};
use haft_core::settings::server::KeyScope;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::error::{ApiError, ApiErrorKind};
use crate::mcp;
use crate::server::ServerState;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The parts of the server for which an issuer can issue tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtectedResource {
    /// The whole server, and the routes of the API.
    Api,
    /// The MCP endpoint. Other routes do not accept a token for this endpoint.
    Mcp,
}

impl ProtectedResource {
    fn path(self) -> &'static str {
        match self {
            Self::Api => "",
            Self::Mcp => mcp::http::PATH,
        }
    }

    /// Returns the URL that names the resource, which is also the audience of its tokens.
    pub(crate) fn url(self, settings: &ServeSettings) -> Option<String> {
        Some(format!("{}{}", settings.public_url.as_ref()?, self.path()))
    }

    fn metadata_url(self, settings: &ServeSettings) -> Option<String> {
        Some(format!("{}{WELL_KNOWN}{}", settings.public_url.as_ref()?, self.path()))
    }

    fn metadata(self, settings: &ServeSettings) -> Option<Value> {
        let issuers: Vec<&str> = settings.issuers.iter().map(|issuer| issuer.issuer.as_str()).collect();
        let scopes: BTreeSet<&String> =
            settings.issuers.iter().flat_map(|issuer| issuer.scopes.keys()).collect();
        let resource = self.url(settings).filter(|_| !issuers.is_empty())?;
        Some(json!({
            "resource": resource,
            "authorization_servers": issuers,
            "scopes_supported": scopes,
            "bearer_methods_supported": ["header"],
            "resource_name": "haft",
        }))
    }

    /// Returns the header `WWW-Authenticate` of a refused request; `None` if no issuer is configured.
    pub(crate) fn challenge(
        self,
        settings: &ServeSettings,
        status: StatusCode,
        code: Option<&str>,
    ) -> Option<HeaderValue> {
        let metadata = self.metadata_url(settings).filter(|_| !settings.issuers.is_empty())?;
        let error = match (status, code) {
            // RFC 6750, section 3.1: a request without a token gets no error code.
            (StatusCode::UNAUTHORIZED, Some("invalid_token")) => "error=\"invalid_token\", ",
            (StatusCode::UNAUTHORIZED, _) => "",
            (StatusCode::FORBIDDEN, Some("insufficient_scope")) => "error=\"insufficient_scope\", ",
            _ => return None,
        };
        let scopes: BTreeSet<&str> = settings.issuers.iter().filter_map(smallest_scope).collect();
        let scopes: Vec<&str> = scopes.into_iter().collect();
        let scope = match scopes.join(" ") {
            names if names.is_empty() => String::new(),
            names => format!(", scope=\"{names}\""),
        };
        HeaderValue::from_str(&format!("Bearer {error}resource_metadata=\"{metadata}\"{scope}")).ok()
    }
}

/// Returns the scope that permits the API and as few other actions as possible.
fn smallest_scope(issuer: &TokenIssuerSettings) -> Option<&str> {
    let permitting = issuer.scopes.iter().filter(|(_, permits)| permits.contains(&KeyScope::Api));
    permitting.min_by_key(|(_, permits)| permits.len()).map(|(name, _)| name.as_str())
}

/// Returns the routes of the metadata of both resources. They need no token, because clients without a token read the
/// metadata.
pub(crate) fn routes() -> Router<Arc<ServerState>> {
    let document = |resource: ProtectedResource| {
        get(move |State(state): State<Arc<ServerState>>| async move {
            let metadata = state.tokens.with_settings(|settings| resource.metadata(settings));
            let missing = || ApiError::new(ApiErrorKind::NotFound, "this server accepts no access tokens");
            metadata.map(Json).ok_or_else(missing)
        })
    };
    let of_mcp = format!("{WELL_KNOWN}{}", ProtectedResource::Mcp.path());
    Router::new()
        .route(WELL_KNOWN, document(ProtectedResource::Api))
        .route(&of_mcp, document(ProtectedResource::Mcp))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use haft_config::resolved::TokenTenant;
    use haft_core::settings::server::KeyLimits;

    use super::*;

    fn settings() -> ServeSettings {
        let scope = |name: &str, scopes: &[KeyScope]| (name.to_owned(), scopes.to_vec());
        let issuer = TokenIssuerSettings {
            issuer: "https://login.example".into(),
            audience: vec!["https://haft.example".into()],
            jwks_url: None,
            tenant: TokenTenant::Fixed("default".into()),
            subject_claim: "sub".into(),
            scopes: BTreeMap::from([
                scope("everything", &[KeyScope::Api, KeyScope::Admin]),
                scope("use", &[KeyScope::Api]),
                scope("watch", &[KeyScope::Admin]),
            ]),
            roles: BTreeMap::new(),
            roles_claim: "roles".into(),
            limits: KeyLimits::default(),
        };
        ServeSettings {
            public_url: Some("https://haft.example".into()),
            issuers: vec![issuer],
            ..ServeSettings::default()
        }
    }

    #[test]
    fn challenge_contains_metadata_url_smallest_scope_and_reason() {
        let check = |resource: ProtectedResource, status: u16, code: Option<&str>, expected: Option<&str>| {
            let status = StatusCode::from_u16(status).unwrap();
            let found = resource.challenge(&settings(), status, code);
            assert_eq!(found.as_ref().map(|value| value.to_str().unwrap()), expected);
        };
        let mcp = r#"resource_metadata="https://haft.example/.well-known/oauth-protected-resource/mcp", scope="use""#;
        check(ProtectedResource::Mcp, 401, Some("invalid_api_key"), Some(&format!("Bearer {mcp}")));
        let invalid = format!("Bearer error=\"invalid_token\", {mcp}");
        check(ProtectedResource::Mcp, 401, Some("invalid_token"), Some(&invalid));
        let scope = format!("Bearer error=\"insufficient_scope\", {mcp}");
        check(ProtectedResource::Mcp, 403, Some("insufficient_scope"), Some(&scope));
        check(ProtectedResource::Mcp, 403, None, None);
        check(ProtectedResource::Mcp, 429, None, None);
        let api = r#"Bearer resource_metadata="https://haft.example/.well-known/oauth-protected-resource", scope="use""#;
        check(ProtectedResource::Api, 401, None, Some(api));
    }

    #[test]
    fn metadata_exists_only_with_an_issuer_and_a_public_address() {
        let mut without = settings();
        without.public_url = None;
        let mut alone = settings();
        alone.issuers.clear();
        for settings in [without, alone] {
            assert_eq!(ProtectedResource::Mcp.metadata(&settings), None);
            assert_eq!(ProtectedResource::Mcp.challenge(&settings, StatusCode::UNAUTHORIZED, None), None);
        }
    }
}
