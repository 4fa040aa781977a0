//! `haft demo`: a run that needs no key. The model is scripted, the tools and the sandbox are real.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use haft_runtime::model_server::{ModelServer, Script, ScriptPart, ScriptStep};
use serde_json::json;

use super::args::{Cli, CliCommand, DemoArgs, OutputFormat, RunArgs};
use super::exit::ExitReason;
use super::run::{self as running, RunSetup, StandardInput};
use super::settings::{CliError, Configuration};
use super::terminal;
use haft_config::skills::Skills;

/// A dummy key: the server on the loopback does not check it.
const KEY: &str = "demo";

pub(super) async fn run(args: &DemoArgs) -> ExitCode {
    let (workspace, server) = match stage() {
        Ok(stage) => stage,
        Err(error) => {
            let hint = "hint: the demo needs a temporary directory and a free loopback port";
            return terminal::failed(
                ExitReason::Unavailable,
                &format!("the demo cannot be set up: {error}\n{hint}"),
            );
        }
    };
    terminal::note(&format!(
        "The model of this demo is a script on {}: no key, no network. The tools are real and run in the real sandbox, in a \
         temporary directory.\nRequest: {REQUEST}",
        server.url()
    ));
    let url = format!("{}/v1", server.url());
    let variables = move |name: &str| match name {
        "OPENAI_BASE_URL" => Some(url.clone()),
        "OPENAI_API_KEY" => Some(KEY.to_owned()),
        _ => None,
    };
    let started = async {
        let typed = typed(args, workspace.path())?;
        let given = RunSetup {
            // The configuration files of the operator could name another server, or deny a tool.
            configuration: Configuration::defaults()?,
            skills: Skills::default(),
            variables: Arc::new(variables),
            models: None,
            keeps_session: false,
            piped: None,
        };
        Box::pin(running::begin(&typed, given, StandardInput::Ignored)).await
    };
    running::carry_out(OutputFormat::Text, Box::pin(started)).await
}

fn stage() -> std::io::Result<(tempfile::TempDir, ModelServer)> {
    let workspace = tempfile::Builder::new().prefix("haft-demo-").tempdir()?;
    std::fs::write(workspace.path().join("numbers.txt"), "3\n1\n4\n1\n5\n")?;
    Ok((workspace, ModelServer::start(script())?))
}

/// Builds the arguments as if they had been typed on the command line.
fn typed(args: &DemoArgs, workspace: &std::path::Path) -> Result<RunArgs, CliError> {
    let mut words = vec!["haft", "run", "-m", "openai/scripted", "--mode", "workspace", "--workspace"];
    let workspace = workspace.to_string_lossy();
    words.push(&workspace);
    if args.no_color {
        words.push("--no-color");
    }
    words.push(REQUEST);
    match Cli::try_parse_from(words).map(|cli| cli.command) {
        Ok(CliCommand::Run(args)) => Ok(args),
        Ok(_) => Err((ExitReason::Internal, "the demo does not run".into())),
        Err(error) => Err((ExitReason::Internal, error.to_string())),
    }
}

const REQUEST: &str = "Add up numbers.txt, write the sum to sum.txt, and try to leave the workspace.";

/// Scripts two concurrent calls, one call that writes, one that the sandbox must refuse, and the answer.
fn script() -> Script {
    let look = [
        ScriptPart::Text("I look at the file and at the date.".into()),
        ScriptPart::call("read", json!({"file_path": "numbers.txt"})),
        ScriptPart::call("current_date", json!({})),
    ];
    let add = "paste -sd+ numbers.txt | tr -d '\\n' > sum.txt; echo >> sum.txt; awk '{s+=$1} END {print s}' numbers.txt | tee -a sum.txt";
    Script::of([
        ScriptStep::say(look),
        ScriptStep::call("bash", json!({"command": add})),
        ScriptStep::call("write", json!({"file_path": "/etc/haft-demo", "content": "I was here"})),
        ScriptStep::text(
            "The sum is 14; it stands in sum.txt. Outside of the workspace nothing can be written: the sandbox refused it.",
        ),
    ])
}
