//! The server behind nginx and Caddy, with the configurations of `docs/serving.md`: events are not held back, and
//! connections can change to the WebSocket protocol.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use futures_util::{SinkExt as _, StreamExt as _};
use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_testkit::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::fixture::TestServer;

/// A proxy that runs until it is dropped.
struct Proxy {
    child: Child,
    url: String,
    _directory: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Clone, Copy)]
enum ProxyKind {
    Nginx,
    Caddy,
}

/// Returns the example of this language in the page about serving.
pub(crate) fn documented(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serving.md");
    let page = std::fs::read_to_string(page).unwrap();
    let begin = format!("```{language}\n");
    page.split(&begin).nth(1).and_then(|rest| rest.split("```").next()).unwrap().to_owned()
}

impl Proxy {
    fn start(kind: ProxyKind, upstream: &str) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = directory.path();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let upstream = upstream.trim_start_matches("http://");
        let mut command = match kind {
            ProxyKind::Nginx => nginx(root, port, upstream),
            ProxyKind::Caddy => caddy(root, port, upstream),
        };
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, url: format!("http://127.0.0.1:{port}"), _directory: directory }
    }
}

fn nginx(root: &Path, port: u16, upstream: &str) -> Command {
    let location = documented("nginx").replace("127.0.0.1:8484", upstream);
    let at = root.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {at}/{name};\n"))
        .concat();
    let text = format!(
        "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log {at}/error.log;\nevents {{}}\nhttp {{\naccess_log off;\n\
         {temporary}server {{\nlisten 127.0.0.1:{port};\n{location}}}\n}}\n"
    );
    std::fs::write(root.join("nginx.conf"), text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-e").arg(root.join("error.log")).arg("-c").arg(root.join("nginx.conf")).arg("-p").arg(root);
    command
}

fn caddy(root: &Path, port: u16, upstream: &str) -> Command {
    let site = documented("caddy").replace("127.0.0.1:8484", upstream);
    let site = site.replace("haft.example.com", &format!("http://127.0.0.1:{port}"));
    std::fs::write(root.join("Caddyfile"), format!("{{\n\tadmin off\n}}\n{site}")).unwrap();
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(root.join("Caddyfile"));
    command.env("XDG_DATA_HOME", root).env("XDG_CONFIG_HOME", root).env("HOME", root);
    command
}

/// Starts a server whose model never completes its reply to a request with the text `Block`.
fn server() -> TestServer {
    let pace = ResponsePace { between_milliseconds: 600_000, ..ResponsePace::default() };
    let script = Script::of([ScriptStep::text("Hello.")]);
    let script = script.about("Block", [ScriptStep::text("Late.").at_pace(pace)]);
    let serve = json!({"trustedProxies": ["127.0.0.1"]});
    TestServer::configured(script, &json!({"models": {"default": "openai/m"}, "serve": serve}), &[])
}

async fn first_chunk(url: &str, key: &str) -> String {
    let body = json!({"model": "openai/m", "input": "Block", "stream": true}).to_string();
    let request = reqwest::Client::new().post(format!("{url}/v1/responses")).bearer_auth(key);
    let mut response = request.header("content-type", "application/json").body(body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()).into_owned()
}

async fn over_websocket(url: &str, key: &str) -> Value {
    let mut request = format!("{}/v1/responses", url.replace("http", "ws")).into_client_request().unwrap();
    request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    let (mut socket, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let create = json!({"type": "response.create", "model": "openai/m", "input": "Hi"});
    socket.send(Message::text(create.to_string())).await.unwrap();
    loop {
        let Message::Text(text) = socket.next().await.unwrap().unwrap() else { continue };
        let event: Value = serde_json::from_str(&text).unwrap();
        if ["response.completed", "error"].contains(&event["type"].as_str().unwrap()) {
            return event;
        }
    }
}

/// Sends a request through the proxy from another address of this machine.
async fn from_another_address(url: &str) {
    let client = reqwest::Client::builder().local_address(std::net::IpAddr::from([127, 0, 0, 2]));
    let request = client.build().unwrap().get(format!("{url}/v1/models"));
    // A client can write this header too, but the proxy appends the address that it sees.
    let reply = request.header("x-forwarded-for", "203.0.113.7").send().await.unwrap();
    assert_eq!(reply.status(), 401);
}

#[track_caller]
fn check(kind: ProxyKind) {
    let server = server();
    let proxy = Proxy::start(kind, &server.url);
    eventually("the proxy answers", || {
        let reply = server.executor.block_on(reqwest::get(format!("{}/healthz", proxy.url)));
        reply.is_ok_and(|reply| reply.status() == 200)
    });
    // The reply never ends, so this read would wait forever behind a proxy that holds back events.
    let waiting = first_chunk(&proxy.url, &server.key);
    let limit = std::time::Duration::from_secs(20);
    let first = server.executor.block_on(async { tokio::time::timeout(limit, waiting).await }).unwrap();
    assert!(first.starts_with("event: response.created\n"), "{first}");
    let ended = server.executor.block_on(over_websocket(&proxy.url, &server.key));
    assert_eq!(ended["type"], "response.completed", "{ended}");
    server.executor.block_on(from_another_address(&proxy.url));
    let lines = server.data_lines("access.jsonl");
    let refused: Vec<_> = lines.iter().filter(|line| line["status"] == 401).collect();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0]["address"], "127.0.0.2", "{}", refused[0]);
}

#[test]
fn nginx_passes_websockets_and_unbuffered_events() {
    check(ProxyKind::Nginx);
}

#[test]
fn caddy_passes_websockets_and_unbuffered_events() {
    check(ProxyKind::Caddy);
}
