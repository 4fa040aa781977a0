//! An issuer of access tokens: discovery, keys, tokens with any claims, and the login of a client with a code and PKCE.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The time for which tokens are valid.
const TOKEN_SECONDS: u64 = 600;

/// An issuer on its own port. It stops when it is dropped.
#[derive(Debug)]
pub struct TokenIssuer {
    shared: Arc<Mutex<TokenIssuerState>>,
    url: String,
    /// Dropping this sender stops the server.
    _end: tokio::sync::oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct TokenIssuerState {
    url: String,
    /// The signing keys. The last one is the newest, and signs all new tokens.
    keys: Vec<(String, EcdsaKeyPair)>,
    keys_made: u32,
    key_requests: u32,
    is_down: bool,
    /// The parameters of the pending login, whose code has not been redeemed yet.
    login: BTreeMap<String, String>,
    /// The resources for which clients requested tokens.
    resources: Vec<String>,
    /// Every token that a client got by a login.
    issued: Vec<String>,
}

impl TokenIssuer {
    pub fn start() -> Self {
        let shared = Arc::<Mutex<TokenIssuerState>>::default();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let service = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let until = async { drop(ended.await) };
                axum::serve(listener, service).with_graceful_shutdown(until).await.unwrap();
            });
        });
        let url = format!("http://{}/realm", told.recv().unwrap());
        shared.lock().unwrap().url.clone_from(&url);
        let issuer = Self { shared, url, _end: end };
        issuer.add_key();
        issuer
    }

    /// Returns the issuer name, which is also the base URL of its documents.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Creates a new key, which signs all later tokens.
    pub fn add_key(&self) {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        let mut state = self.state();
        state.keys_made += 1;
        let id = format!("key-{}", state.keys_made);
        state.keys.push((id, pair));
    }

    /// Removes all keys except the newest one.
    pub fn revoke_old_keys(&self) {
        let mut state = self.state();
        let last = state.keys.pop();
        state.keys = last.into_iter().collect();
    }

    /// Makes the server answer every request with an error (`true`), or answer normally again (`false`).
    pub fn set_down(&self, is_down: bool) {
        self.state().is_down = is_down;
    }

    /// Returns the number of requests for the key set.
    pub fn key_requests(&self) -> u32 {
        self.state().key_requests
    }

    /// Returns the resources that clients named when they redeemed their codes.
    pub fn resources(&self) -> Vec<String> {
        self.state().resources.clone()
    }

    /// Returns the tokens that clients got by a login.
    pub fn issued(&self) -> Vec<String> {
        self.state().issued.clone()
    }

    /// Returns the key set, as the server publishes it.
    pub fn key_set(&self) -> Value {
        self.state().key_set()
    }

    /// Returns a token with these claims. Adds `iss` and `exp` if they are missing; with the value `null`, leaves them
    /// out.
    pub fn token(&self, claims: Value) -> String {
        let state = self.state();
        let id = state.keys.last().unwrap().0.clone();
        drop(state);
        self.signed(&json!({"alg": "ES256", "typ": "JWT", "kid": id}), claims)
    }

    /// Returns a token with this header, which may name a wrong key.
    pub fn signed(&self, header: &Value, claims: Value) -> String {
        self.state().signed(header, claims)
    }

    fn state(&self) -> MutexGuard<'_, TokenIssuerState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenIssuerState {
    fn signed(&self, header: &Value, mut claims: Value) -> String {
        let all = claims.as_object_mut().unwrap();
        all.entry("iss").or_insert_with(|| json!(self.url));
        all.entry("exp").or_insert_with(|| json!(now_s() + TOKEN_SECONDS));
        all.retain(|_, value| !value.is_null());
        let signed = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
        let (_, pair) = self.keys.last().unwrap();
        let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", encoded(signature))
    }
}

/// Returns the current time in seconds since 1970.
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

async fn answer(State(shared): State<Arc<Mutex<TokenIssuerState>>>, uri: Uri, body: Bytes) -> Response {
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    if uri.path() == "/realm/keys" {
        state.key_requests += 1;
    }
    if state.is_down {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    match uri.path() {
        "/realm/keys" => axum::Json(state.key_set()).into_response(),
        "/realm/.well-known/openid-configuration" | "/.well-known/oauth-authorization-server/realm" => {
            axum::Json(state.metadata()).into_response()
        }
        "/realm/register" => {
            let mut client: Value = serde_json::from_slice(&body).unwrap();
            client["client_id"] = json!("registered");
            (StatusCode::CREATED, axum::Json(client)).into_response()
        }
        "/realm/authorize" => state.authorize(uri.query().unwrap_or_default().as_bytes()),
        "/realm/token" => state.redeem(&body),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

impl TokenIssuerState {
    fn metadata(&self) -> Value {
        let at = |path: &str| format!("{}/{path}", self.url);
        json!({
            "issuer": self.url, "jwks_uri": at("keys"), "authorization_endpoint": at("authorize"),
            "token_endpoint": at("token"), "registration_endpoint": at("register"),
            "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// Grants every login at once, as if a person had agreed.
    fn authorize(&mut self, query: &[u8]) -> Response {
        self.login = fields(query);
        let field = |name: &str| self.login.get(name).map(String::as_str).unwrap_or_default();
        let back = format!("{}?code=granted&state={}", field("redirect_uri"), field("state"));
        (StatusCode::FOUND, [("location", back)]).into_response()
    }

    /// Redeems a code. A code is valid once, and only for the resource that the client names in both requests (RFC
    /// 8707).
    fn redeem(&mut self, body: &[u8]) -> Response {
        let (asked, login) = (fields(body), std::mem::take(&mut self.login));
        let field = |name: &str| asked.get(name).cloned().unwrap_or_default();
        let verifier = encoded(Sha256::digest(field("code_verifier")));
        let is_right = field("code") == "granted"
            && login.get("code_challenge") == Some(&verifier)
            && login.get("resource") == asked.get("resource");
        let Some(resource) = asked.get("resource").filter(|_| is_right) else {
            return (StatusCode::BAD_REQUEST, axum::Json(json!({"error": "invalid_grant"}))).into_response();
        };
        self.resources.push(resource.clone());
        let id = self.keys.last().unwrap().0.clone();
        let scope = login.get("scope").cloned().unwrap_or_default();
        let claims = json!({"aud": resource, "sub": "anna", "scope": scope});
        let token = self.signed(&json!({"alg": "ES256", "typ": "at+jwt", "kid": id}), claims);
        self.issued.push(token.clone());
        axum::Json(json!({"access_token": token, "token_type": "Bearer", "expires_in": TOKEN_SECONDS}))
            .into_response()
    }

    fn key_set(&self) -> Value {
        let keys = self.keys.iter().map(|(id, pair)| {
            // The key is an uncompressed point: one byte, followed by both coordinates.
            let point = pair.public_key().as_ref();
            let (x, y) = point[1..].split_at(32);
            json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": encoded(x), "y": encoded(y)})
        });
        json!({"keys": keys.collect::<Vec<_>>()})
    }
}

fn fields(text: &[u8]) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(text).into_owned().collect()
}
