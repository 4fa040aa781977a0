//! Fetches and caches the public keys of one issuer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haft_config::resolved::{TokenIssuerSettings, is_loopback};
use haft_tools::http_client;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode};
use serde::Deserialize;
use tokio::time::Instant;
use url::Url;

use super::jwks::{self, VerificationKey};
use super::jws::SignedToken;
use crate::metrics::Metrics;

/// The age at which the keys are fetched again. During the fetch, requests use the cached keys.
const REFRESH_AFTER: Duration = Duration::from_mins(10);

/// The maximum age of cached keys. An issuer that cannot be reached for this long may have revoked them.
const AGE_MAX: Duration = Duration::from_hours(1);

/// The minimum time between two fetches. Tokens with invented key ids cannot make the server send more requests than
/// this.
const FETCH_PAUSE: Duration = Duration::from_secs(10);

/// The timeout of one request to the issuer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of a document from an issuer, in bytes.
const DOCUMENT_BYTES_MAX: usize = 256 << 10;

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    issuer: String,
    jwks_url: Option<Url>,
    client: Option<Client>,
    metrics: Metrics,
    cache: Mutex<KeyCache>,
    /// The lock that is held during a fetch, so that only one fetch runs at a time.
    fetching: tokio::sync::Mutex<()>,
}

/// The error that the issuer's keys are missing or too old.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeysUnavailable {
    pub(super) retry_after: Duration,
}

#[derive(Debug, Default, Clone)]
struct KeyCache {
    keys: Arc<[VerificationKey]>,
    /// The time at which the keys were fetched.
    fetched: Option<Instant>,
    /// The time at which the last fetch began, whether or not it succeeded.
    attempted: Option<Instant>,
}

/// The urgency of a fetch.
#[derive(Debug, PartialEq, Eq)]
enum FetchNeed {
    None,
    /// The keys may still be used, so the fetch runs in the background.
    InBackground,
    /// There is no usable key for this token, so the request waits for the fetch.
    BeforeUse,
}

impl IssuerKeys {
    pub(super) fn new(settings: &TokenIssuerSettings, metrics: Metrics) -> Self {
        let builder = http_client::builder().redirect(Policy::none()).timeout(FETCH_TIMEOUT);
        Self {
            issuer: settings.issuer.clone(),
            jwks_url: settings.jwks_url.clone(),
            client: builder.build().ok(),
            metrics,
            cache: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// Returns true if this value holds the keys of an issuer with these settings.
    pub(super) fn is_for(&self, settings: &TokenIssuerSettings) -> bool {
        (&self.issuer, &self.jwks_url) == (&settings.issuer, &settings.jwks_url)
    }

    /// Returns the keys. If none of them fits the token, fetches the keys first.
    pub(super) async fn for_token(
        self: &Arc<Self>,
        token: &SignedToken<'_>,
    ) -> Result<Arc<[VerificationKey]>, KeysUnavailable> {
        let has_key = |cache: &KeyCache| cache.keys.iter().any(|key| token.fits(key));
        let need = {
            let cache = self.cache();
            cache.need(has_key(&cache), Instant::now())
        };
        match need {
            FetchNeed::None => {}
            FetchNeed::InBackground => {
                let keys = Arc::clone(self);
                tokio::spawn(async move { keys.refresh().await });
            }
            FetchNeed::BeforeUse => self.refresh().await,
        }
        self.cache().usable(Instant::now())
    }

    /// Fetches the keys, unless the last fetch was less than [`FETCH_PAUSE`] ago. If the fetch fails, keeps the old
    /// keys.
    async fn refresh(&self) {
        let _one_at_a_time = self.fetching.lock().await;
        if !self.cache().begin_attempt(Instant::now()) {
            return;
        }
        let fetched = self.fetch().await;
        self.metrics.jwks_fetch(if fetched.is_ok() { "ok" } else { "failed" });
        if let Ok(keys) = fetched {
            let mut cache = self.cache();
            cache.keys = keys.into();
            cache.fetched = Some(Instant::now());
        }
    }

    async fn fetch(&self) -> Result<Vec<VerificationKey>, String> {
        let url = match &self.jwks_url {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let response = self.get(&url).await?;
        jwks::parse(&document(response).await?)
    }

    /// Asks the issuer for the URL of its keys: with `OpenID` Connect, or else with RFC 8414.
    async fn discover(&self) -> Result<Url, String> {
        #[derive(Deserialize)]
        struct IssuerMetadata {
            issuer: String,
            jwks_uri: Url,
        }
        let issuer = Url::parse(&self.issuer).map_err(|error| error.to_string())?;
        let [openid, oauth] = discovery_urls(&issuer);
        let mut response = self.get(&openid).await?;
        if response.status() == StatusCode::NOT_FOUND {
            response = self.get(&oauth).await?;
        }
        let found: IssuerMetadata =
            serde_json::from_slice(&document(response).await?).map_err(|error| error.to_string())?;
        // OpenID Connect Discovery, section 4.3: otherwise another issuer could offer its keys as the keys of this one.
        if found.issuer != self.issuer {
            return Err("the discovery document of the token issuer names another issuer".into());
        }
        let is_safe =
            found.jwks_uri.scheme() == "https" || (is_loopback(&issuer) && is_loopback(&found.jwks_uri));
        if is_safe { Ok(found.jwks_uri) } else { Err("the URL of the issuer keys does not use https".into()) }
    }

    async fn get(&self, url: &Url) -> Result<Response, String> {
        let client = self.client.as_ref().ok_or("the server could not create an HTTP client")?;
        client.get(url.clone()).send().await.map_err(|error| error.to_string())
    }

    fn cache(&self) -> MutexGuard<'_, KeyCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn discovery_urls(issuer: &Url) -> [Url; 2] {
    let path = issuer.path().trim_end_matches('/').to_owned();
    let at = |path: String| {
        let mut url = issuer.clone();
        url.set_path(&path);
        url
    };
    [
        at(format!("{path}/.well-known/openid-configuration")),
        at(format!("/.well-known/oauth-authorization-server{path}")),
    ]
}

async fn document(mut response: Response) -> Result<Vec<u8>, String> {
    if response.status() != StatusCode::OK {
        return Err(format!("the token issuer answered with status {}", response.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(format!("the document of the token issuer has more than {DOCUMENT_BYTES_MAX} bytes"));
        }
    }
    Ok(bytes)
}

impl KeyCache {
    fn need(&self, has_key: bool, now: Instant) -> FetchNeed {
        let is_older = |limit| self.fetched.is_none_or(|fetched| now - fetched >= limit);
        match has_key && !is_older(AGE_MAX) {
            false => FetchNeed::BeforeUse,
            true if is_older(REFRESH_AFTER) && self.may_attempt(now) => FetchNeed::InBackground,
            true => FetchNeed::None,
        }
    }

    fn may_attempt(&self, now: Instant) -> bool {
        self.attempted.is_none_or(|attempted| now - attempted >= FETCH_PAUSE)
    }

    fn begin_attempt(&mut self, now: Instant) -> bool {
        let may = self.may_attempt(now);
        if may {
            self.attempted = Some(now);
        }
        may
    }

    fn usable(&self, now: Instant) -> Result<Arc<[VerificationKey]>, KeysUnavailable> {
        if self.fetched.is_some_and(|fetched| now - fetched < AGE_MAX) {
            return Ok(Arc::clone(&self.keys));
        }
        let passed = self.attempted.map_or(Duration::ZERO, |attempted| now - attempted);
        Err(KeysUnavailable { retry_after: FETCH_PAUSE.saturating_sub(passed) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use axum::Router;
    use axum::routing::get;
    use haft_config::resolved::TokenTenant;
    use haft_core::settings::server::KeyLimits;

    use super::*;

    #[test]
    fn issuer_keys_are_fetched_refreshed_and_dropped_by_age() {
        let start = Instant::now();
        let after = |time: Duration| start + time;
        let mut cache = KeyCache::default();
        assert_eq!(cache.need(false, start), FetchNeed::BeforeUse);
        assert_eq!(cache.usable(start).unwrap_err(), KeysUnavailable { retry_after: FETCH_PAUSE });
        assert!(cache.begin_attempt(start) && !cache.begin_attempt(after(Duration::from_secs(9))));
        assert_eq!(
            cache.usable(after(Duration::from_secs(4))).unwrap_err().retry_after,
            Duration::from_secs(6)
        );
        cache.fetched = Some(start);
        assert_eq!(cache.need(true, after(Duration::from_secs(599))), FetchNeed::None);
        assert_eq!(cache.need(false, after(Duration::from_secs(599))), FetchNeed::BeforeUse);
        assert_eq!(cache.need(true, after(REFRESH_AFTER)), FetchNeed::InBackground);
        assert!(cache.begin_attempt(after(REFRESH_AFTER)));
        assert_eq!(cache.need(true, after(REFRESH_AFTER + Duration::from_secs(1))), FetchNeed::None);
        assert!(cache.usable(after(Duration::from_secs(3_599))).is_ok());
        assert_eq!(cache.need(true, after(AGE_MAX)), FetchNeed::BeforeUse);
        assert!(cache.usable(after(AGE_MAX)).is_err());
    }

    /// Asks a server for the URL of its keys. The server answers every path with this status and body, in which
    /// `ISSUER` is its own address.
    async fn discovered(status: StatusCode, body: &str) -> Result<String, String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let (body, moved) = (body.replace("ISSUER", &issuer), body.replace("ISSUER", &issuer));
        let routes = Router::new()
            .route("/moved", get(|| async { moved }))
            .fallback(move || async move { (status, [("location", "/moved")], body) });
        let server = tokio::spawn(async { axum::serve(listener, routes).await });
        let settings = TokenIssuerSettings {
            issuer,
            audience: Vec::new(),
            jwks_url: None,
            tenant: TokenTenant::Fixed("acme".into()),
            subject_claim: "sub".into(),
            scopes: BTreeMap::new(),
            roles: BTreeMap::new(),
            roles_claim: "roles".into(),
            limits: KeyLimits::default(),
        };
        let found = IssuerKeys::new(&settings, Metrics::default()).discover().await;
        server.abort();
        found.map(String::from)
    }

    #[tokio::test]
    async fn discovery_refuses_other_issuers_and_redirects_and_keys_without_tls() {
        let own = r#"{"issuer": "ISSUER", "jwks_uri": "https://keys.example/set"}"#;
        assert_eq!(discovered(StatusCode::OK, own).await.unwrap(), "https://keys.example/set");
        let check = async |status: StatusCode, body: &str, expected: &str| {
            let error = discovered(status, body).await.unwrap_err();
            assert!(error.contains(expected), "{body:.80}: {error}");
        };
        let other = own.replace("ISSUER", "https://login.example");
        check(StatusCode::OK, &other, "another issuer").await;
        check(StatusCode::OK, &own.replace("https://keys", "http://keys"), "does not use https").await;
        check(StatusCode::FOUND, own, "302").await;
        let huge = format!("{own}{}", " ".repeat(DOCUMENT_BYTES_MAX));
        check(StatusCode::OK, &huge, "more than 262144 bytes").await;
    }

    #[test]
    fn discovery_tries_openid_connect_and_rfc_8414() {
        let check = |issuer: &str, expected: [&str; 2]| {
            let found = discovery_urls(&Url::parse(issuer).unwrap());
            assert_eq!(found.map(String::from), expected);
        };
        check(
            "https://a.example/realms/x/",
            [
                "https://a.example/realms/x/.well-known/openid-configuration",
                "https://a.example/.well-known/oauth-authorization-server/realms/x",
            ],
        );
        check(
            "https://a.example",
            [
                "https://a.example/.well-known/openid-configuration",
                "https://a.example/.well-known/oauth-authorization-server",
            ],
        );
    }
}
