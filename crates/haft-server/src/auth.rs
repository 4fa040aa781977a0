//! Finds the caller of a request, by its API key or its access token.

use std::io;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use haft_core::digest::Digest;
use haft_core::principal::Principal;
use haft_store::api_keys::{
    ApiKeyRecord, ApiKeyStore, ApiKeys, KeyFileVersion, KeyLimits, KeyLookup, KeyScope,
};
use http::request::Parts;
use http::{HeaderMap, header};

use crate::error::{ApiError, ApiErrorKind};
use crate::failed_logins::ClientAddress;
use crate::observe::{PrincipalSlot, RequestPrincipal};
use crate::protected_resource::ProtectedResource;
use crate::rate_limit;
use crate::server::ServerState;
use crate::settings::AuthMode;
use crate::storage_limits::RETRY_AFTER_S as STORE_RETRY_S;
use crate::token::{CREDENTIAL_PREFIX, TokenError, TokenSubject};

/// The identity and the permissions behind a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) principal: Principal,
    pub(crate) scopes: Vec<KeyScope>,
    pub(crate) limits: KeyLimits,
    /// The time at which the key or token expires, in milliseconds since 1970.
    pub(crate) expires_ms: Option<u64>,
    /// The digest of the presented API key; `None` for a caller without one. A rotation keeps the id of the key, so only
    /// the digest shows whether the secret of an open connection is still valid.
    pub(crate) key_digest: Option<Digest>,
}

impl Caller {
    /// Returns an error if the caller does not have the scope.
    pub(crate) fn require(&self, scope: KeyScope) -> Result<(), ApiError> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        let message = format!("this key does not have the scope `{scope}`");
        Err(ApiError::new(ApiErrorKind::Forbidden, message).with_code("insufficient_scope"))
    }
}

/// Lets handlers behind [`check`] take the caller as a parameter.
impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let found = parts.extensions.get::<Caller>().cloned();
        found.ok_or_else(|| {
            ApiError::new(
                ApiErrorKind::ServerError,
                "the server found no caller for this request; this is a bug in haft",
            )
        })
    }
}

/// Refuses a request without a valid key or token. Attaches the caller to every other request, and checks the limits of
/// its key.
pub(crate) async fn check(
    State((state, resource)): State<(Arc<ServerState>, ProtectedResource)>,
    request: Request,
    next: Next,
) -> Response {
    let caller = match state.settings.auth {
        AuthMode::Keys => caller(&state, request.headers(), resource).await,
        AuthMode::NoAuth => Ok(Caller {
            principal: Principal::local(),
            scopes: vec![KeyScope::Api],
            limits: KeyLimits::default(),
            expires_ms: None,
            key_digest: None,
        }),
    };
    let required = RequiredAccess { resource, scope: KeyScope::Api };
    let limited = |request| rate_limit::check(&state, request, |request| next.run(request));
    admit(&state, required, caller, request, limited).await
}

/// Refuses a request without a valid key or token that has the scope `admin`. A server that requires no keys refuses
/// every request, because it cannot tell the operator from other callers.
pub(crate) async fn check_admin(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    let required = RequiredAccess { resource: ProtectedResource::Api, scope: KeyScope::Admin };
    let caller = match state.settings.auth {
        AuthMode::Keys => caller(&state, request.headers(), required.resource).await,
        AuthMode::NoAuth => {
            let message = "this server requires no API keys, so it offers no metrics";
            Err(ApiError::new(ApiErrorKind::Forbidden, message))
        }
    };
    admit(&state, required, caller, request, |request| next.run(request)).await
}

/// The access that a route requires.
#[derive(Debug, Clone, Copy)]
struct RequiredAccess {
    resource: ProtectedResource,
    scope: KeyScope,
}

/// Passes on a request whose caller has the required scope. Counts a failed login against the limit of its address.
async fn admit<F: Future<Output = Response>>(
    state: &ServerState,
    required: RequiredAccess,
    caller: Result<Caller, ApiError>,
    mut request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let RequiredAccess { resource, scope } = required;
    let caller = match caller {
        Ok(caller) => caller,
        Err(error) => {
            let address = request.extensions().get::<ClientAddress>().copied();
            return refusal(state, resource, limited(state, address, error));
        }
    };
    let principal = RequestPrincipal(caller.principal.clone());
    if let Some(slot) = request.extensions().get::<PrincipalSlot>() {
        slot.fill(&caller.principal);
    }
    let mut response = match caller.require(scope) {
        Ok(()) => {
            request.extensions_mut().insert(caller);
            next(request).await
        }
        Err(error) => refusal(state, resource, error),
    };
    response.extensions_mut().insert(principal);
    response
}

/// Returns the error response, with a `WWW-Authenticate` header that tells the client where to get a token.
fn refusal(state: &ServerState, resource: ProtectedResource, error: ApiError) -> Response {
    let code = error.code;
    let mut response = error.into_response();
    let status = response.status();
    if let Some(challenge) = state.tokens.with_settings(|settings| resource.challenge(settings, status, code))
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Returns the caller of a request. A credential with two dots is an access token, and every other credential is an API
/// key. Each is checked in one way only, so that a refused token is never checked as a key.
pub(crate) async fn caller(
    state: &ServerState,
    headers: &HeaderMap,
    resource: ProtectedResource,
) -> Result<Caller, ApiError> {
    caller_with(state, bearer(headers)?, resource).await
}

/// Returns the caller with this credential.
pub(crate) async fn caller_with(
    state: &ServerState,
    credential: &str,
    resource: ProtectedResource,
) -> Result<Caller, ApiError> {
    if !state.tokens.reads(credential) {
        return state.keys.caller(credential, now_ms());
    }
    match state.tokens.subject(credential, resource, now_ms()).await {
        Ok(TokenSubject { principal, scopes, limits, expires_ms }) => {
            Ok(Caller { principal, scopes, limits, expires_ms: Some(expires_ms), key_digest: None })
        }
        Err(TokenError::Invalid(message)) => {
            Err(ApiError::new(ApiErrorKind::Unauthorized, message).with_code("invalid_token"))
        }
        Err(TokenError::KeysUnavailable { retry_after_s }) => {
            let message = "the server cannot get the issuer keys to check the access token; try again later";
            Err(ApiError::new(ApiErrorKind::Unavailable, message).after(retry_after_s))
        }
    }
}

/// Checks the caller of a connection again before its next message: while the connection stayed open, the key may have
/// been revoked, rotated or changed, or the token may have expired.
pub(crate) fn renewed(state: &ServerState, caller: &Caller) -> Result<Caller, ApiError> {
    let now_ms = now_ms();
    if caller.expires_ms.is_some_and(|expires| expires <= now_ms) {
        return Err(unauthorized("the key or token of this connection has expired"));
    }
    let id = caller.principal.credential_id();
    if state.settings.auth == AuthMode::NoAuth || id.starts_with(CREDENTIAL_PREFIX) {
        return Ok(caller.clone());
    }
    state.keys.renewed(caller, now_ms)
}

fn caller_of(key: &ApiKeyRecord, digest: Digest) -> Caller {
    Caller {
        principal: key.principal(),
        scopes: key.scopes.clone(),
        limits: key.limits,
        expires_ms: key.expires_ms,
        key_digest: Some(digest),
    }
}

/// Counts a failed login. If the client address has failed too often, replaces the error with 429.
pub(crate) fn limited(state: &ServerState, address: Option<ClientAddress>, error: ApiError) -> ApiError {
    if error.kind != ApiErrorKind::Unauthorized {
        return error;
    }
    state.metrics.failed_login();
    let wait = address.and_then(|address| state.failed_logins.count(address.0, Instant::now()));
    wait.map_or(error, |wait| {
        let message = "too many requests without a valid key came from this IP address; try again later";
        ApiError::new(ApiErrorKind::TooManyRequests, message).after(wait.as_secs() + 1)
    })
}

/// The API keys from the store. They are read again when their file changes, so that a revoked key is refused at once.
#[derive(Debug)]
pub(crate) struct KeyRing {
    store: ApiKeyStore,
    loaded: RwLock<LoadedKeys>,
}

#[derive(Debug, Default)]
struct LoadedKeys {
    version: Option<KeyFileVersion>,
    keys: Arc<ApiKeys>,
}

impl KeyRing {
    pub(crate) fn open(store: ApiKeyStore) -> io::Result<Self> {
        let ring = Self { store, loaded: RwLock::default() };
        ring.keys()?;
        Ok(ring)
    }

    fn caller(&self, secret: &str, now_ms: u64) -> Result<Caller, ApiError> {
        let (keys, digest) = (self.readable()?, Digest::of_text(secret));
        match keys.find_digest(digest, now_ms) {
            KeyLookup::Valid(key) => Ok(caller_of(key, digest)),
            KeyLookup::Expired(key) => Err(unauthorized(format!("the key {}… has expired", key.prefix))),
            KeyLookup::Unknown => Err(unauthorized("the API key is not valid")),
        }
    }

    fn renewed(&self, caller: &Caller, now_ms: u64) -> Result<Caller, ApiError> {
        let keys = self.readable()?;
        let lookup = caller.key_digest.map(|digest| (keys.find_digest(digest, now_ms), digest));
        match lookup {
            Some((KeyLookup::Valid(key), digest)) => Ok(caller_of(key, digest)),
            Some((KeyLookup::Expired(_), _)) => {
                Err(unauthorized("the API key of this connection has expired; connect with a valid key"))
            }
            Some((KeyLookup::Unknown, _)) | None => {
                let message =
                    "the API key of this connection was revoked or replaced; connect with a valid key";
                Err(unauthorized(message))
            }
        }
    }

    fn readable(&self) -> Result<Arc<ApiKeys>, ApiError> {
        self.keys().map_err(|error| {
            // Without the file, the server cannot know which keys are valid.
            ApiError::new(
                ApiErrorKind::Unavailable,
                format!("the server cannot read its API keys: {error}; ask its operator"),
            )
            .after(STORE_RETRY_S)
        })
    }

    fn keys(&self) -> io::Result<Arc<ApiKeys>> {
        let version = self.store.version();
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        if loaded.version == version {
            return Ok(Arc::clone(&loaded.keys));
        }
        drop(loaded);
        let keys = Arc::new(self.store.load()?);
        let loaded = LoadedKeys { version, keys: Arc::clone(&keys) };
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(keys)
    }
}

/// Returns the key in the header `Authorization`. A key in the URL is not read, because URLs end up in logs.
fn bearer(headers: &HeaderMap) -> Result<&str, ApiError> {
    let mut written = headers.get_all(header::AUTHORIZATION).iter();
    let value = match (written.next(), written.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    };
    let token = value.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    token.filter(|token| !token.is_empty()).ok_or_else(|| {
        unauthorized("send an API key of this server in the header `Authorization: Bearer KEY`")
    })
}

fn unauthorized(message: impl Into<String>) -> ApiError {
    ApiError::new(ApiErrorKind::Unauthorized, message).with_code("invalid_api_key")
}

pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use haft_core::home::Home;
    use haft_store::api_keys::NewApiKey;
    use http::HeaderValue;

    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn key_is_accepted_until_it_is_revoked_or_expires() {
        let directory = tempfile::tempdir().unwrap();
        let store = ApiKeyStore::of(&Home::at(directory.path()));
        let ring = KeyRing::open(store.clone()).unwrap();
        let new = NewApiKey {
            name: "n".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            scopes: vec![KeyScope::Api],
            expires_ms: Some(100),
            limits: KeyLimits::default(),
        };
        let (record, secret) = store.create(new, 1).unwrap();
        let secret = secret.expose();
        assert_eq!(ring.caller(secret, 99).unwrap().principal, record.principal());
        assert_eq!(ring.caller(secret, 100).unwrap_err().kind, ApiErrorKind::Unauthorized);
        store.revoke(&[record.id]).unwrap();
        assert_eq!(ring.caller(secret, 99).unwrap_err().kind, ApiErrorKind::Unauthorized);
    }

    #[test]
    fn open_connection_loses_access_when_its_secret_is_rotated_away() {
        let directory = tempfile::tempdir().unwrap();
        let store = ApiKeyStore::of(&Home::at(directory.path()));
        let ring = KeyRing::open(store.clone()).unwrap();
        let new = NewApiKey {
            name: "n".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            scopes: vec![KeyScope::Api],
            expires_ms: None,
            limits: KeyLimits::default(),
        };
        let (record, secret) = store.create(new, 1).unwrap();
        let first = ring.caller(secret.expose(), 5).unwrap();
        let (_, secret) = store.rotate(&record.id, 10).unwrap().unwrap();
        assert_eq!(ring.renewed(&first, 9).unwrap(), first, "the old secret is valid during the overlap");
        assert_eq!(ring.renewed(&first, 10).unwrap_err().kind, ApiErrorKind::Unauthorized);
        let second = ring.caller(secret.expose(), 10).unwrap();
        store.rotate(&record.id, 0).unwrap().unwrap();
        assert_eq!(ring.renewed(&first, 9).unwrap_err().kind, ApiErrorKind::Unauthorized);
        assert_eq!(ring.renewed(&second, 10).unwrap_err().kind, ApiErrorKind::Unauthorized);
    }

    #[test]
    fn unreadable_key_store_returns_unavailable_with_retry_after() {
        let directory = tempfile::tempdir().unwrap();
        let store = ApiKeyStore::of(&Home::at(directory.path()));
        let ring = KeyRing::open(store.clone()).unwrap();
        std::fs::create_dir_all(directory.path().join("data")).unwrap();
        let new = NewApiKey {
            name: "n".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            scopes: Vec::new(),
            expires_ms: None,
            limits: KeyLimits::default(),
        };
        store.create(new, 1).unwrap();
        let files =
            std::fs::read_dir(directory.path().join("data")).unwrap().map(|entry| entry.unwrap().path());
        for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
            std::fs::write(file, "not JSON").unwrap();
        }
        let error = ring.caller("haft_1", 1).unwrap_err();
        assert_eq!((error.kind, error.retry_after_s), (ApiErrorKind::Unavailable, Some(STORE_RETRY_S)));
    }

    #[test]
    fn only_the_bearer_scheme_is_accepted() {
        let mut two = headers("Bearer a");
        two.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        for wrong in [HeaderMap::new(), headers("Basic abc"), headers("Bearer "), headers("haft_1"), two] {
            assert_eq!(bearer(&wrong).unwrap_err().kind, ApiErrorKind::Unauthorized, "{wrong:?}");
        }
        assert_eq!(bearer(&headers("bearer x ")), Ok("x"));
    }

    #[test]
    fn caller_without_the_required_scope_is_refused() {
        let caller = Caller {
            principal: Principal::local(),
            scopes: vec![KeyScope::Api],
            limits: KeyLimits::default(),
            expires_ms: None,
            key_digest: None,
        };
        assert!(caller.require(KeyScope::Api).is_ok());
        assert_eq!(caller.require(KeyScope::Admin).unwrap_err().kind, ApiErrorKind::Forbidden);
    }
}
