//! An MCP server with several accounts, and the authorization server at which their owners log in. Each result names the
//! account of the token.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// A server on its own port. It stops when it is dropped.
#[derive(Debug)]
pub struct AccountServer {
    shared: Arc<Mutex<AccountServerState>>,
    address: String,
    /// Dropping this sender stops the server.
    _end: tokio::sync::oneshot::Sender<()>,
}

/// A fault of the authorization server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoginFault {
    #[default]
    None,
    /// The metadata is not JSON.
    GarbageMetadata,
    /// The token endpoint answers with an HTML page instead of JSON.
    GarbageToken,
    /// The redirect has no `iss` field, although the metadata announces it.
    NoIssuer,
    /// The user refuses the login.
    AccessDenied,
}

#[derive(Debug, Default)]
struct AccountServerState {
    address: String,
    fault: LoginFault,
    /// The accounts of access tokens.
    accounts: HashMap<String, String>,
    /// The accounts of refresh tokens, each of which is valid once.
    refreshes: HashMap<String, String>,
    /// The PKCE challenges and accounts of codes, each of which is valid once.
    codes: HashMap<String, (String, String)>,
    issued: u32,
    /// Every `Authorization` header that the MCP server received.
    shown: Vec<String>,
}

impl AccountServer {
    pub fn start() -> Self {
        let shared = Arc::<Mutex<AccountServerState>>::default();
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
        let address = format!("http://{}", told.recv().unwrap());
        shared.lock().unwrap().address.clone_from(&address);
        Self { shared, address, _end: end }
    }

    pub fn url(&self) -> String {
        format!("{}/mcp", self.address)
    }

    /// Makes all later logins fail with this fault.
    pub fn set_fault(&self, fault: LoginFault) {
        self.state().fault = fault;
    }

    /// Makes all access tokens invalid. Refresh tokens stay valid.
    pub fn expire(&self) {
        self.state().accounts.clear();
    }

    /// Makes all tokens of an account invalid.
    pub fn revoke(&self, account: &str) {
        let mut state = self.state();
        state.accounts.retain(|_, owner| owner != account);
        state.refreshes.retain(|_, owner| owner != account);
    }

    /// Returns every `Authorization` header that the MCP server received.
    pub fn shown(&self) -> Vec<String> {
        self.state().shown.clone()
    }

    fn state(&self) -> MutexGuard<'_, AccountServerState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn answer(
    State(shared): State<Arc<Mutex<AccountServerState>>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = String::from_utf8_lossy(&body).into_owned();
    let mut state = shared.lock().unwrap_or_else(PoisonError::into_inner);
    match uri.path() {
        "/mcp" => state.mcp(&headers, &body),
        "/.well-known/oauth-protected-resource/mcp" => {
            let resource = format!("{}/mcp", state.address);
            axum::Json(json!({ "resource": resource, "authorization_servers": [state.address] }))
                .into_response()
        }
        "/.well-known/oauth-authorization-server" if state.fault == LoginFault::GarbageMetadata => {
            "<html>{".into_response()
        }
        "/.well-known/oauth-authorization-server" => axum::Json(state.metadata()).into_response(),
        "/register" => {
            axum::Json(json!({ "client_id": "me", "token_endpoint_auth_method": "none" })).into_response()
        }
        "/authorize" => state.authorize(&fields(uri.query().unwrap_or_default())),
        "/token" => state.token(&fields(&body)),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

impl AccountServerState {
    fn metadata(&self) -> Value {
        let at = |path: &str| format!("{}{path}", self.address);
        json!({
            "issuer": self.address, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "registration_endpoint": at("/register"), "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": true,
        })
    }

    /// Logs the browser in with the account in the field `account`, which a test adds to the address.
    fn authorize(&mut self, asked: &BTreeMap<String, String>) -> Response {
        let field = |name: &str| asked.get(name).cloned().unwrap_or_default();
        self.issued += 1;
        let code = format!("code-{}", self.issued);
        self.codes.insert(code.clone(), (field("code_challenge"), field("account")));
        let result = match self.fault {
            LoginFault::AccessDenied => "error=access_denied".to_owned(),
            LoginFault::None
            | LoginFault::GarbageMetadata
            | LoginFault::GarbageToken
            | LoginFault::NoIssuer => format!("code={code}"),
        };
        let issuer = match self.fault {
            LoginFault::NoIssuer => String::new(),
            LoginFault::None
            | LoginFault::GarbageMetadata
            | LoginFault::GarbageToken
            | LoginFault::AccessDenied => format!("&iss={}", self.address),
        };
        let back = format!("{}?{result}&state={}{issuer}", field("redirect_uri"), field("state"));
        (StatusCode::FOUND, [("location", back)]).into_response()
    }

    fn token(&mut self, asked: &BTreeMap<String, String>) -> Response {
        if self.fault == LoginFault::GarbageToken {
            return "<html>".into_response();
        }
        let field = |name: &str| asked.get(name).map(String::as_str).unwrap_or_default();
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(field("code_verifier")));
        let account = match field("grant_type") {
            "authorization_code" => self
                .codes
                .remove(field("code"))
                .filter(|(challenge, _)| *challenge == hash)
                .map(|(_, owner)| owner),
            "refresh_token" => self.refreshes.remove(field("refresh_token")),
            _ => None,
        };
        let Some(account) = account.filter(|_| field("resource").ends_with("/mcp")) else {
            return (StatusCode::BAD_REQUEST, axum::Json(json!({ "error": "invalid_grant" })))
                .into_response();
        };
        self.issued += 1;
        let (access, refresh) =
            (format!("access-{account}-{}", self.issued), format!("refresh-{}", self.issued));
        self.accounts.insert(access.clone(), account.clone());
        self.refreshes.insert(refresh.clone(), account);
        axum::Json(json!({
            "access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": refresh,
        }))
        .into_response()
    }

    fn mcp(&mut self, headers: &HeaderMap, body: &str) -> Response {
        let shown = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !shown.is_empty() {
            self.shown.push(shown.to_owned());
        }
        let Some(account) = shown.strip_prefix("Bearer ").and_then(|token| self.accounts.get(token)) else {
            let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.address);
            let challenge = format!("Bearer resource_metadata=\"{metadata}\"");
            return (StatusCode::UNAUTHORIZED, [("www-authenticate", challenge)]).into_response();
        };
        let request: Value = serde_json::from_str(body).unwrap_or_default();
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {}, "resources": { "subscribe": true }, "prompts": {}, "completions": {} },
                "serverInfo": { "name": "accounts", "version": "1" },
            }),
            // Name one tool after the account, so that a test can detect the tool list of another account.
            "tools/list" => json!({ "tools": [
                { "name": "whoami", "inputSchema": { "type": "object" } },
                { "name": format!("of_{account}"), "inputSchema": { "type": "object" } },
            ] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": account }] }),
            "resources/list" => json!({ "resources": [{ "uri": "who://am-i", "name": "who" }] }),
            "resources/read" => json!({ "contents": [{ "uri": "who://am-i", "text": account }] }),
            "resources/subscribe" | "resources/unsubscribe" => json!({}),
            "prompts/list" => json!({ "prompts": [{ "name": "greet" }] }),
            "prompts/get" => json!({
                "messages": [{ "role": "user", "content": { "type": "text", "text": account } }],
            }),
            "completion/complete" => json!({ "completion": { "values": [account] } }),
            "" => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
            _ if request["id"].is_null() => return StatusCode::ACCEPTED.into_response(),
            _ => {
                let error = json!({ "code": -32601, "message": "no such method" });
                let reply = json!({ "jsonrpc": "2.0", "id": request["id"], "error": error });
                return axum::Json(reply).into_response();
            }
        };
        axum::Json(json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })).into_response()
    }
}

fn fields(text: &str) -> BTreeMap<String, String> {
    url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
}
