//! Tests that equal runs share a prepared agent, its servers and its workers.

use std::time::Duration;

use haft_model_server::{RequestExpectation, ScriptStep};
use haft_runtime::{RunSecrets, Runtime};
use serde_json::json;

use crate::fixture::{PROCESS_SERVER, RuntimeFixture, answer, finished, results};

const AGENT: &str = "---\nmodels: openai/m\ntools: [process__name]\n---\nYou work.\n";

/// Runs the agent once, and returns the name of the server process that answered its call.
async fn process_name(fixture: &RuntimeFixture, runtime: &Runtime, secrets: RunSecrets) -> String {
    let run = runtime.start(fixture.spec_of(AGENT, "go"), secrets).await.unwrap();
    let name = results(&run).await.concat();
    run.closed().await;
    assert!(name.contains("process "), "{name}");
    name
}

async fn process_names(idle_for: Duration, between: Duration, secrets: [RunSecrets; 2]) -> (String, String) {
    let steps = || [ScriptStep::call("process__name", json!({})), ScriptStep::text("done")];
    let fixture = RuntimeFixture::in_order([steps(), steps()].concat());
    let server = json!({"command": "python3", "args": ["-c", PROCESS_SERVER]});
    let config = json!({"mcpServers": {"process": server}});
    // Build the runtime without the template of the configuration, so that all runs have the same configuration.
    let config = fixture.load(&config).resolved;
    let runtime = fixture.builder_over(config).keep_idle_agents(idle_for).build().await.unwrap();
    let [first, second] = secrets;
    let first = process_name(&fixture, &runtime, first).await;
    tokio::time::sleep(between).await;
    let second = process_name(&fixture, &runtime, second).await;
    runtime.shut_down().await;
    (first, second)
}

fn no_secrets() -> [RunSecrets; 2] {
    [RunSecrets::none(), RunSecrets::none()]
}

#[tokio::test]
async fn next_run_reuses_the_mcp_server_of_an_idle_agent() {
    let (first, second) = process_names(Duration::from_mins(1), Duration::ZERO, no_secrets()).await;
    assert_eq!(first, second);
}

#[tokio::test]
async fn mcp_server_ends_with_its_run_unless_idle_agents_are_kept() {
    let (first, second) = process_names(Duration::ZERO, Duration::ZERO, no_secrets()).await;
    assert_ne!(first, second);
}

#[tokio::test]
async fn server_of_an_idle_agent_ends_after_the_idle_time() {
    let (first, second) =
        process_names(Duration::from_millis(100), Duration::from_secs(1), no_secrets()).await;
    assert_ne!(first, second);
}

/// The server may have received the secret of the first run, so another run must not use it.
#[tokio::test]
async fn run_with_a_secret_does_not_share_its_server() {
    let secrets = [RunSecrets::none().with("TOKEN", "s3cret"), RunSecrets::none()];
    let (first, second) = process_names(Duration::from_mins(1), Duration::ZERO, secrets).await;
    assert_ne!(first, second);
}

#[tokio::test]
async fn runs_of_different_agents_share_no_server() {
    let expecting = |system: &str| {
        ScriptStep::text("done").expecting(RequestExpectation {
            system: Some(system.to_owned()),
            ..RequestExpectation::default()
        })
    };
    let fixture = RuntimeFixture::in_order([expecting("You work."), expecting("You rest.")]);
    let runtime = fixture.builder(&json!({})).keep_idle_agents(Duration::from_mins(1)).build().await.unwrap();
    for text in ["You work.", "You rest."] {
        let agent = format!("---\nmodels: openai/m\n---\n{text}\n");
        let run = runtime.start(fixture.spec_of(&agent, "go"), RunSecrets::none()).await.unwrap();
        assert_eq!(answer(&finished(&run).await), "done");
    }
    runtime.shut_down().await;
}

/// A task for each ended run would use memory during the idle time, so all ended runs of an agent must share one task.
#[tokio::test]
async fn ended_runs_of_a_kept_agent_leave_no_tasks_behind() {
    let fixture = RuntimeFixture::in_order(std::iter::repeat_n(ScriptStep::text("done"), 12));
    let runtime = fixture.builder(&json!({})).keep_idle_agents(Duration::from_mins(1)).build().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..12 {
        let run = runtime.start(fixture.spec("go"), RunSecrets::none()).await.unwrap();
        assert_eq!(answer(&finished(&run).await), "done");
        run.closed().await;
        tasks.push(tokio::runtime::Handle::current().metrics().num_alive_tasks());
    }
    assert!(tasks[11] <= tasks[1] + 2, "{tasks:?}");
    runtime.shut_down().await;
}
