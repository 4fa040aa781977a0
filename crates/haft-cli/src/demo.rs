//! `haft demo`: a run that needs no API key. The model is scripted; the tools and the sandbox are real.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use haft_config::resolved::{ModelName, ModelSettings};
use haft_core::price::Price;
use haft_runtime::model_server::{ModelServer, Script, ScriptPart, ScriptStep, ScriptUsage};
use serde_json::json;

use super::args::{Cli, CliCommand, DemoArgs, OutputFormat, RunArgs};
use super::cli_error::CliError;
use super::run::{self as running, RunSetup, StdinPolicy};
use super::settings::Configuration;
use super::terminal;
use haft_config::skills::Skills;

/// A dummy API key, which the scripted server does not check.
const KEY: &str = "demo";

pub(super) async fn run(args: &DemoArgs) -> ExitCode {
    let (workspace, server) = match stage() {
        Ok(stage) => stage,
        Err(error) => {
            let hint = "the demo needs a temporary directory and a free loopback port";
            return CliError::unavailable(format!("haft cannot set up the demo: {error}"))
                .with_hint(hint)
                .report();
        }
    };
    terminal::note(&format!("{INTRODUCTION}\n\nRequest: {REQUEST}\n"));
    let url = format!("{}/v1", server.url());
    let variables = move |name: &str| match name {
        "OPENAI_BASE_URL" => Some(url.clone()),
        "OPENAI_API_KEY" => Some(KEY.to_owned()),
        _ => None,
    };
    let started = async {
        let typed = typed(args, workspace.path())?;
        let setup = RunSetup {
            // Use no configuration files: they could name another server, or deny a tool.
            configuration: priced(Configuration::defaults()?),
            skills: Skills::default(),
            variables: Arc::new(variables),
            models: None,
            keeps_session: false,
            piped: None,
        };
        Box::pin(running::begin(&typed, setup, StdinPolicy::Ignored)).await
    };
    let code = running::carry_out(OutputFormat::Text, Box::pin(started)).await;
    if code == ExitCode::SUCCESS {
        terminal::note(NEXT);
    }
    code
}

const INTRODUCTION: &str = "\
The model in this demo follows a script, so it needs no API key and no network. Its token counts and prices are
made up. Everything else is real: two agents, their tools, and the sandbox around a temporary directory.";

const REQUEST: &str = "Add up the two invoices, have the total checked, and save it.";

const NEXT: &str = "
Try it with a model of your own:
  ANTHROPIC_API_KEY=... haft run -m anthropic/claude-sonnet-4-5 'What is in this directory?'
  haft run -m ollama/llama3 'What is in this directory?'
`haft models` lists the providers, and `haft doctor` checks this machine.";

/// The model of the demo. Its name selects the script.
const MODEL: &str = "openai/scripted";

/// The agent that receives the request, and the agent that it calls.
const LEAD: (&str, &str) = (
    "accountant.md",
    "---\nagents: checker.md\ntools: [read, write]\n---\nYou add up invoices. Have every total checked.\n",
);
const CHECKER: (&str, &str) = (
    "checker.md",
    "---\ndescription: Checks a total\ntools: [bash]\n---\nYou check totals with the shell.\n",
);

const INVOICES: [(&str, &str); 2] =
    [("january.csv", "paper,40\nprinter,80\n"), ("february.csv", "toner,80\n")];

fn stage() -> std::io::Result<(tempfile::TempDir, ModelServer)> {
    let workspace = tempfile::Builder::new().prefix("haft-demo-").tempdir()?;
    for (name, text) in INVOICES.into_iter().chain([LEAD, CHECKER]) {
        std::fs::write(workspace.path().join(name), text)?;
    }
    Ok((workspace, ModelServer::start(script())?))
}

/// Gives the model a price, so that the summary of the run shows a cost.
fn priced(mut configuration: Configuration) -> Configuration {
    let settings = ModelSettings { price: Some(Price::flat(3.0, 15.0)), ..ModelSettings::default() };
    let model = ModelName::parse(MODEL).map(|model| (model, settings));
    configuration.resolved.models.settings.extend(model);
    configuration
}

/// Builds the arguments as if the user had typed them.
fn typed(args: &DemoArgs, workspace: &std::path::Path) -> Result<RunArgs, CliError> {
    let mut words = vec!["haft", "run", "-m", MODEL, "--mode", "workspace", "--workspace"];
    let agent = format!("@{}", workspace.join(LEAD.0).display());
    let workspace = workspace.to_string_lossy();
    words.push(&workspace);
    if args.no_color {
        words.push("--no-color");
    }
    words.extend([agent.as_str(), REQUEST]);
    match Cli::try_parse_from(words).map(|cli| cli.command) {
        Ok(CliCommand::Run(args)) => Ok(args),
        Ok(_) => Err(CliError::internal("the arguments of the demo do not start a run")),
        Err(error) => Err(CliError::internal(error)),
    }
}

/// Returns a script with two concurrent reads, a call of the other agent, a write that the sandbox must deny, a write
/// that it allows, and the answer.
fn script() -> Script {
    let read = |(name, _): (&str, &str)| ScriptPart::call("read", json!({ "file_path": name }));
    let check = "awk -F, '{ total += $2 } END { print total }' january.csv february.csv";
    let write = |path: &str| ScriptStep::call("write", json!({ "file_path": path, "content": "200\n" }));
    let lead = [
        ScriptStep::say(INVOICES.map(read)),
        ScriptStep::call("agent__checker", json!({ "request": "Check that the invoices add up to 200." })),
        write("/etc/total.txt"),
        write("total.txt"),
        ScriptStep::text(
            "The two invoices add up to 200, and the checker came to the same total. I saved it in total.txt.\n\
             I first tried to save it in /etc, but the sandbox denied that.",
        ),
    ];
    let checker =
        [ScriptStep::call("bash", json!({ "command": check })), ScriptStep::text("The total is 200.")];
    let priced =
        |input, step: ScriptStep| step.using(ScriptUsage { input, output: 60, ..ScriptUsage::default() });
    Script::default()
        .about(REQUEST, lead.map(|step| priced(1800, step)))
        .about("Check that", checker.map(|step| priced(600, step)))
}
