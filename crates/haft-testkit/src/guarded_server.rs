//! An MCP server that requires an access token, and the authorization server that issues the tokens. Both check
//! requests strictly.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::client_proofs::{ClientProofs, ProofError, ProvedRequest};

/// A substring of every secret that the server issues. Tests search for it to find leaks.
pub const CANARY: &str = "c4n4ry";

/// A server on its own port. It stops when it is dropped.
#[derive(Debug)]
pub struct GuardedServer {
    address: SocketAddr,
    guard: Arc<Mutex<GuardedServerState>>,
    /// Dropping this sender stops the server.
    _end: tokio::sync::oneshot::Sender<()>,
}

/// The state of both servers: the valid token, and a record of the requests.
#[derive(Debug, Default)]
struct GuardedServerState {
    address: String,
    /// The number of the last token issued. Only that token is valid.
    given: u32,
    expired: bool,
    revoked: bool,
    down: bool,
    refreshes: u32,
    /// The PKCE code challenge of the pending login. The hash of the code verifier must be equal to it.
    challenge: String,
    shown: Vec<String>,
    /// The scope that tool calls require.
    demanded: Option<String>,
    /// The scope that the last login requested.
    scope: String,
    /// The checks of signed tokens; `None` for a server that accepts a client secret and issues bearer tokens.
    proofs: Option<ClientProofs>,
    /// The reasons for which a signed token was refused.
    refusals: Vec<String>,
    /// Fields that replace those of the same name in the metadata of the MCP server and of the authorization server.
    forged_metadata: serde_json::Map<String, Value>,
}

impl GuardedServer {
    pub fn start() -> Self {
        Self::start_with(GuardedServerState::default())
    }

    /// Starts a server that requires signed tokens in place of secrets: its client `robot` authenticates with an
    /// assertion, and each access token is bound to a key. The nonce changes after each request to the MCP server.
    pub fn start_with_proofs() -> Self {
        Self::start_with(GuardedServerState { proofs: Some(ClientProofs::new()), ..Default::default() })
    }

    fn start_with(state: GuardedServerState) -> Self {
        let guard = Arc::new(Mutex::new(state));
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let (tell, told) = mpsc::channel();
        let service = Router::new().fallback(answer).with_state(Arc::clone(&guard));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                let until = async { drop(ended.await) };
                axum::serve(listener, service).with_graceful_shutdown(until).await.unwrap();
            });
        });
        let address = told.recv().unwrap();
        guard.lock().unwrap().address = format!("http://{address}");
        Self { address, guard, _end: end }
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Replaces a field in the metadata of the MCP server and of the authorization server, wherever the field occurs.
    pub fn forge_metadata(&self, field: &str, value: &str) {
        self.guard().forged_metadata.insert(field.to_owned(), value.into());
    }

    /// Makes the last access token invalid.
    pub fn expire(&self) {
        self.guard().expired = true;
    }

    /// Makes the last refresh token invalid.
    pub fn revoke(&self) {
        self.guard().revoked = true;
    }

    /// Makes all later tool calls require this scope.
    pub fn demand(&self, scope: &str) {
        self.guard().demanded = Some(scope.to_owned());
    }

    /// Returns the scopes that the last login requested.
    pub fn requested_scopes(&self) -> String {
        self.guard().scope.clone()
    }

    /// Makes the token endpoint unavailable until `start_token_endpoint`.
    pub fn stop_token_endpoint(&self) {
        self.guard().down = true;
    }

    pub fn start_token_endpoint(&self) {
        self.guard().down = false;
    }

    /// Returns the number of refresh tokens redeemed so far. Each refresh token is valid once.
    pub fn refreshes(&self) -> u32 {
        self.guard().refreshes
    }

    /// Returns all `Authorization` headers that the MCP server received.
    pub fn shown(&self) -> Vec<String> {
        self.guard().shown.clone()
    }

    /// Returns the private key of the client `robot`, in PEM.
    pub fn private_key(&self) -> String {
        self.guard().proofs.as_ref().map(|proofs| proofs.pem.clone()).unwrap_or_default()
    }

    /// Returns the reasons for which a signed token was refused. A required nonce is not such a reason.
    pub fn refusals(&self) -> Vec<String> {
        self.guard().refusals.clone()
    }

    fn guard(&self) -> MutexGuard<'_, GuardedServerState> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(
    State(guard): State<Arc<Mutex<GuardedServerState>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut guard = guard.lock().unwrap_or_else(PoisonError::into_inner);
    let body = String::from_utf8_lossy(&body).into_owned();
    match uri.path() {
        "/mcp" => guard.mcp(&method, &headers, &body),
        "/.well-known/oauth-protected-resource/mcp" => {
            axum::Json(guard.forged(guard.resource_metadata())).into_response()
        }
        "/.well-known/oauth-authorization-server" => {
            axum::Json(guard.forged(guard.authorization_server_metadata())).into_response()
        }
        "/register" => axum::Json(json!({
            "client_id": "me", "client_secret": format!("client-{CANARY}"),
            "token_endpoint_auth_method": "client_secret_basic",
        }))
        .into_response(),
        "/authorize" => guard.authorize(&fields(uri.query().unwrap_or_default())),
        "/token" => guard.token(&headers, &fields(&body)),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

impl GuardedServerState {
    /// Returns the metadata document after replacing each field for which a test has set a forged value.
    fn forged(&self, mut document: Value) -> Value {
        for (field, value) in &self.forged_metadata {
            if let Some(slot) = document.get_mut(field) {
                slot.clone_from(value);
            }
        }
        document
    }

    fn resource_metadata(&self) -> Value {
        json!({
            "resource": format!("{}/mcp", self.address), "authorization_servers": [self.address],
            "scopes_supported": ["read"], "dpop_signing_alg_values_supported": self.proof_algorithms(),
        })
    }

    fn authorization_server_metadata(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.address);
        json!({
            "issuer": self.address, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "registration_endpoint": at("/register"), "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": true,
            "dpop_signing_alg_values_supported": self.proof_algorithms(),
        })
    }

    fn proof_algorithms(&self) -> &[&str] {
        if self.proofs.is_some() { &["ES256"] } else { &[] }
    }

    /// Checks the proof of a request, if the server requires one. The error contains the OAuth error code and, if the
    /// proof lacks the required nonce, a header with this nonce.
    fn check_proof(
        &mut self,
        headers: &HeaderMap,
        request: &ProvedRequest<'_>,
    ) -> Result<(), (&'static str, HeaderMap)> {
        let Some(proofs) = &mut self.proofs else { return Ok(()) };
        let proof = headers.get("dpop").and_then(|value| value.to_str().ok()).unwrap_or_default();
        proofs.check_proof(proof, request).map_err(|error| match error {
            ProofError::Nonce(nonce) => {
                let header = [("dpop-nonce".parse().unwrap(), nonce.parse().unwrap())];
                ("use_dpop_nonce", HeaderMap::from_iter(header))
            }
            ProofError::Wrong(reason) => {
                self.refusals.push(reason);
                ("invalid_dpop_proof", HeaderMap::new())
            }
        })
    }

    /// Returns whether the client authenticates with an assertion.
    fn has_assertion(&mut self, asked: &BTreeMap<String, String>) -> bool {
        let Some(proofs) = &mut self.proofs else { return false };
        let assertion = asked.get("client_assertion").map(String::as_str).unwrap_or_default();
        let checked = proofs.check_assertion(assertion, &self.address);
        let is_accepted = checked.is_ok();
        self.refusals.extend(checked.err());
        is_accepted
    }

    fn mcp(&mut self, method: &Method, headers: &HeaderMap, body: &str) -> Response {
        let shown = headers.get("authorization").and_then(|value| value.to_str().ok());
        self.shown.extend(shown.map(str::to_owned));
        let scheme = if self.proofs.is_some() { "DPoP" } else { "Bearer" };
        let access = format!("access-{CANARY}-{}", self.given);
        let good = format!("{scheme} {access}");
        if self.given == 0 || self.expired || shown != Some(good.as_str()) {
            let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.address);
            let challenge = format!("Bearer resource_metadata=\"{metadata}\", error=\"invalid_token\"");
            return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
        }
        let address = format!("{}/mcp", self.address);
        let proved = ProvedRequest { method: method.as_str(), address, token: Some(&access) };
        if let Err((code, nonce)) = self.check_proof(headers, &proved) {
            let challenge = format!("DPoP error=\"{code}\", algs=\"ES256\"");
            return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)], nonce).into_response();
        }
        let request: Value = serde_json::from_str(body).unwrap_or_default();
        let lacked = self.demanded.as_ref().filter(|scope| !self.scope.split(' ').any(|held| held == *scope));
        if let (Some(scope), "tools/call") = (lacked, request["method"].as_str().unwrap_or_default()) {
            let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
            return (StatusCode::FORBIDDEN, [("www-authenticate", challenge)]).into_response();
        }
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "guarded", "version": "1" },
            }),
            "tools/list" => json!({ "tools": [
                { "name": "echo", "inputSchema": { "type": "object" }, "annotations": { "readOnlyHint": true } },
            ] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": "let in" }] }),
            "" => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
            _ if request["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
            _ => {
                let error = json!({ "code": -32601, "message": "no such method" });
                return axum::Json(json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }))
                    .into_response();
            }
        };
        axum::Json(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).into_response()
    }

    /// Grants every authorization request at once, without asking a user.
    fn authorize(&mut self, asked: &BTreeMap<String, String>) -> Response {
        self.challenge = asked.get("code_challenge").cloned().unwrap_or_default();
        let field = |name: &str| asked.get(name).cloned().unwrap_or_default();
        self.scope = field("scope");
        let back = format!(
            "{}?code=code-{CANARY}&state={}&iss={}",
            field("redirect_uri"),
            field("state"),
            self.address
        );
        (StatusCode::FOUND, [("location", back)]).into_response()
    }

    fn token(&mut self, headers: &HeaderMap, asked: &BTreeMap<String, String>) -> Response {
        if self.down {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let refused = |code: &str| {
            (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": code, "error_description": CANARY })))
                .into_response()
        };
        let field = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
        let has_assertion = self.has_assertion(asked);
        let is_known = headers.contains_key("authorization") || has_assertion;
        if !is_known || !field("resource").ends_with("/mcp") {
            return refused("invalid_client");
        }
        let proved =
            ProvedRequest { method: "POST", address: format!("{}/token", self.address), token: None };
        if let Err((code, nonce)) = self.check_proof(headers, &proved) {
            return (nonce, refused(code)).into_response();
        }
        let refresh = format!("refresh-{CANARY}-{}", self.given);
        match field("grant_type") {
            "authorization_code"
                if URL_SAFE_NO_PAD.encode(Sha256::digest(field("code_verifier"))) == self.challenge => {}
            "refresh_token" if field("refresh_token") == refresh && !self.revoked => self.refreshes += 1,
            // This grant involves no user: the client `robot` authenticates with its own secret or key.
            "client_credentials" if is_robot(headers) || has_assertion => {}
            _ => return refused("invalid_grant"),
        }
        self.given += 1;
        (self.expired, self.revoked) = (false, false);
        let given = self.given;
        let token_type = if self.proofs.is_some() { "DPoP" } else { "Bearer" };
        axum::Json(json!({
            "access_token": format!("access-{CANARY}-{given}"), "token_type": token_type, "expires_in": 3600,
            "refresh_token": format!("refresh-{CANARY}-{given}"),
        }))
        .into_response()
    }
}

/// Returns true if the client authenticates as `robot` with its secret.
fn is_robot(headers: &HeaderMap) -> bool {
    let expected = format!("Basic {}", STANDARD.encode(format!("robot:robot-{CANARY}")));
    headers.get("authorization").is_some_and(|shown| shown.as_bytes() == expected.as_bytes())
}

fn fields(text: &str) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}
