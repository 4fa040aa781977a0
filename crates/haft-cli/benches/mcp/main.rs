//! Compares the cost of an MCP tool call through haft, including all its checks, with the cost of a call through the
//! client of the official SDK in the same run. Also measures the cost of starting servers and of keeping them open.
//!
//! `cargo bench -p haft-cli --bench mcp` prints the table in the README of `haft-tools`, and fails if a limit is
//! exceeded. This program also acts as the servers of the benchmark. Rounds of the two clients alternate, and the best
//! round of each is used.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

mod cost;
mod echo;
#[path = "../support/process_stats.rs"]
mod process_stats;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::time::{Duration, Instant};

use cost::{McpCallCost, measure, resident_bytes};
use haft_config::{self, ConfigSources, ResolvedConfig};
use haft_core::tool::ToolCall;
use haft_engine::Orchestrator;
use haft_runtime::wiring::{self, McpClientSettings, ToolSettings};
use haft_sandbox::{Home, SandboxMode, SandboxPolicy};
use rmcp::ServiceExt;
use rmcp::model::CallToolRequestParams;
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use serde_json::{Value, json};

/// The number of calls per round. It is small, so that some rounds finish before another process needs the cores.
const CALLS: usize = 200;
const ROUNDS: usize = 60;
const AT_ONCE: [usize; 2] = [1, 32];
const SERVERS_AT_START: usize = 10;
const SERVERS_HELD: usize = 200;

/// The start-up time of the slowest of ten servers; each of the others needs a little less.
const SLOWEST_START: Duration = Duration::from_millis(600);

const WALL_RATIO_MAX: f64 = 1.25;
const CPU_RATIO_MAX: f64 = 1.5;
const START_EXTRA_MAX: Duration = Duration::from_millis(20);
const HELD_BYTES_MAX: usize = 200 << 10;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("serve") => {
            let wait = args.get(2).map_or(0, |text| text.parse().unwrap());
            echo::over_streams(Duration::from_millis(wait));
            return ExitCode::SUCCESS;
        }
        Some("hold") => {
            hold();
            return ExitCode::SUCCESS;
        }
        Some("serve-http") => {
            echo::over_http();
            return ExitCode::SUCCESS;
        }
        Some(_) | None => {}
    }
    // The HTTP clients require a default crypto provider, although no request of this benchmark uses TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let kept = runtime.block_on(async { [held(), calls(dir.path()).await, starts(dir.path()).await] });
    if kept.iter().all(|kept| *kept) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the missed limit if `kept` is false, and returns `kept`.
fn judged(what: &str, kept: bool) -> bool {
    if !kept {
        println!("missed: {what}");
    }
    kept
}

async fn calls(dir: &Path) -> bool {
    println!("{CALLS} calls a round, best of {ROUNDS} rounds; microseconds a call");
    println!(
        "{:<24} {:>10} {:>10} {:>7} {:>10} {:>10} {:>7}",
        "", "haft wall", "rmcp wall", "ratio", "haft CPU", "rmcp CPU", "ratio"
    );
    let streams = json!({ "command": program(), "args": ["serve"], "shared": false });
    let mut kept = compare("stdio", &dir.join("stdio"), streams, bare_over_streams().await).await;
    let server = HttpServer::start();
    for way in ["json", "events"] {
        let url = format!("http://127.0.0.1:{}/{way}", server.port);
        let bare = ().serve(StreamableHttpClientTransport::from_uri(url.as_str())).await.unwrap();
        kept &= compare(&format!("http, {way}"), &dir.join(way), json!({ "url": url }), bare).await;
    }
    kept
}

async fn compare(name: &str, dir: &Path, server: Value, bare: BareRmcpClient) -> bool {
    let orchestrator = governed(dir, [server]).await;
    let mut kept = true;
    for at_once in AT_ONCE {
        let (mut ours, mut theirs) = (McpCallCost::worst(), McpCallCost::worst());
        for _ in 0..ROUNDS {
            theirs.best(&measure(CALLS, at_once, || bare_call(&bare)).await);
            ours.best(&measure(CALLS, at_once, || governed_call(&orchestrator)).await);
        }
        let row = format!("{name}, {at_once} at once");
        let (wall, cpu) = (ours.wall / theirs.wall, ours.cpu / theirs.cpu);
        println!(
            "{row:<24} {:>10.1} {:>10.1} {wall:>6.2}x {:>10.1} {:>10.1} {cpu:>6.2}x",
            ours.wall, theirs.wall, ours.cpu, theirs.cpu
        );
        kept &= judged(&format!("{row}: {WALL_RATIO_MAX} times the wall time"), wall <= WALL_RATIO_MAX);
        kept &= judged(&format!("{row}: {CPU_RATIO_MAX} times the CPU time"), cpu <= CPU_RATIO_MAX);
    }
    wiring::shut_down(&orchestrator).await;
    bare.cancel().await.unwrap();
    kept
}

/// Compares the start of ten slow servers with the start of the slowest one alone.
async fn starts(dir: &Path) -> bool {
    let slowest = u64::try_from(SLOWEST_START.as_millis()).unwrap();
    let waiting = |wait: u64| json!({ "command": program(), "args": ["serve", wait.to_string()] });
    let (mut one, mut ten) = (Duration::MAX, Duration::MAX);
    for round in 0..5 {
        let place = |name: &str| dir.join(format!("{name}-{round}"));
        one = one.min(timed_start(&place("one"), vec![waiting(slowest)]).await);
        let servers = (0..SERVERS_AT_START as u64).map(|number| waiting(slowest - number * 10));
        ten = ten.min(timed_start(&place("ten"), servers.collect()).await);
    }
    let extra = ten.saturating_sub(one);
    println!(
        "\nthe slowest server alone is ready after {} ms, {SERVERS_AT_START} of them after {} ms: {} ms more",
        one.as_millis(),
        ten.as_millis(),
        extra.as_millis()
    );
    judged(&format!("{} ms more", START_EXTRA_MAX.as_millis()), extra <= START_EXTRA_MAX)
}

async fn timed_start(dir: &Path, servers: Vec<Value>) -> Duration {
    let began = Instant::now();
    let orchestrator = governed(dir, servers).await;
    let took = began.elapsed();
    wiring::shut_down(&orchestrator).await;
    took
}

/// Measures the memory of open servers in a new process, because memory that this process freed earlier would change
/// the result.
fn held() -> bool {
    let output = std::process::Command::new(program()).arg("hold").output().unwrap();
    let each: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    println!("{SERVERS_HELD} connected servers hold {} KB each\n", each / 1024);
    judged(&format!("{} KB each", HELD_BYTES_MAX >> 10), each <= HELD_BYTES_MAX)
}

/// Prints the memory per server, in bytes, of many connected servers. One server is started before the measurement, so
/// that memory which all servers share is not counted.
fn hold() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    runtime.block_on(async {
        let server = json!({ "command": program(), "args": ["serve"] });
        let first = governed(&dir.path().join("first"), vec![server.clone()]).await;
        let before = resident_bytes();
        let many = governed(&dir.path().join("held"), vec![server; SERVERS_HELD]).await;
        println!("{}", resident_bytes().saturating_sub(before) / SERVERS_HELD);
        wiring::shut_down(&many).await;
        wiring::shut_down(&first).await;
    });
}

fn program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

fn settings(dir: &Path, servers: impl IntoIterator<Item = Value>) -> ToolSettings {
    let home = Home::at(&dir.join("home"));
    haft_config::home::create(&home).unwrap();
    let workspace = dir.join("ws");
    std::fs::create_dir_all(&workspace).unwrap();
    let policy = SandboxPolicy::new(SandboxMode::Workspace, &workspace, &home, None).unwrap();
    ToolSettings { policy, timeout: None, config: configuration(&home, servers) }
}

fn configuration(home: &Home, servers: impl IntoIterator<Item = Value>) -> ResolvedConfig {
    let named = servers.into_iter().enumerate().map(|(number, server)| (format!("s{number}"), server));
    let servers: serde_json::Map<String, Value> = named.collect();
    std::fs::write(home.config(), json!({ "mcpServers": servers }).to_string()).unwrap();
    let sources = ConfigSources { home: Some(home), ..ConfigSources::default() };
    haft_config::load(sources, &haft_config::environment).unwrap().resolved
}

async fn governed(dir: &Path, servers: impl IntoIterator<Item = Value>) -> Orchestrator {
    let settings = settings(dir, servers);
    let found = wiring::mcp_servers(&settings.config, &settings.policy, &McpClientSettings::default());
    let orchestrator = wiring::orchestrator_with(settings, found.providers());
    let warnings = wiring::warm_up(&orchestrator).await;
    assert!(warnings.is_empty(), "{warnings:?}");
    orchestrator
}

async fn governed_call(orchestrator: &Orchestrator) {
    let call = ToolCall::new("1", "s0__echo", &json!({ "text": "hello" }));
    assert_eq!(orchestrator.execute(call).await.outcome.unwrap().as_text(), "hello");
}

type BareRmcpClient = RunningService<RoleClient, ()>;

async fn bare_over_streams() -> BareRmcpClient {
    let mut command = tokio::process::Command::new(program());
    let piped = command.arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = piped.spawn().unwrap();
    let streams = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    // The server ends when its standard input is closed; waiting reaps the process.
    tokio::spawn(async move { child.wait().await });
    ().serve(streams).await.unwrap()
}

async fn bare_call(client: &BareRmcpClient) {
    let arguments = json!({ "text": "hello" }).as_object().cloned().unwrap_or_default();
    let result =
        client.call_tool(CallToolRequestParams::new("echo").with_arguments(arguments)).await.unwrap();
    assert_eq!(result.content[0].as_text().unwrap().text, "hello");
}

/// The HTTP server that both clients call. It ends when its standard input is closed.
struct HttpServer {
    child: Child,
    port: u16,
}

impl HttpServer {
    fn start() -> Self {
        let mut command = std::process::Command::new(program());
        let mut child =
            command.arg("serve-http").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
