//! What a governed call of an MCP tool costs beside the bare client of the official SDK, over standard streams, in one run.
//!
//! `cargo bench -p haft --bench mcp` prints the table that stands in the README of `haft-tools`. The server is this very
//! program, so fast that what is measured is the client; rounds of the two clients take turns and the best of each counts.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

use std::io::{BufRead, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use haft::config::{self, Resolved, Sources};
use haft::core::tool::ToolCall;
use haft::engine::{Memory, Orchestrator};
use haft::wiring::{self, McpFace, Settings};
use haft_sandbox::{Home, Policy, SandboxMode};
use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use serde_json::{Value, json};

const CALLS: usize = 2_000;
const ROUNDS: usize = 7;
const SERVERS_AT_START: usize = 10;
const SERVERS_HELD: usize = 200;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        return serve();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    runtime.block_on(async {
        calls(dir.path()).await;
        starts(dir.path()).await;
        held(dir.path()).await;
    });
}

/// A server that answers at once.
fn serve() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let Ok(request) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
        let result = match request["method"].as_str().unwrap_or_default() {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "bench", "version": "1" } }),
            "tools/list" => json!({ "tools": [{ "name": "echo", "inputSchema": { "type": "object" } }] }),
            "tools/call" => {
                json!({ "content": [{ "type": "text", "text": request["params"]["arguments"]["text"] }] })
            }
            _ => Value::Null,
        };
        if request["id"].is_null() {
            continue;
        }
        let answer = if result.is_null() {
            json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32601, "message": "unknown" } })
        } else {
            json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })
        };
        writeln!(out, "{answer}").unwrap();
        out.flush().unwrap();
    }
}

async fn calls(dir: &Path) {
    let orchestrator = governed(dir, 1).await;
    let bare = bare().await;
    println!("{CALLS} calls a round, best of {ROUNDS} rounds; microseconds a call");
    println!(
        "{:<16} {:>10} {:>10} {:>7} {:>10} {:>10} {:>7}",
        "", "haft wall", "rmcp wall", "ratio", "haft CPU", "rmcp CPU", "ratio"
    );
    for at_once in [1, 32] {
        let (mut ours, mut theirs) = (Cost::worst(), Cost::worst());
        for _ in 0..ROUNDS {
            theirs.best(&measure(at_once, || bare_call(&bare)).await);
            ours.best(&measure(at_once, || governed_call(&orchestrator)).await);
        }
        let name = if at_once == 1 { "one by one".to_owned() } else { format!("{at_once} at once") };
        println!(
            "{name:<16} {:>10.1} {:>10.1} {:>6.2}x {:>10.1} {:>10.1} {:>6.2}x",
            ours.wall,
            theirs.wall,
            ours.wall / theirs.wall,
            ours.cpu,
            theirs.cpu,
            ours.cpu / theirs.cpu
        );
    }
    wiring::shut_down(&orchestrator).await;
    bare.cancel().await.unwrap();
}

async fn starts(dir: &Path) {
    let began = Instant::now();
    wiring::shut_down(&governed(&dir.join("one"), 1).await).await;
    let one = began.elapsed();
    let began = Instant::now();
    let many = governed(&dir.join("ten"), SERVERS_AT_START).await;
    let ten = began.elapsed();
    println!(
        "\none server is ready and ended after {} ms; {SERVERS_AT_START} are ready after {} ms",
        one.as_millis(),
        ten.as_millis()
    );
    wiring::shut_down(&many).await;
}

async fn held(dir: &Path) {
    let before = resident_bytes();
    let many = governed(&dir.join("held"), SERVERS_HELD).await;
    let each = resident_bytes().saturating_sub(before) / SERVERS_HELD;
    println!("{SERVERS_HELD} connected servers hold {} KB each", each / 1024);
    wiring::shut_down(&many).await;
}

fn settings(dir: &Path, servers: usize) -> Settings {
    let home = Home::at(&dir.join("home"));
    home.create().unwrap();
    let workspace = dir.join("ws");
    std::fs::create_dir_all(&workspace).unwrap();
    let policy = Policy::new(SandboxMode::Sandbox, &workspace, &home, None).unwrap();
    Settings {
        policy,
        timeout: None,
        events: Arc::new(haft::core::event::NoEvents),
        config: configuration(&home, servers),
        approver: None,
        remembered: Memory::default(),
        store: None,
    }
}

fn configuration(home: &Home, servers: usize) -> Resolved {
    let program = std::env::current_exe().unwrap();
    let server = json!({ "command": program, "args": ["serve"], "shared": false });
    let servers: serde_json::Map<String, Value> =
        (0..servers).map(|number| (format!("s{number}"), server.clone())).collect();
    std::fs::write(home.config(), json!({ "mcpServers": servers }).to_string()).unwrap();
    let sources = Sources { home: Some(home), ..Sources::default() };
    config::load(sources, &config::environment).unwrap().resolved
}

async fn governed(dir: &Path, servers: usize) -> Orchestrator {
    let settings = settings(dir, servers);
    let found = wiring::mcp_servers(&settings.config, &settings.policy, &McpFace::default());
    let orchestrator = wiring::orchestrator_with(settings, found.providers());
    let warnings = wiring::warm_up(&orchestrator).await;
    assert!(warnings.is_empty(), "{warnings:?}");
    orchestrator
}

async fn governed_call(orchestrator: &Orchestrator) {
    let call = ToolCall::new("1", "s0__echo", &json!({ "text": "hello" }));
    assert_eq!(orchestrator.execute(call).await.outcome.unwrap().as_text(), "hello");
}

async fn bare() -> RunningService<RoleClient, ()> {
    let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
    let piped = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = piped.spawn().unwrap();
    let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    // It ends when its input does.
    tokio::spawn(async move { child.wait().await });
    ().serve(streams).await.unwrap()
}

async fn bare_call(client: &RunningService<RoleClient, ()>) {
    let arguments = json!({ "text": "hello" }).as_object().cloned().unwrap_or_default();
    let result =
        client.call_tool(CallToolRequestParams::new("echo").with_arguments(arguments)).await.unwrap();
    assert_eq!(result.content[0].as_text().unwrap().text, "hello");
}

/// Microseconds a call.
struct Cost {
    wall: f64,
    cpu: f64,
}

impl Cost {
    fn worst() -> Self {
        Self { wall: f64::INFINITY, cpu: f64::INFINITY }
    }

    fn best(&mut self, other: &Self) {
        self.wall = self.wall.min(other.wall);
        self.cpu = self.cpu.min(other.cpu);
    }
}

async fn measure<F: Future<Output = ()>>(at_once: usize, call: impl Fn() -> F) -> Cost {
    let (began, cpu) = (Instant::now(), cpu_time());
    futures_util::stream::iter(0..CALLS).for_each_concurrent(at_once, |_| call()).await;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / CALLS as f64;
    Cost { wall: each(began.elapsed()), cpu: each(cpu_time().saturating_sub(cpu)) }
}

/// Of this process alone; the servers have their own. The first number of each thread is its time on a core.
fn cpu_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let times = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    Duration::from_nanos(times.map(|time| time.split(' ').next().unwrap().parse::<u64>().unwrap()).sum())
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
