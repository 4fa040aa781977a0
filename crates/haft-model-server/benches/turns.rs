//! Measures the memory and the CPU time of the scripted server in a long conversation. Every request repeats the
//! conversation before it, so the time of a turn grows with its number, but the memory must not.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark panics at the first error, and prints its results"
)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use haft_model_server::{Script, ScriptStep, serve};
use serde_json::{Value, json};

fn main() {
    println!("| turns | peak memory | CPU time |\n|---|---|---|");
    for turns in [100, 1_000] {
        let (_, before) = usage();
        converse(start(turns), turns);
        let (peak, after) = usage();
        println!("| {turns} | {peak} MB | {} ms |", (after - before) / 1_000_000);
    }
}

fn start(turns: usize) -> SocketAddr {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let script = Script::of((0..turns).map(|turn| ScriptStep::text(&format!("turn {turn}"))));
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { serve(script, tokio::net::TcpListener::from_std(listener).unwrap()).await })
    });
    address
}

/// Sends one request per turn. Each request contains all earlier turns.
fn converse(address: SocketAddr, turns: usize) {
    let mut messages: Vec<Value> = vec![json!({ "role": "user", "content": "x".repeat(300) })];
    for turn in 0..turns {
        let body = json!({ "model": "m", "messages": messages }).to_string();
        let mut connection = TcpStream::connect(address).unwrap();
        let length = body.len();
        write!(
            connection,
            "POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(&format!("turn {turn}")), "{answer}");
        messages.push(json!({ "role": "assistant", "content": format!("turn {turn}") }));
        messages.push(json!({ "role": "user", "content": "x".repeat(300) }));
    }
}

/// Returns the peak memory of this process in megabytes, and its CPU time in nanoseconds.
fn usage() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let kilobytes: u64 = peak.split_whitespace().next().unwrap().parse().unwrap();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let spent = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    let nanos = spent.filter_map(|stat| stat.split_whitespace().next()?.parse::<u64>().ok()).sum();
    (kilobytes / 1024, nanos)
}
