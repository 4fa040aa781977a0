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
use super::method::Method;
use super::request::Request;

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
    expires_in: Option<u64>,
}

/// A token is not used in its last moments: it could end on its way.
const MARGIN: Duration = Duration::from_secs(30);

/// How long a token is used of which the server does not say.
const LIFE_DEFAULT_SECONDS: u64 = 300;

/// No token is trusted for longer.
const LIFE_SECONDS_MAX: u64 = 24 * 3600;

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
        let seconds = granted.expires_in.unwrap_or(LIFE_DEFAULT_SECONDS).min(LIFE_SECONDS_MAX);
        let until = Instant::now() + Duration::from_secs(seconds).saturating_sub(MARGIN);
        let token = SecretString::from(granted.access_token);
        *kept = Some(Kept { token: token.clone(), until });
        Ok(token)
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
