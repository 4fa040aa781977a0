//! The servers under test, fast enough that the benchmark measures the client. They run in separate processes.

use std::io::{BufRead, Write};
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};

/// Serves over standard input and output, after `wait`, which simulates a slow start.
pub(crate) fn over_streams(wait: Duration) {
    std::thread::sleep(wait);
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        if let Some(answer) = answer(&line.unwrap()) {
            writeln!(out, "{answer}").unwrap();
            out.flush().unwrap();
        }
    }
}

/// Serves over streamable HTTP: `/json` replies with one message, `/events` with a stream of one event. Prints its port
/// and ends when its standard input is closed.
pub(crate) fn over_http() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().lines().count();
        std::process::exit(0);
    });
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        axum::serve(listener, Router::new().route("/{way}", post(exchange))).await.unwrap();
    });
}

async fn exchange(Path(way): Path<String>, body: String) -> Response {
    match (answer(&body), way.as_str()) {
        (None, _) => StatusCode::ACCEPTED.into_response(),
        (Some(answer), "events") => {
            ([(CONTENT_TYPE, "text/event-stream")], format!("event: message\ndata: {answer}\n\n"))
                .into_response()
        }
        (Some(answer), _) => ([(CONTENT_TYPE, "application/json")], answer).into_response(),
    }
}

/// Returns the response to a message; `None` for a notification.
fn answer(message: &str) -> Option<String> {
    let request: Value = serde_json::from_str(message).ok()?;
    let id = request.get("id")?;
    let result = match request["method"].as_str()? {
        "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
            "serverInfo": { "name": "bench", "version": "1" } }),
        "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
        "tools/call" => {
            json!({ "content": [{ "type": "text", "text": request["params"]["arguments"]["text"] }] })
        }
        _ => {
            let error = json!({ "code": -32601, "message": "unknown" });
            return Some(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
        }
    };
    Some(json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string())
}
