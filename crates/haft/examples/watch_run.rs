//! Starts a run, prints its events as they happen, and allows every call for which the rules require approval.
#![expect(clippy::print_stdout, reason = "the example prints its result")]

use haft::config::agents::graph::AgentGraph;
use haft::config::agents::{AgentOverrides, loader};
use haft::core::tool::ApprovalPolicy;
use haft::{ApprovalDecision, EventSeq, ParkReason, RunSecrets, RunSpec, RunState, Runtime, WorkspaceSpec};

const AGENT: &str = "---\nmodels: openai/gpt-4o\ntools: [current_date]\n---\nYou tell the date.\n";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `init` must come before any thread starts, because the sandbox starts this binary again.
    haft::init();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut config = haft::config::defaults()?;
    config.policy.default = ApprovalPolicy::Ask;

    let runtime = Runtime::builder(config).build().await?;
    let agent = loader::of_text("clock", AGENT, &AgentOverrides::default())?;
    let graph = AgentGraph::gather(agent, &loader::AgentLoader::default())?;
    let directory = std::env::current_dir()?;
    let run = runtime
        .start(RunSpec::new(&graph, "What day is it?", WorkspaceSpec::at(directory)), RunSecrets::none())
        .await?;

    let mut events = run.events(EventSeq::START);
    let printing = tokio::spawn(async move {
        while let Some(Ok(event)) = events.next().await {
            println!("{}", serde_json::to_string(&*event).unwrap_or_default());
        }
    });
    loop {
        match run.wait().await? {
            RunState::Parked(ParkReason::Approval(pending)) => {
                for call in pending {
                    println!("allowing {} {}", call.tool, call.arguments);
                    run.decide(call.id, ApprovalDecision::Allow)?;
                }
            }
            RunState::Suspended => return Err("the run was suspended".into()),
            RunState::Parked(reason) => return Err(format!("the run waits: {reason:?}").into()),
            RunState::Finished(outcome) => {
                printing.await?;
                println!("{}", outcome.finish.answer.map(|answer| answer.text()).unwrap_or_default());
                return Ok(());
            }
        }
    }
}
