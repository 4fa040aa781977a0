//! Tests of requests and streams that could use up the memory of a server. The server runs in a process of its own, so that
//! other tests do not change its memory.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use haft_model_server::{ResponsePace, Script, ScriptStep};
use haft_testkit::{eventually, raise_file_limit};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketType};
use serde_json::{Value, json};

use super::fixture::ServerFiles;
use super::restart::ServerProcess;

/// The maximum time until the server answers, even on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// The number of idle clients, which each read the same stream.
const IDLE_CLIENTS: usize = 10_000;

/// The largest memory of the server for one idle client, in bytes.
const IDLE_CLIENT_BYTES_MAX: u64 = 128 << 10;

/// The number of clients that do not read their streams.
const STALLED_READERS: usize = 100;

/// The length of a text that its clients do not read, in bytes.
const LONG_TEXT: usize = 4 << 20;

/// The largest memory that all stalled readers together may occupy, in bytes. Copies of the stream for each of them would
/// need four times as much.
const STALLED_BYTES_MAX: u64 = 50 << 20;

/// The size of a body without a length, in mebibytes.
const BODY_MIB: usize = 1 << 10;

/// The largest growth of the server's memory by such bodies, in bytes: a few times the largest accepted body.
const BODY_GROWTH_MAX: u64 = 200 << 20;

/// The receive buffer of a client that does not read, in bytes; the kernel makes it a little larger.
const SMALL_BUFFER: usize = 4096;

/// Starts a server whose model pauses after the first words of an answer to `Block`, and before the end of a long answer to
/// `Long`.
fn start() -> (ServerFiles, ServerProcess) {
    let pace = |first_bytes| ResponsePace {
        chunk_bytes: Some(first_bytes),
        delta_characters: Some(first_bytes.min(10_000)),
        between_milliseconds: 600_000,
        ..ResponsePace::default()
    };
    let long = "Many words. ".repeat(LONG_TEXT / 12);
    let script = Script::of([ScriptStep::text("Hello.")])
        .about("Block", [ScriptStep::text(&"Late. ".repeat(100)).at_pace(pace(600))])
        .about("Long", [ScriptStep::text(&long).at_pace(pace(LONG_TEXT / 2))]);
    let serve = json!({"maxConnections": IDLE_CLIENTS + 100});
    let config = json!({"models": {"default": "openai/m"}, "serve": serve});
    let files = ServerFiles::new(script, &config, &[]);
    let process = ServerProcess::start(&files);
    (files, process)
}

/// Sends the head of a request and its body, and returns the connection.
fn send(files: &ServerFiles, server: &ServerProcess, line: &str, rest: &str) -> TcpStream {
    let address = server.url.strip_prefix("http://").unwrap();
    let stream = TcpStream::connect(address).unwrap();
    send_over(stream, files, line, rest)
}

fn send_over(mut stream: TcpStream, files: &ServerFiles, line: &str, rest: &str) -> TcpStream {
    let address = stream.peer_addr().unwrap();
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    let head = format!("{line} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n", files.key);
    stream.write_all(format!("{head}Content-Type: application/json\r\n{rest}").as_bytes()).unwrap();
    stream
}

/// Connects with a small receive buffer, so that the kernel takes only a small part of a reply.
fn connect_narrowly(server: &ServerProcess) -> TcpStream {
    let address: SocketAddr = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_recv_buffer_size(&socket, SMALL_BUFFER).unwrap();
    rustix::net::connect(&socket, &address).unwrap();
    socket.into()
}

/// Opens a stream, and reads only the status line of the reply.
fn open(files: &ServerFiles, server: &ServerProcess, path: &str) -> TcpStream {
    read_status(send(files, server, &format!("GET {path}"), "\r\n"))
}

fn read_status(mut stream: TcpStream) -> TcpStream {
    let mut status = [0; 15];
    stream.read_exact(&mut status).unwrap();
    assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 200 OK");
    stream
}

fn ask(files: &ServerFiles, server: &ServerProcess, body: &Value) -> Value {
    let body = body.to_string();
    let rest = format!("Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    read_json(send(files, server, "POST /v1/responses", &rest))
}

fn get(files: &ServerFiles, server: &ServerProcess, path: &str) -> Value {
    read_json(send(files, server, &format!("GET {path}"), "Connection: close\r\n\r\n"))
}

fn read_json(mut stream: TcpStream) -> Value {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns a size from the status of a process, in bytes: `VmRSS` for its memory, or `VmHWM` for the largest so far.
fn memory(server: &ServerProcess, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn open_files(server: &ServerProcess) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count()
}

/// Starts a background response, and returns the path of its stream after the model has sent its text.
fn begin(files: &ServerFiles, server: &ServerProcess, input: &str, sent: usize) -> String {
    let started = ask(files, server, &json!({"model": "openai/m", "input": input, "background": true}));
    let path = format!("/v1/responses/{}?stream=true", started["id"].as_str().unwrap());
    let mut stream = open(files, server, &path);
    let (mut read, mut part) = (0, vec![0; 1 << 16]);
    while read < sent {
        let length = stream.read(&mut part).unwrap();
        assert!(length > 0, "the stream ended after {read} bytes");
        read += length;
    }
    path
}

#[test]
fn ten_thousand_idle_clients_of_a_stream_delay_no_other_client() {
    raise_file_limit();
    let (files, server) = start();
    let path = begin(&files, &server, "Block", 100);
    let (before, files_before) = (memory(&server, "VmRSS"), open_files(&server));
    let began = Instant::now();
    let clients: Vec<TcpStream> = (0..IDLE_CLIENTS).map(|_| open(&files, &server, &path)).collect();
    let opened = began.elapsed();
    let asked = Instant::now();
    let answer = ask(&files, &server, &json!({"model": "openai/m", "input": "x"}));
    assert_eq!(answer["status"], "completed", "{answer}");
    let each = memory(&server, "VmRSS").saturating_sub(before) / IDLE_CLIENTS as u64;
    println!("opened in {opened:?}, {each} bytes each, another client was served in {:?}", asked.elapsed());
    assert!(each < IDLE_CLIENT_BYTES_MAX, "{each} bytes for each client");
    assert!(open_files(&server) >= IDLE_CLIENTS, "all clients are connected");
    drop(clients);
    eventually("the connections are closed", || open_files(&server) <= files_before + 16);
}

#[test]
fn stalled_readers_of_a_long_stream_do_not_make_the_server_grow() {
    let (files, server) = start();
    let path = begin(&files, &server, "Long", LONG_TEXT / 4);
    let response = path.split('?').next().unwrap();
    assert_eq!(get(&files, &server, response)["status"], "in_progress");
    let reader =
        |_| read_status(send_over(connect_narrowly(&server), &files, &format!("GET {path}"), "\r\n"));
    // The first readers fill the caches of the allocator, whose size does not depend on the number of readers.
    let first: Vec<TcpStream> = (0..STALLED_READERS).map(reader).collect();
    let before = memory(&server, "VmRSS");
    let others: Vec<TcpStream> = (0..STALLED_READERS).map(reader).collect();
    let grown = memory(&server, "VmRSS").saturating_sub(before);
    println!("{STALLED_READERS} more stalled readers: {grown} bytes");
    assert!(grown < STALLED_BYTES_MAX, "{grown} bytes");
    drop((first, others));
}

#[test]
fn body_of_a_gigabyte_without_a_length_is_refused_and_not_kept_in_memory() {
    let (files, server) = start();
    ask(&files, &server, &json!({"model": "openai/m", "input": "x"}));
    let before = memory(&server, "VmHWM");
    let mut chunk = format!("{:x}\r\n", 1 << 20).into_bytes();
    chunk.extend(std::iter::repeat_n(b'x', 1 << 20));
    chunk.extend(b"\r\n");
    for _ in 0..2 {
        let mut stream = send(&files, &server, "POST /v1/responses", "Transfer-Encoding: chunked\r\n\r\n");
        let sent = (0..BODY_MIB).take_while(|_| stream.write_all(&chunk).is_ok()).count();
        let mut status = [0; 12];
        stream.read_exact(&mut status).unwrap();
        assert_eq!(String::from_utf8_lossy(&status), "HTTP/1.1 413", "after {sent} MiB");
        assert!(sent < BODY_MIB, "the server read the whole body");
    }
    let grown = memory(&server, "VmHWM").saturating_sub(before);
    println!("bodies without a length: {grown} bytes");
    assert!(grown < BODY_GROWTH_MAX, "{grown} bytes");
    let answer = ask(&files, &server, &json!({"model": "openai/m", "input": "x"}));
    assert_eq!(answer["status"], "completed", "{answer}");
}
