//! Measures the cost of a run: the CPU time per turn (including the tool call, the streamed reply and the journal), the
//! time from the start of the process to the first byte of its model request, and the memory of many concurrent runs.
//!
//! `cargo bench -p haft-cli --bench loop` prints the table in the README of `haft-cli`. The scripted model server runs
//! in another process, so the measured CPU time is only that of haft. `-- turns` measures only the turns, for
//! `valgrind --tool=callgrind`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haft_config::agents::graph::AgentGraph;
use haft_config::agents::loader::AgentLoader;
use haft_core::event::{Event, EventSink};
use haft_core::home::Home;
use haft_core::run::event::RunEvent;
use haft_runtime::{RunHooks, RunSecrets, RunSpec, Runtime, SessionStorage, WorkspaceSpec};
use model_server_process::ModelServerProcess;
use process_stats::cpu_of;
use serde_json::{Value, json};

#[path = "support/model_server_process.rs"]
mod model_server_process;
#[path = "support/process_stats.rs"]
mod process_stats;

/// The number of turns that are measured together. The CPU time of a single turn is too short to measure.
const GROUP: u32 = 20;
const TURNS: u32 = 220;
const ROUNDS: usize = 7;
const STARTS: usize = 25;
const MANY: usize = 1_000;

fn main() {
    // Use a single-threaded runtime, as the `haft` command does.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let only_turns = std::env::args().any(|argument| argument == "turns");
    // Measure this first, so that the peak does not include memory of the other measurements.
    if !only_turns {
        println!("{MANY} runs at once: {}", runtime.block_on(many(dir.path())));
    }
    for journal in [JournalSetting::Off, JournalSetting::On] {
        let groups: Vec<_> = (0..ROUNDS).map(|_| runtime.block_on(turns(dir.path(), journal))).collect();
        println!("CPU of a turn, journal {journal:?}: {}", told(&groups));
    }
    if !only_turns {
        println!("exec to the first byte to the model: {}", first_bytes(dir.path()));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JournalSetting {
    Off,
    On,
}

/// Formats the median, minimum and maximum of all rounds. The journal is synced once a second, and the group that
/// contains the sync takes longer, so a mean would mislead.
fn told(groups: &[[Duration; 2]]) -> String {
    let middle = |which: usize| {
        let mut times: Vec<f64> = groups.iter().map(|group| group[which].as_secs_f64() * 1e6).collect();
        times.sort_by(f64::total_cmp);
        (times[0], times[times.len() / 2], times[times.len() - 1])
    };
    let ((least, early, most), (least_late, late, most_late)) = (middle(0), middle(1));
    format!(
        "turn 20 {early:.0} µs ({least:.0} to {most:.0}), turn 200 {late:.0} µs ({least_late:.0} to {most_late:.0}), ratio {:.2}",
        late / early
    )
}

/// Runs many turns with one call each. Returns the CPU time of a turn near turn 20, and of a turn near turn 200.
async fn turns(dir: &Path, journal: JournalSetting) -> [Duration; 2] {
    let server = ModelServerProcess::start(dir, &script(TURNS, 0));
    let (runtime, spec) = runtime(dir, &server.url).await;
    let clock = Arc::new(TurnCpuClock::default());
    let hooks = RunHooks {
        watchers: vec![Arc::clone(&clock) as Arc<dyn EventSink>],
        sessions: if journal == JournalSetting::On { SessionStorage::Stores } else { SessionStorage::None },
        ..RunHooks::default()
    };
    let run = runtime.start_with(spec, RunSecrets::none(), hooks).await.unwrap();
    assert_eq!(run.warnings(), Vec::<String>::new());
    let finish = run.finished().await.unwrap().finish;
    assert_eq!(finish.reason.name(), "completed", "{finish:?}");
    let groups = clock.groups();
    [groups[0], groups[groups.len() - 1]]
}

/// Records the CPU time of this process when turns 10, 30, 190 and 210 begin.
#[derive(Default)]
struct TurnCpuClock(Mutex<Vec<Duration>>);

impl TurnCpuClock {
    fn groups(&self) -> Vec<Duration> {
        self.0.lock().unwrap().chunks(2).map(|pair| pair[1].saturating_sub(pair[0]) / GROUP).collect()
    }
}

impl EventSink for TurnCpuClock {
    fn emit(&self, event: Event) {
        if let Event::Run { place, event } = &event
            && matches!(**event, RunEvent::Asked)
            && [10, 10 + GROUP, 190, 190 + GROUP].contains(&place.turn)
        {
            self.0.lock().unwrap().push(cpu_of(std::process::id()));
        }
    }
}

/// Measures the time from `exec` of the release binary to the first byte of its request.
fn first_bytes(dir: &Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let mut times: Vec<Duration> = (0..STARTS).map(|_| first_byte(dir, &listener, &url)).collect();
    times.sort();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    format!("min {:.1} ms, median {:.1} ms of {STARTS}", ms(times[0]), ms(times[STARTS / 2]))
}

fn first_byte(dir: &Path, listener: &TcpListener, url: &str) -> Duration {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haft"));
    command.args(["run", "-q", "-m", "openai/m", "go"]).current_dir(workspace(dir)).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("HAFT_HOME", dir.join("home")).env("HOME", dir);
    command.env("OPENAI_BASE_URL", url).env("OPENAI_API_KEY", "k").stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn().unwrap();
    let (mut connection, _) = listener.accept().unwrap();
    connection.read_exact(&mut [0]).unwrap();
    let took = began.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    took
}

/// Starts many runs of three turns in this process. All wait for the model at the same time.
async fn many(dir: &Path) -> String {
    let server = ModelServerProcess::start(dir, &script(3, 1_500));
    let (runtime, spec) = runtime(dir, &server.url).await;
    let before = resident("VmRSS:");
    let began = Instant::now();
    let mut runs = Vec::new();
    for _ in 0..MANY {
        runs.push(runtime.start(spec.clone(), RunSecrets::none()).await.unwrap());
    }
    let mut done = 0;
    for run in runs {
        done += usize::from(run.finished().await.unwrap().finish.reason.name() == "completed");
    }
    let peak = resident("VmHWM:");
    format!(
        "{done} completed in {:.1} s, {before} MB before, at most {peak} MB",
        began.elapsed().as_secs_f64()
    )
}

/// Returns a memory counter of `/proc/self/status` in megabytes.
fn resident(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

async fn runtime(dir: &Path, url: &str) -> (Runtime, RunSpec) {
    let home = Home::at(&dir.join("home"));
    haft_config::home::create(&home).unwrap();
    let url = format!("{url}/v1");
    let variables = move |name: &str| match name {
        "OPENAI_BASE_URL" => Some(url.clone()),
        "OPENAI_API_KEY" => Some("k".to_owned()),
        _ => None,
    };
    let runtime =
        Runtime::builder(haft_config::defaults().unwrap()).home(home).variables(Arc::new(variables));
    let agent = dir.join("agent.md");
    std::fs::write(&agent, "---\nmodels: openai/m\nmaxTurns: 1000\n---\nYou tell the time.\n").unwrap();
    let loader = AgentLoader::default();
    let graph = AgentGraph::gather(loader.open(&agent).unwrap(), &loader).unwrap();
    let spec = RunSpec::new(&graph, "go", WorkspaceSpec::at(workspace(dir)));
    (runtime.build().await.unwrap(), spec)
}

fn workspace(dir: &Path) -> std::path::PathBuf {
    let workspace = dir.join("ws");
    std::fs::create_dir_all(&workspace).unwrap();
    workspace
}

/// Scripts `turns` turns with one call each, then the answer. Two successive calls differ, so that loop detection does
/// not stop the run.
fn script(turns: u32, first_byte_milliseconds: u32) -> Value {
    let pace = json!({ "firstByteMilliseconds": first_byte_milliseconds });
    let call = |turn: u32| {
        let zone = if turn.is_multiple_of(2) { "UTC" } else { "Europe/Berlin" };
        json!({"say": [{"call": {"name": "current_date", "arguments": {"timezone": zone}}}], "pace": pace})
    };
    let mut steps: Vec<Value> = (0..turns).map(call).collect();
    steps.push(json!({"say": [{"text": "done"}], "pace": pace}));
    json!({ "steps": steps })
}
