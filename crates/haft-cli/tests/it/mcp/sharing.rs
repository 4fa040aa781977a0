//! Tests of several runs in one process: they check which runs share a server, and that no task is left when all runs
//! have ended.

use std::time::Duration;

use haft_config::{self, ConfigSources};
use haft_core::tool::ToolCall;
use haft_engine::Orchestrator;
use haft_runtime::wiring::{self, McpClientSettings, ToolSettings};
use haft_sandbox::{Home, SandboxMode, SandboxPolicy};
use serde_json::json;

use super::{configure, tree};
use haft_testkit::{TestTree, eventually, processes_with, send_signal, unique_marker};

/// Starts one run: a separate orchestrator with the servers of the configuration.
fn run(tree: &TestTree, face: &McpClientSettings) -> Orchestrator {
    let home = Home::at(&tree.path("home"));
    haft_config::home::create(&home).unwrap();
    let sources = ConfigSources { home: Some(&home), ..ConfigSources::default() };
    let config = haft_config::load(sources, &haft_config::environment).unwrap().resolved;
    let policy = SandboxPolicy::new(SandboxMode::Workspace, &tree.path("ws"), &home, None).unwrap();
    let servers = wiring::mcp_servers(&config, &policy, face);
    let settings = ToolSettings { policy, timeout: None, config };
    wiring::orchestrator_with(settings, servers.providers())
}

async fn echo(run: &Orchestrator) -> bool {
    let call = ToolCall::new("1", "bad__echo", &json!({ "text": "hi" }));
    run.execute(call).await.outcome.is_ok_and(|output| output.as_text() == "echo: hi")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_share_a_server_process_until_the_last_shuts_down() {
    let (tree, marker) = (tree(), unique_marker());
    configure(&tree, "good", &[&marker], "");
    let face = McpClientSettings::default();
    let one = run(&tree, &face);
    wiring::warm_up(&one).await;
    assert!(echo(&one).await);
    let alone = processes_with(&marker).len();
    let other = run(&tree, &face);
    wiring::warm_up(&other).await;
    assert!(echo(&other).await);
    assert_eq!(processes_with(&marker).len(), alone, "both runs use the same server process");
    wiring::shut_down(&one).await;
    assert!(echo(&other).await, "the server process outlives the first run");
    wiring::shut_down(&other).await;
    eventually("the server process ends with the last run", || processes_with(&marker).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unshared_server_has_one_process_per_run() {
    let (tree, marker) = (tree(), unique_marker());
    configure(&tree, "good", &[&marker], r#", "shared": false"#);
    let face = McpClientSettings::default();
    let one = run(&tree, &face);
    wiring::warm_up(&one).await;
    assert!(echo(&one).await);
    let alone = processes_with(&marker).len();
    let other = run(&tree, &face);
    wiring::warm_up(&other).await;
    assert!(echo(&other).await);
    assert_eq!(processes_with(&marker).len(), 2 * alone);
    wiring::shut_down(&one).await;
    wiring::shut_down(&other).await;
    eventually("both server processes end", || processes_with(&marker).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_kills_and_dropped_calls_leak_no_task() {
    let (tree, marker) = (tree(), unique_marker());
    configure(&tree, "good", &[&marker], "");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let run = run(&tree, &McpClientSettings::default());
    wiring::warm_up(&run).await;
    for round in 0..20 {
        let slow = ToolCall::new("1", "bad__slow", &json!({}));
        // Dropping the future before the call ends cancels the call.
        let _ = tokio::time::timeout(Duration::from_millis(20), run.execute(slow)).await;
        if round % 3 == 0 {
            for pid in processes_with(&marker) {
                let _ = std::panic::catch_unwind(|| send_signal(u32::try_from(pid).unwrap(), 9));
            }
        }
    }
    assert!(tasks() > before, "the run has started tasks");
    wiring::shut_down(&run).await;
    drop(run);
    eventually("no task is left", || tasks() <= before);
    eventually("no process is left", || processes_with(&marker).is_empty());
}
