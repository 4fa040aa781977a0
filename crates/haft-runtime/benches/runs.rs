//! The memory that many concurrent runs in one runtime take.
//!
//! `cargo bench -p haft-runtime --bench runs` starts runs that all wait for their model, and prints the resident memory
//! of the process with 100 and with 1,000 of them. The agent has the built-in tools; sessions and events are stored.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark prints"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream;
use haft_config::agents::graph::AgentGraph;
use haft_config::agents::{AgentOverrides, loader};
use haft_core::home::Home;
use haft_core::model_provider::{ModelContext, ModelProvider, ReplyStream};
use haft_core::model_request::ModelRequest;
use haft_runtime::{RunHandle, RunSecrets, RunSpec, Runtime, WorkspaceSpec};

const AGENT: &str = "---\nmodels: silent/m\ntools: [read, bash, edit, write]\n---\nYou work.\n";

/// A model that never replies, and counts its requests.
#[derive(Default)]
struct SilentModel {
    requests: AtomicUsize,
}

impl ModelProvider for SilentModel {
    fn name(&self) -> &'static str {
        "silent"
    }

    fn ask(&self, _: ModelRequest, _: &ModelContext) -> ReplyStream<'_> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        Box::pin(stream::pending())
    }
}

fn main() {
    haft_runtime::init();
    println!("load average: {}", std::fs::read_to_string("/proc/loadavg").unwrap().trim());
    let process = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    process.block_on(measure());
}

async fn measure() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (home, workspace) = (Home::at(&dir.path().join("home")), dir.path().join("ws"));
    haft_config::home::create(&home).unwrap();
    std::fs::create_dir(&workspace).unwrap();
    let file = dir.path().join("haft.json");
    std::fs::write(&file, "{}").unwrap();
    let sources = haft_config::ConfigSources { home: None, project: None, named: Some(&file) };
    let config = haft_config::load(sources, &|_| None).unwrap().resolved;
    let silent = Arc::new(SilentModel::default());
    let models: Arc<dyn ModelProvider> = Arc::clone(&silent) as _;
    let runtime = Runtime::builder(config).home(home).models(models).build().await.unwrap();
    let agent = loader::of_text("agent.md", AGENT, &AgentOverrides::default()).unwrap();
    let graph = AgentGraph::gather(agent, &loader::AgentLoader::default()).unwrap();

    println!("no run: {:.1} MB", resident_megabytes());
    let mut runs: Vec<RunHandle> = Vec::new();
    for count in [100, 1_000] {
        let began = Instant::now();
        let before = runs.len();
        while runs.len() < count {
            let spec = RunSpec::new(&graph, "Why is the build red?", WorkspaceSpec::at(workspace.clone()));
            runs.push(runtime.start(spec, RunSecrets::none()).await.unwrap());
        }
        while silent.requests.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let each = began.elapsed().as_secs_f64() * 1e3 / (count - before) as f64;
        println!("{count} runs: {:.1} MB, {each:.2} ms to start one", resident_megabytes());
    }
    runtime.shut_down().await;
}

fn resident_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1e3
}
