//! Measures `haft mcp serve`: calls through the gateway compared with direct calls in the same run, a list of 1,000
//! tools, the start with ten servers, and the memory per HTTP client.
//!
//! `cargo bench -p haft-cli --bench gateway` prints the figures, and fails if a limit is exceeded. This program also
//! acts as the server behind the gateway. Gateway rounds and direct rounds alternate, and the best round of each is
//! used.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use process_stats::cpu_of;
use serde_json::{Value, json};

#[path = "support/process_stats.rs"]
mod process_stats;

const CALLS: usize = 2_000;
const ROUNDS: usize = 10;
const AT_ONCE: usize = 32;
const LISTED: usize = 1_000;
const SERVERS_AT_START: usize = 10;
const HTTP_CLIENTS: usize = 200;

const CPU_ADDED_MAX: Duration = Duration::from_micros(130);
const CALLS_PER_SECOND_MIN: f64 = 15_000.0;
const LIST_MAX: Duration = Duration::from_millis(2);
const START_MAX: Duration = Duration::from_millis(15);
const CLIENT_BYTES_MAX: usize = 50 << 10;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        serve(std::env::args().nth(2).map_or(1, |count| count.parse().unwrap()));
        return ExitCode::SUCCESS;
    }
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let kept = [calls(dir.path()), list(dir.path()), start(dir.path()), memory(dir.path())];
    if kept.iter().all(|kept| *kept) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a figure, and its limit if the figure misses the limit. Returns true if the limit is met.
fn judged(figure: &str, bound: &str, kept: bool) -> bool {
    println!("{figure}{}", if kept { String::new() } else { format!("  missed: {bound}") });
    kept
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Runs the server behind the gateway: answers each line at once, in order.
fn serve(tools: usize) {
    let definition = |number: usize| {
        json!({"name": if number == 0 { "echo".to_owned() } else { format!("tool_{number}") },
            "description": "Returns its text, as a tool of a server with many tools does.",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}})
    };
    let listed: Vec<Value> = (0..tools).map(definition).collect();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        if message.get("id").is_none() {
            continue;
        }
        let answer = match message["method"].as_str() {
            Some("initialize") => {
                json!({"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"}}})
            }
            Some("tools/list") => json!({"result": {"tools": listed}}),
            Some("tools/call") => json!({"result": {"content": [{"type": "text",
                "text": message["params"]["arguments"]["text"]}]}}),
            _ => json!({"error": {"code": -32_601, "message": "unknown method"}}),
        };
        let mut reply = json!({"jsonrpc": "2.0", "id": message["id"]});
        reply.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        writeln!(out, "{reply}").unwrap();
        out.flush().unwrap();
    }
}

/// An MCP client that uses the standard streams of a server. The server ends when the client is dropped.
struct StreamClient {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    tool: &'static str,
}

impl StreamClient {
    fn start(mut command: Command, tool: &'static str) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, input, output, tool };
        client.send(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"}}),
        );
        client.reply();
        client
    }

    fn direct() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("serve");
        Self::start(command, "echo")
    }

    fn through(dir: &Path, servers: usize, tools: usize) -> Self {
        Self::start(haft(dir, servers, tools, &["mcp", "serve"]), "s0__echo")
    }

    fn send(&mut self, method: &str, params: &Value) {
        let line = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Reads lines until one of them is a reply.
    fn reply(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server has ended");
            if line.contains("\"result\"") || line.contains("\"error\"") {
                return line;
            }
        }
    }

    /// Makes `CALLS` calls in batches of `at_once`, and returns the total time.
    fn calls(&mut self, at_once: usize) -> Duration {
        let call = |id: usize| {
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": {"name": self.tool, "arguments": {"text": "hello"}}})
            .to_string()
        };
        let lines: Vec<String> = (0..CALLS).map(call).collect();
        let began = Instant::now();
        for batch in lines.chunks(at_once) {
            writeln!(self.input.as_mut().unwrap(), "{}", batch.join("\n")).unwrap();
            for _ in batch {
                let reply = self.reply();
                assert!(reply.contains("hello"), "{reply}");
            }
        }
        began.elapsed()
    }

    fn cpu(&self) -> Duration {
        cpu_of(self.child.id())
    }
}

impl Drop for StreamClient {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

fn haft(dir: &Path, servers: usize, tools: usize, words: &[&str]) -> Command {
    let (home, workspace) = (dir.join(format!("home-{servers}-{tools}")), dir.join("ws"));
    std::fs::create_dir_all(&home).unwrap();
    std::fs::create_dir_all(&workspace).unwrap();
    let program = std::env::current_exe().unwrap();
    let entry = |number: usize| {
        (format!("s{number}"), json!({"command": program, "args": ["serve", tools.to_string()]}))
    };
    let servers: serde_json::Map<String, Value> = (0..servers).map(entry).collect();
    std::fs::write(home.join("haft.json"), json!({"mcpServers": servers}).to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_haft"));
    command.args(words).env("HAFT_HOME", home).current_dir(workspace);
    command
}

fn calls(dir: &Path) -> bool {
    let (mut direct, mut through) = (StreamClient::direct(), StreamClient::through(dir, 1, 1));
    through.calls(1);
    let mut kept = true;
    for at_once in [1, AT_ONCE] {
        let (mut bare, mut governed, mut added) = (Duration::MAX, Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            bare = bare.min(direct.calls(at_once));
            let before = through.cpu();
            governed = governed.min(through.calls(at_once));
            added = added.min(through.cpu().saturating_sub(before));
        }
        let each = |time: Duration| time / u32::try_from(CALLS).unwrap();
        println!(
            "{at_once} at once: direct {:.1} us a call, through haft {:.1} us",
            micros(each(bare)),
            micros(each(governed))
        );
        kept &= judged(
            &format!("  processor time of haft: {:.1} us a call", micros(each(added))),
            "130 us",
            each(added) <= CPU_ADDED_MAX,
        );
        if at_once == AT_ONCE {
            let rate = CALLS as f64 / governed.as_secs_f64();
            let bound = "15,000 calls a second";
            kept &= judged(&format!("  {rate:.0} calls a second"), bound, rate >= CALLS_PER_SECOND_MIN);
        }
    }
    kept
}

fn list(dir: &Path) -> bool {
    let mut client = StreamClient::through(dir, 1, LISTED);
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        client.send("tools/list", &json!({}));
        let page = client.reply();
        best = best.min(began.elapsed());
        assert!(page.matches("s0__tool_").count() > LISTED - 50, "{}", page.len());
    }
    judged(&format!("list of {LISTED} tools: {:.2} ms", micros(best) / 1e3), "2 ms", best <= LIST_MAX)
}

fn start(dir: &Path) -> bool {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let client = StreamClient::through(dir, SERVERS_AT_START, 1);
        best = best.min(began.elapsed());
        drop(client);
    }
    judged(
        &format!("start to `initialize` with {SERVERS_AT_START} servers: {:.1} ms", micros(best) / 1e3),
        "15 ms",
        best <= START_MAX,
    )
}

/// Measures the memory of the gateway with many sessions, each with an open stream.
fn memory(dir: &Path) -> bool {
    let words = ["mcp", "serve", "--http", "127.0.0.1:0", "--no-auth"];
    let mut child = haft(dir, 1, 1, &words).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("http://").to_owned();
    let mut open: Vec<TcpStream> = (0..20).map(|_| listening(&address)).collect();
    let before = resident_bytes(child.id());
    open.extend((0..HTTP_CLIENTS).map(|_| listening(&address)));
    let each = resident_bytes(child.id()).saturating_sub(before) / HTTP_CLIENTS;
    child.kill().unwrap();
    child.wait().unwrap();
    judged(
        &format!("{HTTP_CLIENTS} clients over HTTP: {} KB each", each >> 10),
        "50 KB",
        each <= CLIENT_BYTES_MAX,
    )
}

/// Starts an MCP session, opens its event stream, and returns the connection of the stream.
fn listening(address: &str) -> TcpStream {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}})
    .to_string();
    let mut post = TcpStream::connect(address).unwrap();
    write!(
        post,
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut reply = String::new();
    post.read_to_string(&mut reply).unwrap();
    let session = reply.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let mut get = TcpStream::connect(address).unwrap();
    write!(
        get,
        "GET /mcp HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n"
    )
    .unwrap();
    let mut head = [0; 15];
    get.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    get
}

fn resident_bytes(process: u32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap();
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}
