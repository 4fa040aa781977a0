//! Tests of many streams whose clients do not read: they must not delay other clients, and must leave nothing behind.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_store::api_keys::KeyScope;
use haft_testkit::{eventually, raise_file_limit};
use reqwest::Method;
use serde_json::{Value, json};

use super::fixture::{TestServer, scoped_key};
use super::responses::{ask, text};

const STREAMS: usize = 500;
const READERS: usize = 200;

/// The maximum time until a server with free connections answers, even on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The number of connections for the other clients.
const OTHERS: usize = 8;

/// Starts a server with slots for the streams and for a few others. Its model sends the first words of the answer to
/// `Block`, or a megabyte of the answer to `Long`, and then pauses.
fn server() -> TestServer {
    raise_file_limit();
    let pace = |first_bytes| ResponsePace {
        chunk_bytes: Some(first_bytes),
        delta_characters: Some(first_bytes / 10),
        between_milliseconds: 600_000,
        ..ResponsePace::default()
    };
    let script = Script::of([ScriptStep::text("Hello.")])
        .about("Block", [ScriptStep::text(&"Late. ".repeat(100)).at_pace(pace(600))])
        .about("Long", [ScriptStep::text(&"Many words. ".repeat(100_000)).at_pace(pace(1 << 20))]);
    let most = STREAMS + OTHERS;
    let serve = json!({"maxConnections": most, "maxRuns": most, "maxWaitingRuns": 0});
    TestServer::configured(script, &json!({"models": {"default": "openai/m"}, "serve": serve}), &[])
}

/// Sends a request for a stream, and reads only the status line.
fn open(server: &TestServer, method: &str, path: &str, body: &Value) -> TcpStream {
    let address = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n", server.key);
    let head = format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut status = [0; 15];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 200 OK");
    stream
}

fn metric(server: &TestServer, admin: &str, name: &str) -> String {
    let reply = server.send(server.without_key(Method::GET, "/metrics").bearer_auth(admin));
    reply.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap().to_owned()
}

#[test]
fn idle_streams_delay_no_other_client_and_end_their_runs_at_disconnect() {
    let server = server();
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let active = || metric(&server, &admin, "haft_responses_active");
    for round in 1..=2 {
        // The second round succeeds only if the first round has released its connections and its slots.
        let body = json!({"model": "openai/m", "input": "Block", "stream": true, "store": round == 1});
        let streams: Vec<_> = (0..STREAMS).map(|_| open(&server, "POST", "/v1/responses", &body)).collect();
        assert_eq!(active(), STREAMS.to_string());
        assert_eq!(text(&ask(&server, &json!({"model": "openai/m", "input": "x"}))), "Hello.");
        drop(streams);
        eventually("all runs have ended", || active() == "0");
    }
}

/// Some clients lose an event whose parts arrive in two reads, so the server must not split an event over two chunks or
/// join two events in one.
#[test]
fn each_event_is_one_chunk_of_the_http_reply() {
    let server = server();
    let body = json!({"model": "openai/m", "input": "x", "stream": true});
    let mut stream = open(&server, "POST", "/v1/responses", &body);
    let mut text = String::new();
    // The connection stays open after the reply, so read up to the last chunk.
    while !text.ends_with("\r\n0\r\n\r\n") {
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).unwrap();
        assert!(length > 0, "{text}");
        text.push_str(std::str::from_utf8(&bytes[..length]).unwrap());
    }
    let (_, mut rest) = text.split_once("\r\n\r\n").unwrap();
    let mut chunks = Vec::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        chunks.push(&after[..size]);
        rest = &after[size + "\r\n".len()..];
    }
    assert_eq!((chunks.pop(), chunks.pop()), (Some(""), Some("data: [DONE]\n\n")), "{text}");
    assert!(chunks.len() >= 8, "{chunks:?}");
    for chunk in chunks {
        let is_event = chunk.starts_with("event: ") && chunk.find("\n\n") == Some(chunk.len() - 2);
        assert!(is_event, "{chunk}");
    }
}

/// A client that closes its sending side counts as disconnected, because it looks the same as one that has gone.
#[test]
fn run_of_a_client_that_closes_its_sending_side_is_cancelled() {
    let server = server();
    let admin = scoped_key(&server.store, &[KeyScope::Admin]);
    let active = || metric(&server, &admin, "haft_responses_active");
    let body = json!({"model": "openai/m", "input": "Block", "stream": true});
    let stream = open(&server, "POST", "/v1/responses", &body);
    assert_eq!(active(), "1");
    stream.shutdown(Shutdown::Write).unwrap();
    eventually("the run has ended", || active() == "0");
}

#[test]
fn stalled_readers_delay_no_other_client_and_release_their_connections() {
    let server = server();
    let started = ask(&server, &json!({"model": "openai/m", "input": "Long", "background": true}));
    let path = format!("/v1/responses/{}", started["id"].as_str().unwrap());
    let stream = format!("{path}?stream=true");
    let readers: Vec<_> = (0..READERS).map(|_| open(&server, "GET", &stream, &Value::Null)).collect();
    let mut reader = open(&server, "GET", &stream, &Value::Null);
    reader.read_exact(&mut vec![0; 500_000]).unwrap();
    assert_eq!(server.get(&path).json()["status"], "in_progress");
    let cancelled = server.send(server.request(Method::POST, &format!("{path}/cancel")));
    assert_eq!(cancelled.json()["status"], "cancelled");
    drop((readers, reader));
    let idle: Vec<_> = (0..STREAMS).map(|_| open(&server, "GET", "/healthz", &Value::Null)).collect();
    assert_eq!(idle.len(), STREAMS);
}

/// The time in which the slow clients send bytes. It is longer than the timeout for the head of a request.
const DRIP_TIME: Duration = Duration::from_secs(3);

/// The pause of a slow client between two bytes. It is shorter than the timeout, so a timer that each byte restarts would
/// never close the connection.
const DRIP_PAUSE: Duration = Duration::from_millis(500);

/// The maximum time until half of the other clients are served. The test adds twice the time that such clients needed
/// before the attack, because a busy machine serves them slowly even without an attack.
const SERVED_WITHIN: Duration = Duration::from_millis(100);

/// The maximum time until each other client is served, even on a busy machine. It is usually a few milliseconds.
const LAST_SERVED_WITHIN: Duration = Duration::from_secs(5);

/// The number of other clients before the attack, and in each pause of the slow clients.
const CLIENTS_BEFORE: usize = 21;
const CLIENTS_IN_PAUSE: usize = 5;

/// Returns the times until these clients, one after the other, are served.
fn times_to_answer(server: &TestServer, clients: usize) -> Vec<Duration> {
    let time = |_| {
        let asked = Instant::now();
        assert_eq!(text(&ask(server, &json!({"model": "openai/m", "input": "x"}))), "Hello.");
        asked.elapsed()
    };
    (0..clients).map(time).collect()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
fn clients_that_send_one_byte_at_a_time_delay_no_other_client_and_are_disconnected() {
    let server = server();
    let address = server.url.strip_prefix("http://").unwrap();
    let head = "POST /v1/responses HTTP/1.1\r\nHost: ".as_bytes();
    let before = median(&mut times_to_answer(&server, CLIENTS_BEFORE));
    let mut slow: Vec<TcpStream> = (0..STREAMS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let began = Instant::now();
    let mut times = Vec::new();
    for byte in head.iter().cycle() {
        // A connection that the server has closed returns an error.
        for stream in &mut slow {
            let _ = stream.write(&[*byte]);
        }
        let asked = Instant::now();
        times.extend(times_to_answer(&server, CLIENTS_IN_PAUSE));
        if began.elapsed() > DRIP_TIME {
            break;
        }
        std::thread::sleep(DRIP_PAUSE.saturating_sub(asked.elapsed()));
    }
    let usual = median(&mut times);
    let slowest = times.last().copied().unwrap_or_default();
    println!("other clients were served in {usual:?}, before in {before:?}; the last one in {slowest:?}");
    assert!(usual < SERVED_WITHIN + 2 * before, "{usual:?}, before {before:?}");
    assert!(slowest < LAST_SERVED_WITHIN, "{slowest:?}");
    for stream in &mut slow {
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        let ended = stream.read_to_end(&mut Vec::new());
        // A reset closes the connection too; only a read timeout means that it stayed open.
        let is_open = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!is_open, "a connection stayed open");
    }
}
