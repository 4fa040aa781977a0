//! Tests of clients that do not read the replies to their requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::{ResponseFuture, SendRequest};
use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_store::api_keys::KeyScope;
use haft_testkit::eventually;
use reqwest::Method;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::fixture::{TestServer, scoped_key};
use super::responses::{ask, text};

/// The send timeout of the server. It is short, because each test waits for it.
const SEND_TIMEOUT: &str = "1s";

/// The maximum time in which a connection must end, even on a busy machine.
const END_TIMEOUT: Duration = Duration::from_mins(1);

/// The smallest receive buffer of a client, in bytes; the kernel makes it a little larger.
const SMALL_BUFFER: u32 = 4096;

/// A reply that does not fit into the send buffer of the server's socket, which has at most 4 MB.
const LONG_REPLY: usize = 8 << 20;

/// The maximum number of connections of most servers in these tests. While one client has the only connection, all
/// other clients wait.
const ONE_CONNECTION: usize = 1;

fn server(connections_max: usize, tls: Option<&TempDir>) -> TestServer {
    let long = "Many words. ".repeat(LONG_REPLY / 12 + 1);
    let pace = ResponsePace { delta_characters: Some(10_000), ..ResponsePace::default() };
    let pause = ResponsePace { between_milliseconds: 3_000, chunk_bytes: Some(600), ..pace };
    let stop = ResponsePace { between_milliseconds: 600_000, chunk_bytes: Some(LONG_REPLY), ..pace };
    let script = Script::of([ScriptStep::text("Hello.")])
        .about("Long", [ScriptStep::text(&long).at_pace(pace)])
        .about("Pause", [ScriptStep::text("Late. ").at_pace(pause)])
        .about("Stop", [ScriptStep::text(&long).at_pace(stop)]);
    let mut serve = json!({"maxConnections": connections_max, "sendTimeout": SEND_TIMEOUT});
    if let Some(files) = tls {
        let file = |name| files.path().join(name);
        serve["tls"] = json!({"certificate": file("cert.pem"), "key": file("key.pem")});
    }
    TestServer::configured(script, &json!({"models": {"default": "openai/m"}, "serve": serve}), &[])
}

async fn connect(server: &TestServer, buffer: u32) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(buffer).unwrap();
    let address = server.url.strip_prefix("http://").unwrap();
    socket.connect(address.parse().unwrap()).await.unwrap()
}

async fn connect_securely(server: &TestServer, authority: &str, protocol: &[u8]) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = connect(server, SMALL_BUFFER).await;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    timeout(END_TIMEOUT, handshake).await.unwrap().unwrap()
}

fn head(server: &TestServer, method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n", server.key)
}

fn post(server: &TestServer, body: &Value) -> String {
    let (head, body) = (head(server, "POST", "/v1/responses"), body.to_string());
    format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Sends a request, and reads only its status line.
async fn send(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str, status: &str) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = vec![0; status.len()];
    timeout(END_TIMEOUT, stream.read_exact(&mut line)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&line), status);
}

/// Checks that a client gets a connection.
async fn check_health(server: &TestServer) {
    let request = head(server, "GET", "/healthz") + "Connection: close\r\n\r\n";
    let mut stream = connect(server, SMALL_BUFFER).await;
    send(&mut stream, &request, "HTTP/1.1 200").await;
    stream.read_to_end(&mut Vec::new()).await.unwrap();
}

#[test]
fn clients_that_read_no_reply_lose_their_connections() {
    let server = server(ONE_CONNECTION, None);
    let stored = ask(&server, &json!({"model": "openai/m", "input": "Long", "background": true}));
    let path = format!("/v1/responses/{}", stored["id"].as_str().unwrap());
    eventually("the response is stored", || server.get(&path).json()["status"] == "completed");
    let long = |stream: bool| json!({"model": "openai/m", "input": "Long", "stream": stream});
    server.executor.block_on(async {
        for request in [
            post(&server, &long(false)),
            post(&server, &long(true)),
            head(&server, "GET", &path) + "\r\n",
            head(&server, "GET", &format!("{path}?stream=true")) + "\r\n",
        ] {
            let mut unread = connect(&server, SMALL_BUFFER).await;
            send(&mut unread, &request, "HTTP/1.1 200").await;
            check_health(&server).await;
        }
    });
}

/// The rest of a handshake for a WebSocket.
const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[test]
fn open_websocket_counts_against_the_connection_limit() {
    let server = server(ONE_CONNECTION, None);
    server.executor.block_on(async {
        let mut socket = connect(&server, SMALL_BUFFER).await;
        let request = head(&server, "GET", "/v1/responses") + UPGRADE;
        send(&mut socket, &request, "HTTP/1.1 101").await;
        let other = check_health(&server);
        let waits = timeout(Duration::from_millis(500), other).await;
        assert!(waits.is_err(), "the server exceeds its limit of connections");
        drop(socket);
        check_health(&server).await;
    });
}

#[test]
fn websocket_whose_client_reads_nothing_loses_its_connection() {
    let server = server(ONE_CONNECTION, None);
    server.executor.block_on(async {
        let mut unread = connect(&server, SMALL_BUFFER).await;
        let request = head(&server, "GET", "/v1/responses") + UPGRADE;
        send(&mut unread, &request, "HTTP/1.1 101").await;
        let text = json!({"type": "response.create", "model": "openai/m", "input": "Long"}).to_string();
        // A short text message with a mask of zeros, so that the text stays as it is.
        let mut frame = vec![0x81, 0x80 | u8::try_from(text.len()).unwrap(), 0, 0, 0, 0];
        frame.extend(text.as_bytes());
        unread.write_all(&frame).await.unwrap();
        check_health(&server).await;
    });
}

#[test]
fn run_of_a_client_that_stops_reading_is_cancelled() {
    let server = server(8, None);
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let active = || {
        let reply = server.send(server.without_key(Method::GET, "/metrics").bearer_auth(&admin));
        reply.text.lines().find_map(|line| line.strip_prefix("haft_responses_active ")).unwrap().to_owned()
    };
    let mut unread = server.executor.block_on(connect(&server, SMALL_BUFFER));
    let request = post(&server, &json!({"model": "openai/m", "input": "Stop", "stream": true}));
    server.executor.block_on(send(&mut unread, &request, "HTTP/1.1 200"));
    assert_eq!(active(), "1");
    eventually("the run was cancelled", || active() == "0");
}

/// The text of a run is 24 MB, and the server keeps at most 8 MB of events that are not stored.
#[test]
fn unstored_stream_fails_if_its_slow_client_misses_events() {
    let long = "Many words. ".repeat(3 * LONG_REPLY / 12);
    let pace = ResponsePace { delta_characters: Some(10_000), ..ResponsePace::default() };
    let script = Script::of([ScriptStep::text(&long).at_pace(pace)]);
    let server = TestServer::configured(script, &json!({"models": {"default": "openai/m"}}), &[]);
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let is_finished = || {
        let reply = server.send(server.without_key(Method::GET, "/metrics").bearer_auth(&admin));
        reply.text.lines().any(|line| line.starts_with("haft_runs_finished_total{") && !line.ends_with(" 0"))
    };
    let mut slow = server.executor.block_on(connect(&server, SMALL_BUFFER));
    let request = post(&server, &json!({"model": "openai/m", "input": "x", "stream": true, "store": false}));
    let request = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    server.executor.block_on(send(&mut slow, &request, "HTTP/1.1 200"));
    eventually("the run ends before its events are read", is_finished);
    let mut rest = Vec::new();
    server.executor.block_on(async {
        timeout(END_TIMEOUT, slow.read_to_end(&mut rest)).await.unwrap().unwrap();
    });
    let rest = String::from_utf8_lossy(&rest);
    let last = &rest[rest.len().saturating_sub(100_000)..];
    assert!(rest.contains("event: response.failed") && rest.contains("\"code\":\"events_lost\""), "{last}");
}

#[test]
fn silent_stream_and_slow_reader_keep_their_connections() {
    let server = server(8, None);
    server.executor.block_on(async {
        let mut silent = connect(&server, SMALL_BUFFER).await;
        let request = post(&server, &json!({"model": "openai/m", "input": "Pause", "stream": true}));
        send(&mut silent, &request, "HTTP/1.1 200").await;
        let mut slow = connect(&server, 1 << 16).await;
        let request = post(&server, &json!({"model": "openai/m", "input": "Long"}));
        send(&mut slow, &request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"), "HTTP/1.1 200").await;
        let (mut read, mut part) = (0, vec![0; 1 << 16]);
        loop {
            // The reply takes three times as long as the limit.
            sleep(Duration::from_millis(25)).await;
            match slow.read(&mut part).await.unwrap() {
                0 => break,
                length => read += length,
            }
        }
        assert!(read > LONG_REPLY, "the slow reader got only {read} bytes");
        let mut events = Vec::new();
        while !String::from_utf8_lossy(&events).contains("data: [DONE]") {
            let length = timeout(END_TIMEOUT, silent.read_buf(&mut events)).await.unwrap().unwrap();
            assert!(length > 0, "the stream ended early");
        }
    });
}

#[test]
fn clients_with_tls_that_read_no_reply_lose_their_connections() {
    let files = tempfile::tempdir().unwrap();
    let authority = haft_testkit::write_certificate(files.path());
    let server = server(ONE_CONNECTION, Some(&files));
    server.executor.block_on(async {
        let request = post(&server, &json!({"model": "openai/m", "input": "Long", "stream": true}));
        let mut unread = connect_securely(&server, &authority, b"http/1.1").await;
        send(&mut unread, &request, "HTTP/1.1 200").await;
        // This call waits for its handshake until the first client has lost the only connection.
        let mut second = connect_securely(&server, &authority, b"http/1.1").await;
        send(&mut second, &request, "HTTP/1.1 200").await;
        drop(second);
        let (client, connection) =
            h2::client::handshake(connect_h2(&server, &authority).await).await.unwrap();
        let mut connection = Box::pin(connection);
        let body = json!({"model": "openai/m", "input": "Long", "stream": true});
        let replied = async { request_h2(&server, client, "POST", "/v1/responses", &body).await.await };
        // The connection is polled only until the reply begins.
        let reply = tokio::select! {
            reply = replied => reply.unwrap(),
            ended = &mut connection => panic!("the connection ended: {ended:?}"),
        };
        assert_eq!(reply.status(), 200);
        drop(connect_securely(&server, &authority, b"http/1.1").await);
    });
}

async fn connect_h2(server: &TestServer, authority: &str) -> TlsStream<TcpStream> {
    connect_securely(server, authority, b"h2").await
}

async fn request_h2(
    server: &TestServer,
    client: SendRequest<Bytes>,
    method: &str,
    path: &str,
    body: &Value,
) -> ResponseFuture {
    let request = http::Request::builder()
        .method(method)
        .uri(format!("https://localhost{path}"))
        .header("authorization", format!("Bearer {}", server.key))
        .header("content-type", "application/json");
    let mut client = client.ready().await.unwrap();
    // Without a body, end the stream with the headers: the server may answer and close the stream before it gets more
    // data.
    let (reply, mut stream) = client.send_request(request.body(()).unwrap(), body.is_null()).unwrap();
    if !body.is_null() {
        stream.send_data(body.to_string().into(), true).unwrap();
    }
    reply
}

#[test]
fn http2_request_with_more_than_64_kibibytes_of_headers_is_refused() {
    let files = tempfile::tempdir().unwrap();
    let authority = haft_testkit::write_certificate(files.path());
    let server = server(ONE_CONNECTION, Some(&files));
    server.executor.block_on(async {
        let (client, connection) =
            h2::client::handshake(connect_h2(&server, &authority).await).await.unwrap();
        tokio::spawn(connection);
        // The refusal of one request does not end the connection.
        for (count, expected) in [(30, 200), (100, 431), (30, 200)] {
            let head = http::Request::builder()
                .uri("https://localhost/v1/models")
                .header("authorization", format!("Bearer {}", server.key));
            let padded =
                (0..count).fold(head, |head, at| head.header(format!("x-pad-{at}"), "x".repeat(1000)));
            let mut client = client.clone().ready().await.unwrap();
            let (reply, _) = client.send_request(padded.body(()).unwrap(), true).unwrap();
            assert_eq!(reply.await.unwrap().status(), expected, "{count}");
        }
    });
}

#[test]
fn unread_http2_stream_is_reset_without_ending_other_streams() {
    let files = tempfile::tempdir().unwrap();
    let authority = haft_testkit::write_certificate(files.path());
    let server = server(ONE_CONNECTION, Some(&files));
    server.executor.block_on(async {
        let mut builder = h2::client::Builder::new();
        builder.initial_connection_window_size(1 << 24);
        let (client, connection) = builder.handshake(connect_h2(&server, &authority).await).await.unwrap();
        tokio::spawn(connection);
        let get = async || {
            let reply = request_h2(&server, client.clone(), "GET", "/v1/models", &Value::Null).await;
            assert_eq!(reply.await.unwrap().status(), 200);
        };
        for streamed in [true, false] {
            let body = json!({"model": "openai/m", "input": "Long", "stream": streamed});
            let unread = request_h2(&server, client.clone(), "POST", "/v1/responses", &body).await;
            // Other requests use the same connection until the unread stream is reset, and once more to check
            // that it is still open.
            let others = async {
                loop {
                    get().await;
                    sleep(Duration::from_millis(100)).await;
                }
            };
            let error = tokio::select! {
                error = timeout(END_TIMEOUT, reset(unread)) => error.unwrap(),
                () = others => unreachable!(),
            };
            assert!(error.is_reset(), "{error}");
            get().await;
        }
    });
}

/// Reads a reply without allowing more data than the first window of its stream, and returns the error that ends it.
async fn reset(reply: ResponseFuture) -> h2::Error {
    let mut body = reply.await.unwrap().into_body();
    loop {
        match body.data().await.unwrap() {
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}

#[test]
fn http2_connection_closes_even_if_its_client_leaves_a_reply_unread() {
    let files = tempfile::tempdir().unwrap();
    let authority = haft_testkit::write_certificate(files.path());
    let server = server(ONE_CONNECTION, Some(&files));
    server.executor.block_on(async {
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(1);
        let (client, connection) = builder.handshake(connect_h2(&server, &authority).await).await.unwrap();
        let connection = tokio::spawn(connection);
        let reply = request_h2(&server, client, "GET", "/v1/models", &Value::Null).await;
        let reply = reply.await.unwrap();
        let _ = timeout(END_TIMEOUT, connection).await.unwrap();
        drop(reply);
    });
}

#[test]
fn silent_http2_stream_keeps_its_connection() {
    let files = tempfile::tempdir().unwrap();
    let authority = haft_testkit::write_certificate(files.path());
    let server = server(ONE_CONNECTION, Some(&files));
    server.executor.block_on(async {
        let (client, connection) =
            h2::client::handshake(connect_h2(&server, &authority).await).await.unwrap();
        tokio::spawn(connection);
        let body = json!({"model": "openai/m", "input": "Pause", "stream": true});
        let reply = request_h2(&server, client, "POST", "/v1/responses", &body).await.await.unwrap();
        let (mut body, mut events) = (reply.into_body(), String::new());
        while let Some(chunk) = body.data().await {
            events.push_str(&String::from_utf8_lossy(&chunk.unwrap()));
        }
        assert!(events.ends_with("data: [DONE]\n\n"), "the stream ended early: {events}");
    });
}

#[test]
fn reply_over_http2_is_complete() {
    let files = tempfile::tempdir().unwrap();
    let authority = haft_testkit::write_certificate(files.path());
    let server = server(ONE_CONNECTION, Some(&files));
    server.executor.block_on(async {
        let (client, connection) =
            h2::client::handshake(connect_h2(&server, &authority).await).await.unwrap();
        tokio::spawn(connection);
        let body = json!({"model": "openai/m", "input": "Long"});
        let reply = request_h2(&server, client, "POST", "/v1/responses", &body).await.await.unwrap();
        let length: usize = reply.headers()["content-length"].to_str().unwrap().parse().unwrap();
        let (mut body, mut received) = (reply.into_body(), Vec::new());
        while let Some(chunk) = body.data().await {
            let chunk = chunk.unwrap();
            body.flow_control().release_capacity(chunk.len()).unwrap();
            received.extend_from_slice(&chunk);
        }
        assert_eq!(received.len(), length);
        let response: Value = serde_json::from_slice(&received).unwrap();
        assert!(text(&response).len() > LONG_REPLY);
    });
}

/// The number of requests that a client sends and resets at once.
const RESET_REQUESTS: usize = 1_000;

/// The memory between a client and the network, in bytes. All its requests fit.
const HELD_BYTES_MAX: usize = 1 << 20;

/// Sends requests and resets each of them at once, in one piece, and returns the error with which the server closes the
/// connection.
async fn reset_rapidly(server: &TestServer, authority: &str) -> h2::Error {
    // The client writes into memory first. Otherwise it would send no request that it resets at once.
    let (near, mut far) = tokio::io::duplex(HELD_BYTES_MAX);
    let (mut client, connection) = h2::client::handshake(near).await.unwrap();
    let mut connection = Box::pin(connection);
    for _ in 0..RESET_REQUESTS {
        let request = http::Request::builder().uri("https://localhost/v1/models");
        let (_, mut stream) = client.send_request(request.body(()).unwrap(), false).unwrap();
        assert!(connection.as_mut().now_or_never().is_none(), "the connection ended");
        stream.send_reset(h2::Reason::CANCEL);
        assert!(connection.as_mut().now_or_never().is_none(), "the connection ended");
    }
    let mut held = vec![0; HELD_BYTES_MAX];
    let length = far.read(&mut held).await.unwrap();
    let mut network = connect_h2(server, authority).await;
    network.write_all(&held[..length]).await.unwrap();
    // The server may close the connection before it has read everything, so sending more could fail.
    let received = async {
        let _ = tokio::io::copy(&mut network, &mut far).await;
        far.shutdown().await.unwrap();
    };
    let (ended, ()) = timeout(END_TIMEOUT, futures_util::future::join(connection, received)).await.unwrap();
    ended.unwrap_err()
}

#[test]
fn client_that_resets_its_requests_rapidly_loses_its_connection_and_others_are_served() {
    let files = tempfile::tempdir().unwrap();
    let authority = haft_testkit::write_certificate(files.path());
    let server = server(ONE_CONNECTION, Some(&files));
    server.executor.block_on(async {
        let error = reset_rapidly(&server, &authority).await;
        assert_eq!(error.reason(), Some(h2::Reason::ENHANCE_YOUR_CALM), "{error}");
        // The only connection is free again.
        let (client, connection) =
            h2::client::handshake(connect_h2(&server, &authority).await).await.unwrap();
        tokio::spawn(connection);
        let reply = request_h2(&server, client, "GET", "/v1/models", &Value::Null).await;
        assert_eq!(reply.await.unwrap().status(), 200);
    });
}
