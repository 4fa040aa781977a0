//! An upstream MCP server over HTTP, for revisions with and without a handshake.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

/// The protocol revision of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamEra {
    Handshake,
    Stateless,
}

/// The fault of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamFault {
    None,
    /// Redirects calls and reads to a secret address.
    RedirectsCalls,
    /// Redirects every request to a secret address.
    RedirectsAll,
}

/// The address to which a faulty server redirects.
const SECRET_URL: &str = "https://canary.example:8443/secret-path";

/// A server with the tools `echo` and `ask`. `ask` asks the user, after the expected number of calls has arrived.
pub(super) struct HttpUpstream {
    era: UpstreamEra,
    fault: UpstreamFault,
    calls_expected: usize,
    state: Mutex<UpstreamState>,
    changed: Condvar,
}

#[derive(Default)]
struct UpstreamState {
    asking_calls: usize,
    /// The answers to questions, by the id of the question.
    answers: HashMap<String, Value>,
}

impl HttpUpstream {
    /// Starts the server, and returns its URL.
    pub(super) fn start(era: UpstreamEra, fault: UpstreamFault, calls_expected: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let (state, changed) = (Mutex::default(), Condvar::new());
        let server = Arc::new(Self { era, fault, calls_expected, state, changed });
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = Arc::clone(&server);
                std::thread::spawn(move || server.serve(&stream));
            }
        });
        url
    }

    fn serve(&self, stream: &TcpStream) -> Option<()> {
        let (method, body) = read(stream)?;
        let request: Value = serde_json::from_str(&body).unwrap_or_default();
        let called = request["method"].as_str().unwrap_or_default();
        let is_redirected = match self.fault {
            UpstreamFault::None => false,
            UpstreamFault::RedirectsCalls => matches!(called, "tools/call" | "resources/read"),
            UpstreamFault::RedirectsAll => true,
        };
        if is_redirected {
            return respond(stream, "307 Temporary Redirect", &format!("location: {SECRET_URL}\r\n"), "");
        }
        if method != "POST" {
            return respond(stream, "405 Method Not Allowed", "", "");
        }
        if called.is_empty() {
            let id = request["id"].as_str().unwrap_or_default().to_owned();
            self.state.lock().unwrap().answers.insert(id, request["result"].clone());
            self.changed.notify_all();
        }
        if called.is_empty() || request.get("id").is_none() {
            return respond(stream, "202 Accepted", "", "");
        }
        match (self.era, called) {
            (UpstreamEra::Handshake, "tools/call") if request["params"]["name"] == "ask" => {
                self.ask_on_stream(stream, &request)
            }
            (UpstreamEra::Handshake, "server/discover") => respond(stream, "400 Bad Request", "", ""),
            (_, _) => {
                let reply =
                    json!({"jsonrpc": "2.0", "id": request["id"], "result": self.result(called, &request)});
                let headers = "content-type: application/json\r\nmcp-session-id: s1\r\n";
                let headers = if called == "initialize" { headers } else { &headers[..32] };
                respond(stream, "200 OK", headers, &reply.to_string())
            }
        }
    }

    fn result(&self, called: &str, request: &Value) -> Value {
        let capabilities = json!({"tools": {}, "resources": {}});
        let mut result = match called {
            "initialize" => json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
                "serverInfo": {"name": "http", "version": "1"}}),
            "server/discover" => json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities}),
            "tools/list" => json!({"tools": [tool("echo"), tool("ask")]}),
            "tools/call" => self.called(&request["params"]),
            _ => json!({}),
        };
        if self.era == UpstreamEra::Stateless && result.get("resultType").is_none() {
            result["resultType"] = "complete".into();
        }
        result
    }

    fn called(&self, params: &Value) -> Value {
        let given = params["arguments"]["text"].as_str().unwrap_or_default();
        match (params["name"].as_str(), params.get("inputResponses")) {
            (Some("ask"), None) => {
                self.wait_for_calls();
                let question = json!({"method": "elicitation/create", "params": form(given)});
                json!({"resultType": "input_required", "inputRequests": {"colour": question}, "requestState": "s"})
            }
            (Some("ask"), Some(answers)) => text(&format!("{given}: {answers}")),
            _ => text(&format!("echo: {given}")),
        }
    }

    /// Asks on the stream of the reply, and waits for the answer.
    fn ask_on_stream(&self, stream: &TcpStream, request: &Value) -> Option<()> {
        let given = request["params"]["arguments"]["text"].as_str().unwrap_or_default();
        self.wait_for_calls();
        let id = format!("q-{given}");
        let question =
            json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": form(given)});
        let mut out = stream;
        out.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            .ok()?;
        out.write_all(format!("data: {question}\n\n").as_bytes()).ok()?;
        let state = self.state.lock().unwrap();
        let mut state = self.changed.wait_while(state, |state| !state.answers.contains_key(&id)).unwrap();
        let answer = state.answers.remove(&id)?;
        drop(state);
        let result = text(&format!("{given}: {answer}"));
        let reply = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        out.write_all(format!("data: {reply}\n\n").as_bytes()).ok()
    }

    fn wait_for_calls(&self) {
        let mut state = self.state.lock().unwrap();
        state.asking_calls += 1;
        self.changed.notify_all();
        let few = |state: &mut UpstreamState| state.asking_calls < self.calls_expected;
        drop(self.changed.wait_while(state, few).unwrap());
    }
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}})
}

fn form(question: &str) -> Value {
    let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
    json!({"message": format!("Which colour? {question}"), "requestedSchema": schema})
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// Reads the method and the body of a request.
pub(super) fn read(stream: &TcpStream) -> Option<(String, String)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method = line.split(' ').next()?.to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().ok()?;
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((method, String::from_utf8_lossy(&body).into_owned()))
}

pub(super) fn respond(mut stream: &TcpStream, status: &str, headers: &str, body: &str) -> Option<()> {
    let head =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).ok()
}
