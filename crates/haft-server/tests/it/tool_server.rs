//! An MCP server over HTTP that counts its calls and can delay them. It runs in the test process, so that its count
//! survives restarts of the server under test.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::runtime::Runtime as Executor;
use tokio::sync::watch;

/// A server that runs until it is dropped.
pub(crate) struct ToolServer {
    url: String,
    shared: Arc<ToolServerState>,
    _executor: Executor,
}

struct ToolServerState {
    /// The method and the headers of every request.
    heads: Mutex<Vec<String>>,
    calls: Mutex<Vec<Value>>,
    /// The number of calls in progress, and the largest such number so far.
    in_progress: Mutex<(usize, usize)>,
    /// The time that every call takes.
    call_time: Mutex<Duration>,
    /// Calls wait while this is false.
    is_open: watch::Sender<bool>,
    /// New sessions wait while this is false.
    starts: watch::Sender<bool>,
    /// The text in the result of every call.
    output: Mutex<String>,
    /// The field `isError` in the result of every call.
    is_error: AtomicBool,
    /// The input schema of both tools.
    schema: Mutex<Value>,
}

impl ToolServer {
    pub(crate) fn start() -> Self {
        let executor = Executor::new().unwrap();
        let state = ToolServerState {
            heads: Mutex::default(),
            calls: Mutex::default(),
            in_progress: Mutex::default(),
            call_time: Mutex::default(),
            is_open: watch::Sender::new(true),
            starts: watch::Sender::new(true),
            output: Mutex::new("noted".into()),
            is_error: AtomicBool::new(false),
            schema: Mutex::new(json!({"type": "object", "properties": {"n": {"type": "integer"}}})),
        };
        let shared = Arc::new(state);
        let listener = executor.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let app = Router::new().route("/mcp", post(answer)).with_state(Arc::clone(&shared));
        executor.spawn(async move { axum::serve(listener, app).await });
        Self { url, shared, _executor: executor }
    }

    /// Returns the configuration of a haft server that has this MCP server as `docs`.
    pub(crate) fn config(&self) -> Value {
        json!({"models": {"default": "openai/m"}, "mcpServers": {"docs": {"url": self.url}}})
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the method and the headers of all requests so far.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.shared.heads.lock().unwrap().clone()
    }

    /// Returns the number of MCP sessions that clients have opened so far.
    pub(crate) fn connections(&self) -> usize {
        self.heads().iter().filter(|head| head.starts_with("initialize\n")).count()
    }

    /// Returns the arguments of all calls so far.
    pub(crate) fn calls(&self) -> Vec<Value> {
        self.shared.calls.lock().unwrap().clone()
    }

    /// Returns the largest number of calls that were in progress at the same time.
    pub(crate) fn most_calls_at_once(&self) -> usize {
        self.shared.in_progress.lock().unwrap().1
    }

    /// Makes every call take this time.
    pub(crate) fn slow_down(&self, call_time: Duration) {
        *self.shared.call_time.lock().unwrap() = call_time;
    }

    pub(crate) fn answer_with(&self, output: &str) {
        output.clone_into(&mut self.shared.output.lock().unwrap());
    }

    /// Answers all further calls with an error of the tool.
    pub(crate) fn fail_with(&self, message: &str) {
        self.answer_with(message);
        self.shared.is_error.store(true, Ordering::Release);
    }

    /// Sets the input schema of both tools.
    pub(crate) fn describe(&self, schema: Value) {
        *self.shared.schema.lock().unwrap() = schema;
    }

    pub(crate) fn hold_calls(&self) {
        self.shared.is_open.send_replace(false);
    }

    pub(crate) fn release_calls(&self) {
        self.shared.is_open.send_replace(true);
    }

    /// Makes every new session wait, so that no run that needs this server can start.
    pub(crate) fn hold_starts(&self) {
        self.shared.starts.send_replace(false);
    }

    pub(crate) fn release_starts(&self) {
        self.shared.starts.send_replace(true);
    }
}

async fn answer(State(state): State<Arc<ToolServerState>>, headers: HeaderMap, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let lines =
        headers.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap_or_default()));
    let head = format!("{}\n{}", request["method"].as_str().unwrap_or_default(), lines.collect::<String>());
    state.heads.lock().unwrap().push(head);
    let Some(id) = request.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let reply = match request["method"].as_str() {
        Some("initialize") => {
            let _ = state.starts.subscribe().wait_for(|starts| *starts).await;
            Ok(json!({
                "protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}},
                "serverInfo": {"name": "docs", "version": "1"},
            }))
        }
        Some("ping") => Ok(json!({})),
        Some("tools/list") => {
            let schema = state.schema.lock().unwrap().clone();
            Ok(json!({"tools": [
                {"name": "add", "description": "Adds a note.", "inputSchema": schema},
                {"name": "look", "description": "Looks.", "inputSchema": schema, "annotations": {"readOnlyHint": true}},
            ]}))
        }
        Some("tools/call") => {
            state.calls.lock().unwrap().push(request["params"]["arguments"].clone());
            {
                let mut calls = state.in_progress.lock().unwrap();
                calls.0 += 1;
                calls.1 = calls.1.max(calls.0);
            }
            let call_time = *state.call_time.lock().unwrap();
            tokio::time::sleep(call_time).await;
            let _ = state.is_open.subscribe().wait_for(|is_open| *is_open).await;
            state.in_progress.lock().unwrap().0 -= 1;
            let output = state.output.lock().unwrap().clone();
            let is_error = state.is_error.load(Ordering::Acquire);
            Ok(json!({"content": [{"type": "text", "text": output}], "isError": is_error}))
        }
        _ => Err(json!({"code": -32601, "message": "no such method"})),
    };
    let body = match reply {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    };
    ([("content-type", "application/json")], body.to_string()).into_response()
}
