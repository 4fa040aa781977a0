//! Tokens by OAuth client credentials: asked for once, used until they are about to end.

use std::time::{Duration, Instant};

use haft_core::result::{ToolError, ToolErrorKind};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::body::Body;
use super::client::Client;
use super::credential::{Credential, add_header};
use super::encode;
use super::guard::Reach;
use super::request::Request;
use haft_core::settings::method::Method;

/// How to ask for tokens, and the one in use.
#[derive(Debug)]
pub struct ClientCredentials {
    url: Url,
    scopes: Vec<String>,
    client_id: String,
    client_secret: SecretString,
    client: Client,
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    token: SecretString,
    until: Instant,
}

/// What a server answers.
#[derive(Deserialize)]
struct Granted {
    access_token: String,
    /// In seconds; some servers write the number as a text.
    expires_in: Option<Seconds>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(f64),
    Text(String),
}

impl Granted {
    /// What is no number says nothing.
    fn life(&self) -> Duration {
        let seconds = match &self.expires_in {
            Some(Seconds::Number(seconds)) => Some(*seconds),
            Some(Seconds::Text(text)) => text.trim().parse().ok(),
            None => None,
        };
        let life = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        life.unwrap_or(LIFE_DEFAULT).min(LIFE_MAX)
    }
}

/// A token is not used in its last moments: it could end on its way.
const MARGIN: Duration = Duration::from_secs(30);

/// How long a token is used of which the server does not say.
const LIFE_DEFAULT: Duration = Duration::from_mins(5);

/// No token is trusted for longer.
const LIFE_MAX: Duration = Duration::from_hours(24);

const ANSWER_BYTES_MAX: usize = 64 * 1024;

impl ClientCredentials {
    pub fn new(
        url: Url,
        reach: Reach,
        client_id: String,
        client_secret: SecretString,
        scopes: Vec<String>,
    ) -> Self {
        Self { url, scopes, client_id, client_secret, client: Client::new(reach), kept: Mutex::new(None) }
    }

    /// The token in use, or a new one. Calls at the same time ask once.
    pub(super) async fn token(&self) -> Result<SecretString, ToolError> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| Instant::now() < kept.until) {
            return Ok(kept.token.clone());
        }
        let granted = self.ask().await?;
        let until = Instant::now() + granted.life().saturating_sub(MARGIN);
        let token = SecretString::from(granted.access_token);
        *kept = Some(Kept { token: token.clone(), until });
        Ok(token)
    }

    /// A token that was refused is not used again. Another one that has come since stays.
    pub(super) async fn forget(&self, refused: &Request) {
        let mut kept = self.kept.lock().await;
        let sent = |kept: &mut Kept| {
            let line = format!("Bearer {}", kept.token.expose_secret());
            let mut headers = refused.headers.iter();
            headers.any(|(name, value)| {
                *name == http::header::AUTHORIZATION && value.as_bytes() == line.as_bytes()
            })
        };
        kept.take_if(sent);
    }

    async fn ask(&self) -> Result<Granted, ToolError> {
        let response = self.client.send(&self.request()?).await?;
        let status = response.status();
        let (_, bytes) = self.client.whole(response, ANSWER_BYTES_MAX).await?;
        // What the server says may repeat the secret; only the status is told.
        let refused = |what: String| {
            let host = self.url.host_str().unwrap_or_default();
            ToolError::new(ToolErrorKind::Unavailable, format!("{host} gave no token: {what}"))
        };
        if !status.is_success() {
            return Err(refused(format!("HTTP {}; check clientId and clientSecret", status.as_u16())));
        }
        serde_json::from_slice(&bytes).map_err(|_| refused("the answer has no `access_token`".into()))
    }

    fn request(&self) -> Result<Request, ToolError> {
        let mut form = "grant_type=client_credentials".to_owned();
        if !self.scopes.is_empty() {
            form.push_str("&scope=");
            form.push_str(&encode::strict(&self.scopes.join(" ")));
        }
        let media_type = "application/x-www-form-urlencoded".to_owned();
        let body = Some(Body { media_type, bytes: form.into_bytes() });
        let mut request = Request { method: Method::Post, url: self.url.clone(), headers: Vec::new(), body };
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
    fn a_token_lives_as_long_as_the_server_says_within_bounds() {
        let check = |expires: &str, expected: Duration| {
            let granted: Granted =
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
