//! Continues a run after its process has ended: `resume_run start` stops in the middle, and `resume_run ID` finishes
//! the run.
#![expect(clippy::print_stdout, reason = "the example prints its result")]

use haft::config::agents::graph::AgentGraph;
use haft::config::agents::{AgentOverrides, loader};
use haft::core::position::SessionId;
use haft::prelude::*;
use haft::{ParkReason, RunSecrets, RunSpec, RunState, Runtime, WorkspaceSpec};
use serde_json::json;

const AGENT: &str = "---\nmodels: openai/gpt-4o\n---\nYou ask for the weather.\n";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `init` must come before any thread starts, because the sandbox starts this binary again.
    haft::init();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let word = std::env::args().nth(1).unwrap_or_default();
    let runtime = Runtime::builder(haft::config::defaults()?).build().await?;
    let run = if word == "start" {
        let agent = loader::of_text("weather", AGENT, &AgentOverrides::default())?;
        let graph = AgentGraph::gather(agent, &loader::AgentLoader::default())?;
        let mut spec =
            RunSpec::new(&graph, "Is it warm in Rome?", WorkspaceSpec::at(std::env::current_dir()?));
        spec.functions.push(haft::spec::FunctionTool {
            name: "weather".into(),
            description: "The weather of a town.".into(),
            parameters: Arc::new(json!({"type": "object", "properties": {"town": {"type": "string"}}})),
            strict: false,
        });
        runtime.start(spec, RunSecrets::none()).await?
    } else {
        let id = SessionId(u128::from_str_radix(&word.replace('-', ""), 16)?);
        runtime.resume(id, None, RunSecrets::none()).await?
    };
    match run.wait().await? {
        RunState::Parked(ParkReason::ClientOutputs(calls)) if word == "start" => {
            // The process ends at this point. The call is in the journal, so no model reply is requested again.
            println!("{} waits for {}", run.id(), calls[0].name);
            return Ok(());
        }
        RunState::Parked(ParkReason::ClientOutputs(calls)) => {
            run.submit(calls.iter().map(|call| ToolReply::text(call, "31 degrees")).collect())?;
        }
        RunState::Parked(_) | RunState::Finished(_) | RunState::Suspended => {}
    }
    let outcome = run.finished().await?;
    println!("{}", outcome.finish.answer.map(|answer| answer.text()).unwrap_or_default());
    Ok(())
}
