//! Gets access tokens with the OAuth client credentials grant, and caches them until shortly before they expire.

use std::time::{Duration, Instant};

use haft_core::result::{ToolError, ToolErrorKind};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::body::RestBody;
use super::client::RestClient;
use super::credential::{Credential, add_header};
use super::encode;
use super::guard::AllowedHosts;
use super::request::RestRequest;
use haft_core::settings::method::Method;

/// The token endpoint, the client's credentials and the cached token.
#[derive(Debug)]
pub struct ClientCredentials {
    url: Url,
    scopes: Vec<String>,
    client_id: String,
    client_secret: SecretString,
    client: RestClient,
    cached: Mutex<Option<CachedAccessToken>>,
}

#[derive(Debug)]
struct CachedAccessToken {
    token: SecretString,
    until: Instant,
}

/// The response of the token endpoint.
#[derive(Deserialize)]
struct ClientCredentialsResponse {
    access_token: String,
    /// The lifetime in seconds; some servers write the number as a string.
    expires_in: Option<LenientSeconds>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum LenientSeconds {
    Number(f64),
    Text(String),
}

impl ClientCredentialsResponse {
    /// Returns the lifetime of the token. Treats an `expires_in` that is not a valid number as absent.
    fn life(&self) -> Duration {
        let seconds = match &self.expires_in {
            Some(LenientSeconds::Number(seconds)) => Some(*seconds),
            Some(LenientSeconds::Text(text)) => text.trim().parse().ok(),
            None => None,
        };
        let life = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        life.unwrap_or(LIFE_DEFAULT).min(LIFE_MAX)
    }
}

/// The time before its expiry at which haft stops using a token, because the token could expire while a request is in
/// transit.
const MARGIN: Duration = Duration::from_secs(30);

/// The lifetime of a token if the server states none.
const LIFE_DEFAULT: Duration = Duration::from_mins(5);

/// The maximum time for which a token is cached, even if the server states a longer lifetime.
const LIFE_MAX: Duration = Duration::from_hours(24);

const ANSWER_BYTES_MAX: usize = 64 * 1024;

impl ClientCredentials {
    pub fn new(
        url: Url,
        reach: AllowedHosts,
        client_id: String,
        client_secret: SecretString,
        scopes: Vec<String>,
    ) -> Self {
        Self {
            url,
            scopes,
            client_id,
            client_secret,
            client: RestClient::new(reach),
            cached: Mutex::new(None),
        }
    }

    /// Returns the id and the secret of the client.
    pub(super) fn identity(&self) -> (&str, &SecretString) {
        (&self.client_id, &self.client_secret)
    }

    /// Returns the cached token, or requests a new one. The lock makes concurrent calls share one request.
    pub(super) async fn token(&self) -> Result<SecretString, ToolError> {
        let mut cached = self.cached.lock().await;
        if let Some(cached) = cached.as_ref().filter(|cached| Instant::now() < cached.until) {
            return Ok(cached.token.clone());
        }
        let granted = self.ask().await?;
        let until = Instant::now() + granted.life().saturating_sub(MARGIN);
        let token = SecretString::from(granted.access_token);
        *cached = Some(CachedAccessToken { token: token.clone(), until });
        Ok(token)
    }

    /// Removes a refused token from the cache, unless a newer token has already replaced it.
    pub(super) async fn forget(&self, refused: &RestRequest) {
        let mut cached = self.cached.lock().await;
        let sent = |cached: &mut CachedAccessToken| {
            let line = format!("Bearer {}", cached.token.expose_secret());
            let mut headers = refused.headers.iter();
            headers.any(|(name, value)| {
                *name == http::header::AUTHORIZATION && value.as_bytes() == line.as_bytes()
            })
        };
        cached.take_if(sent);
    }

    async fn ask(&self) -> Result<ClientCredentialsResponse, ToolError> {
        let response = self.client.send(&self.request()?).await?;
        let status = response.status();
        let (_, bytes) = self.client.whole(response, ANSWER_BYTES_MAX).await?;
        // The body of an error may echo the client secret, so the message contains only the status.
        let refused = |what: String| {
            let host = self.url.host_str().unwrap_or_default();
            let for_client = format!("the HTTP API returned no access token: {what}");
            ToolError::new(ToolErrorKind::Unavailable, format!("{host} returned no access token: {what}"))
                .with_client_message(for_client)
        };
        if !status.is_success() {
            return Err(refused(format!("HTTP {}; check clientId and clientSecret", status.as_u16())));
        }
        serde_json::from_slice(&bytes).map_err(|_| refused("the response has no `access_token`".into()))
    }

    fn request(&self) -> Result<RestRequest, ToolError> {
        let mut form = "grant_type=client_credentials".to_owned();
        if !self.scopes.is_empty() {
            form.push_str("&scope=");
            form.push_str(&encode::strict(&self.scopes.join(" ")));
        }
        let media_type = "application/x-www-form-urlencoded".to_owned();
        let body = Some(RestBody { media_type, bytes: form.into_bytes() });
        let mut request =
            RestRequest { method: Method::Post, url: self.url.clone(), headers: Vec::new(), body };
        // RFC 6749, section 2.3.1: id and secret are percent-encoded before they are joined.
        let pair = format!(
            "{}:{}",
            encode::strict(&self.client_id),
            encode::strict(self.client_secret.expose_secret())
        );
        let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, pair);
        add_header(&mut request, http::header::AUTHORIZATION, &format!("Basic {encoded}"))?;
        Ok(request)
    }
}

impl From<ClientCredentials> for Credential {
    fn from(credentials: ClientCredentials) -> Self {
        Credential::ClientCredentials(Box::new(credentials))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_lifetime_follows_expires_in_within_bounds() {
        let check = |expires: &str, expected: Duration| {
            let granted: ClientCredentialsResponse =
                serde_json::from_str(&format!("{{\"access_token\": \"t\"{expires}}}")).unwrap();
            assert_eq!(granted.life(), expected, "{expires}");
        };
        check("", LIFE_DEFAULT);
        check(r#", "expires_in": 60"#, Duration::from_mins(1));
        check(r#", "expires_in": "60""#, Duration::from_mins(1));
        check(r#", "expires_in": 1e300"#, LIFE_DEFAULT);
        check(r#", "expires_in": 99999999"#, LIFE_MAX);
        check(r#", "expires_in": -5"#, LIFE_DEFAULT);
        check(r#", "expires_in": "soon""#, LIFE_DEFAULT);
    }
}
