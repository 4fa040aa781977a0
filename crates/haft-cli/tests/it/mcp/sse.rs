//! Tests of the older HTTP with SSE: one stream for events, another URL for requests, and streams that break off.

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::http::{McpHttpRequest, read};
use super::tree;
use haft_testkit::{HaftOutput, TestTree};

/// The behaviour of the event stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SseStreamBehavior {
    Steady,
    /// The stream breaks off once, when a tool is called. Its events have ids, so the stream can be resumed.
    Numbered,
    /// The stream breaks off once, and its events have no ids, so the stream cannot be resumed.
    Lossy,
}

struct FakeSseServer {
    way: SseStreamBehavior,
    held: Mutex<Option<TcpStream>>,
    /// The events that were not delivered before the stream broke off.
    left: Mutex<Vec<String>>,
    asked: Mutex<Vec<McpHttpRequest>>,
    broken: Mutex<bool>,
}

/// Starts the server and returns its address.
fn start(way: SseStreamBehavior) -> (String, Arc<FakeSseServer>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/sse", listener.local_addr().unwrap());
    let server = Arc::new(FakeSseServer {
        way,
        held: Mutex::default(),
        left: Mutex::default(),
        asked: Mutex::default(),
        broken: Mutex::default(),
    });
    let shared = Arc::clone(&server);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if let Some(request) = read(&stream) {
                shared.asked.lock().unwrap().push(request.clone());
                shared.serve(stream, &request);
            }
        }
    });
    (address, server)
}

impl FakeSseServer {
    fn serve(&self, mut stream: TcpStream, request: &McpHttpRequest) {
        if request.method == "GET" {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
            stream.write_all(head.as_bytes()).unwrap();
            if request.headers.contains_key("last-event-id") {
                let left = std::mem::take(&mut *self.left.lock().unwrap());
                for event in left {
                    stream.write_all(event.as_bytes()).unwrap();
                }
            } else {
                let id = if self.way == SseStreamBehavior::Numbered { "id: 1\nretry: 10\n" } else { "" };
                stream.write_all(format!("{id}event: endpoint\ndata: /messages\n\n").as_bytes()).unwrap();
            }
            *self.held.lock().unwrap() = Some(stream);
            return;
        }
        stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
        drop(stream);
        let Some(result) = result(request) else { return };
        let event =
            format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"id\":{},{result}}}\n\n", request.id());
        let breaks = request.calls("tools/call") && self.way != SseStreamBehavior::Steady;
        let mut held = self.held.lock().unwrap();
        if breaks && !std::mem::replace(&mut *self.broken.lock().unwrap(), true) {
            self.left.lock().unwrap().push(event);
            let _ = held.take().map(|stream| stream.shutdown(Shutdown::Both));
        } else if let Some(stream) = held.as_mut() {
            let _ = stream.write_all(event.as_bytes());
        }
    }

    fn count(&self, is_it: impl Fn(&McpHttpRequest) -> bool) -> usize {
        self.asked.lock().unwrap().iter().filter(|request| is_it(request)).count()
    }
}

fn result(request: &McpHttpRequest) -> Option<String> {
    let result = match () {
        () if request.calls("initialize") => {
            r#"{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{}}"#
        }
        () if request.calls("tools/list") => r#"{"tools":[{"name":"change"}]}"#,
        () if request.calls("tools/call") => r#"{"content":[{"type":"text","text":"heard"}]}"#,
        () if request.body.contains("\"id\"") => {
            return Some(r#""error":{"code":-32601,"message":"unknown"}"#.into());
        }
        () => return None,
    };
    Some(format!("\"result\":{result}"))
}

fn call(tree: &TestTree, url: &str) -> HaftOutput {
    tree.file("home/haft.json", &format!("{{\"mcpServers\": {{\"old\": {{\"url\": \"{url}\"}}}}}}"));
    tree.haft(&["call", "--json", "old__change", "{}"]).output()
}

#[test]
fn client_posts_to_the_endpoint_that_the_sse_server_announces() {
    let (url, server) = start(SseStreamBehavior::Steady);
    let tree = tree();
    let ran = call(&tree, &url).expect_code(0);
    assert!(ran.stdout.contains("heard") && ran.stdout.contains("2024-11-05"), "{ran:?}");
    assert_eq!(server.count(|request| request.method == "GET"), 1);
}

#[test]
fn broken_sse_stream_resumes_with_last_event_id() {
    let (url, server) = start(SseStreamBehavior::Numbered);
    let tree = tree();
    let ran = call(&tree, &url).expect_code(0);
    assert!(ran.stdout.contains("heard"), "{ran:?}");
    let resumed = |request: &McpHttpRequest| request.headers.get("last-event-id").is_some_and(|id| id == "1");
    assert_eq!(server.count(resumed), 1);
    assert_eq!(server.count(|request| request.calls("tools/call")), 1, "haft calls the tool once");
}

#[test]
fn broken_sse_stream_without_event_ids_is_unknown_outcome() {
    let (url, server) = start(SseStreamBehavior::Lossy);
    let tree = tree();
    let ran = call(&tree, &url);
    assert!(ran.stdout.contains("does not know whether it took effect"), "{ran:?}");
    assert_eq!(server.count(|request| request.calls("tools/call")), 1, "haft calls the tool once");
    let again = call(&tree, &url).expect_code(0);
    assert!(again.stdout.contains("heard"), "{again:?}");
}
