//! Tests of keys, hosts, origins, content types, request ids and the model list.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use haft_model_server::{Script, ScriptStep};
use reqwest::{Method, RequestBuilder};
use serde_json::json;
use tokio_tungstenite::tungstenite::{self, client::IntoClientRequest as _};

use super::fixture::{CONNECTIONS_MAX, HEAD_TIMEOUT, TestServer, key};

fn server() -> TestServer {
    TestServer::start(Script::of([ScriptStep::text("Hello.")]))
}

#[test]
fn every_route_below_v1_needs_a_key_but_health_checks_do_not() {
    let server = server();
    for path in ["/v1/models", "/v1/models/helper", "/v1/no-such-route"] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let reply = server.send(server.without_key(method.clone(), path));
            assert_eq!(reply.status, 401, "{method} {path}: {}", reply.text);
            assert_eq!(reply.json()["error"]["code"], "invalid_api_key", "{method} {path}");
        }
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.send(server.without_key(Method::GET, path)).status, 200, "{path}");
    }
}

/// The number of requests without a key that the test sends to one server. After ten failed logins, the server would
/// answer 429 instead of 401.
const OPEN_REQUESTS: usize = 8;

#[test]
fn every_route_of_the_table_exists_and_needs_a_key() {
    let routes: Vec<(Method, String)> = haft_server::v1_routes()
        .map(|(method, path)| {
            let path =
                ["{*id}", "{id}", "{item}"].iter().fold(path.to_owned(), |path, id| path.replace(id, "x"));
            (method.parse().unwrap(), format!("/v1{path}"))
        })
        .collect();
    assert!(routes.contains(&(Method::DELETE, "/v1/conversations/x/items/x".into())), "{routes:?}");
    for some in routes.chunks(OPEN_REQUESTS) {
        let server = server();
        let unknown = server.get("/v1/no-such-route").json()["error"]["message"].clone();
        for (method, path) in some {
            let request = |key: Option<&str>| {
                let request = server.without_key(method.clone(), path);
                let request = request.header("content-type", "application/json").body("{}");
                server.send(key.into_iter().fold(request, RequestBuilder::bearer_auth))
            };
            assert_eq!(request(None).status, 401, "{method} {path}");
            let with_key = request(Some(&server.key));
            let is_route =
                ![401, 405].contains(&with_key.status) && with_key.json()["error"]["message"] != unknown;
            assert!(is_route, "{method} {path}: {}", with_key.text);
        }
        assert!(server.model.requests().is_empty());
    }
}

#[test]
fn streams_and_websockets_of_foreign_pages_are_refused() {
    let server = server();
    let body = r#"{"model": "helper", "input": "Hi", "stream": true}"#;
    let stream = |origin: &str| {
        let request = server.request(Method::POST, "/v1/responses").header("origin", origin);
        server.send(request.header("content-type", "application/json").body(body))
    };
    assert_eq!(stream("https://evil.com").status, 403);
    let replay = server.request(Method::GET, "/v1/responses/resp_1?stream=true");
    assert_eq!(server.send(replay.header("origin", "https://evil.com")).status, 403);
    assert!(server.model.requests().is_empty(), "a refused request starts no run");
    assert_eq!(stream(&server.url).status, 200);
    let handshake = |origin: &str| {
        let mut request =
            format!("{}/v1/responses", server.url.replace("http", "ws")).into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("authorization", format!("Bearer {}", server.key).parse().unwrap());
        headers.insert("origin", origin.parse().unwrap());
        match server.executor.block_on(tokio_tungstenite::connect_async(request)) {
            Ok((_, response)) => response.status().as_u16(),
            Err(tungstenite::Error::Http(response)) => response.status().as_u16(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((handshake("https://evil.com"), handshake("null"), handshake(&server.url)), (403, 403, 101));
}

#[test]
fn unknown_expired_and_revoked_keys_are_refused_at_once() {
    let server = server();
    let status = |secret: &str| {
        let request = server.without_key(Method::GET, "/v1/models").bearer_auth(secret);
        server.send(request).status
    };
    let (anna, old) = (key(&server.store, "acme", "anna", None), key(&server.store, "acme", "anna", Some(2)));
    assert_eq!((status(&anna), status(&old), status("haft_00")), (200, 401, 401));
    let ids: Vec<String> = server.store.load().unwrap().all().iter().map(|key| key.id.clone()).collect();
    server.store.revoke(&ids).unwrap();
    assert_eq!((status(&anna), status(&server.key)), (401, 401));
}

#[test]
fn key_in_the_url_is_not_accepted() {
    let server = server();
    let path = format!("/v1/models?api_key={}&key={}", server.key, server.key);
    assert_eq!(server.send(server.without_key(Method::GET, &path)).status, 401);
}

#[test]
fn requests_for_other_hosts_and_from_other_sites_are_refused() {
    let server = server();
    let status = |name: &str, value: &str| {
        server.send(server.request(Method::GET, "/v1/models").header(name, value)).status
    };
    assert_eq!(status("host", "evil.com"), 421);
    assert_eq!(status("host", "localhost:1"), 200);
    assert_eq!(status("origin", "https://evil.com"), 403);
    assert_eq!(status("origin", "null"), 403);
    assert_eq!(status("origin", &server.url), 200);
    let health = server.without_key(Method::GET, "/healthz").header("host", "evil.com");
    assert_eq!(server.send(health).status, 421, "health checks refuse pages of other sites");
}

#[test]
fn body_with_a_duplicate_field_is_refused() {
    let server = server();
    let post = |path: &str, body: &str| {
        let request = server.request(Method::POST, path).header("content-type", "application/json");
        server.send(request.body(body.to_owned()))
    };
    for (path, body, param) in [
        ("/v1/responses", r#"{"model":"helper","input":"a","input":"b"}"#, "input"),
        (
            "/v1/responses",
            r#"{"model":"helper","input":[{"role":"user","role":"system","content":"a"}]}"#,
            "input[0].role",
        ),
        ("/v1/conversations", r#"{"metadata":{"a":"1","a":"2"}}"#, "metadata.a"),
        ("/api/v1/runs", r#"{"agent":"helper","input":"a","agent":"other"}"#, "agent"),
    ] {
        let refused = post(path, body);
        assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
    assert!(server.model.requests().is_empty());
}

#[test]
fn body_whose_content_type_is_not_json_is_refused() {
    let server = server();
    let request = server.request(Method::POST, "/v1/models").header("content-type", "text/plain").body("{}");
    assert_eq!(server.send(request).status, 415);
}

#[test]
fn replies_have_unique_ids_and_errors_in_the_format_of_openai() {
    let server = server();
    let replies = [server.get("/v1/models"), server.get("/v1/none"), server.get("/healthz")];
    let ids: HashSet<_> = replies.iter().map(|reply| reply.headers["x-request-id"].clone()).collect();
    assert_eq!(ids.len(), 3);
    let error = &replies[1].json()["error"];
    assert_eq!((replies[1].status, &error["type"]), (404, &json!("not_found")));
    assert!(error["message"].is_string() && error["param"].is_null() && error["code"].is_null(), "{error}");
    let wrong = server.send(server.request(Method::PUT, "/v1/models"));
    assert_eq!((wrong.status, &wrong.json()["error"]["type"]), (405, &json!("invalid_request_error")));
}

#[test]
fn server_continues_after_it_refuses_huge_headers_and_urls() {
    let server = server();
    let address = server.url.strip_prefix("http://").unwrap();
    let begin = format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\n");
    let many = "x: y\r\n".repeat(10_000);
    let requests = [
        ("431", format!("{begin}{many}\r\n")),
        ("431", format!("{begin}x: {}\r\n\r\n", "y".repeat(1 << 20))),
        ("414", format!("GET /{} HTTP/1.1\r\nHost: {address}\r\n\r\n", "y".repeat(1 << 17))),
    ];
    for (status, request) in requests {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(10 * HEAD_TIMEOUT)).unwrap();
        // The server may close the connection before it has read all of the request. The kernel still delivers the
        // reply, which the server wrote before.
        let _ = stream.write_all(request.as_bytes());
        let mut reply = vec![0; 4096];
        let length = stream.read(&mut reply).unwrap();
        let reply = String::from_utf8_lossy(&reply[..length]);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {reply}");
    }
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn model_list_contains_the_agents_and_the_configured_models() {
    let server = server();
    let list = server.get("/v1/models").json();
    let ids: Vec<&str> =
        list["data"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!((list["object"].as_str(), ids), (Some("list"), vec!["helper", "openai/m"]));
    assert_eq!(server.get("/v1/models/openai%2Fm").json()["owned_by"], "openai");
    assert_eq!(server.get("/v1/models/openai/m").json()["object"], "model");
    assert_eq!(server.get("/v1/models/none").status, 404);
}

#[test]
fn connections_that_finish_no_tls_handshake_are_closed() {
    let files = tempfile::tempdir().unwrap();
    haft_testkit::write_certificate(files.path());
    let tls = json!({"certificate": files.path().join("cert.pem"), "key": files.path().join("key.pem")});
    let server = TestServer::configured(Script::default(), &json!({"serve": {"tls": tls}}), &[]);
    let mut stream = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(10 * HEAD_TIMEOUT)).unwrap();
    let ended = stream.read_to_end(&mut Vec::new());
    assert!(ended.is_ok(), "the connection stayed open: {ended:?}");
}

/// A client without a key must not block other clients.
#[test]
fn idle_connections_are_closed_and_free_their_slots() {
    let server = server();
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let open = |sent: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(10 * HEAD_TIMEOUT)).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        stream
    };
    let half = "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n";
    let kept = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Open more connections than the server serves at once: without data, with half a head, and with a request and then
    // silence.
    let began = Instant::now();
    let mut idle: Vec<TcpStream> =
        ["", half, kept].iter().cycle().take(2 * CONNECTIONS_MAX).map(|sent| open(sent)).collect();
    assert_eq!(server.get("/v1/models").status, 200);
    // Each half of the connections occupies all slots until the head timeout.
    assert!(began.elapsed() >= 2 * HEAD_TIMEOUT, "the server exceeds its limit of connections");
    for stream in &mut idle {
        let mut rest = Vec::new();
        // A reset closes the connection too; only a read timeout means that it stayed open.
        let ended = stream.read_to_end(&mut rest);
        let is_open = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!is_open, "a connection stayed open after {}", String::from_utf8_lossy(&rest));
    }
    let mut slow = open(&format!(
        "{half}Content-Type: application/json\r\nAuthorization: Bearer {}\r\n\r\n{{",
        server.key
    ));
    let mut reply = vec![0; 4096];
    let read = slow.read(&mut reply).unwrap();
    let reply = String::from_utf8_lossy(&reply[..read]);
    assert!(reply.starts_with("HTTP/1.1 400") && reply.contains("did not arrive within"), "{reply}");
}
