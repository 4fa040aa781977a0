//! `haft agents`: lists agents, checks them, and creates a new one.

pub(super) mod args;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use self::args::{AgentsCheckArgs, AgentsCommand, AgentsListArgs, AgentsNewArgs};
use super::args::FileArgs;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::settings;
use super::table::{Table, left};
use super::{hints, terminal, tool_names};
use haft_config::agents::AgentOverrides;
use haft_config::agents::graph::AgentGraph;
use haft_config::agents::loader::{AgentFile, AgentLoadError, AgentLoader};
use haft_config::{ResolvedConfig, printable};
use haft_runtime::pricing::check_prices;

pub(super) fn run(command: &AgentsCommand) -> ExitCode {
    let done = match command {
        AgentsCommand::List(args) => list(args),
        AgentsCommand::Check(args) => check(args),
        AgentsCommand::New(args) => new(args),
    };
    done.unwrap_or_else(CliError::report)
}

/// Returns a loader that finds agents by name in haft's home and in the project.
pub(super) fn loader(files: &FileArgs) -> Result<AgentLoader, CliError> {
    let project = files.workspace.clone().or_else(|| std::env::current_dir().ok());
    Ok(AgentLoader::new(Some(settings::home()?), project.as_deref()))
}

fn list(args: &AgentsListArgs) -> Result<ExitCode, CliError> {
    let mut agents = Vec::new();
    for (file, read) in loader(&args.files)?.all() {
        match read {
            Ok(agent) => agents.push(agent),
            // Print only a warning: the file may be one that an agent includes, and not an agent itself.
            Err(error) => {
                let message =
                    format!("haft ignores the agent file `{}`: {error}", printable(&file.to_string_lossy()));
                terminal::warn(&hints::with(&message, hints::agent(&error)));
            }
        }
    }
    Ok(terminal::answer(&if args.json {
        format!("{:#}", agents.iter().map(as_json).collect::<Value>())
    } else {
        table(&agents)
    }))
}

fn as_json(found: &AgentFile) -> Value {
    let AgentFile { agent, file, .. } = found;
    json!({
        "name": agent.name, "description": agent.description, "file": file.to_string_lossy(), "models": agent.models,
        "agents": agent.reach.agents, "destinations": agent.reach.destinations, "handoff": agent.reach.handoff,
    })
}

fn table(agents: &[AgentFile]) -> String {
    if agents.is_empty() {
        return "There are no agents. `haft agents new NAME` creates one.".into();
    }
    let mut table = Table::new(["NAME", "DESCRIPTION", "FILE"].map(left));
    for AgentFile { agent, file, .. } in agents {
        let description = printable(agent.description.trim());
        table.row([printable(&agent.name), description, printable(&file.to_string_lossy())]);
    }
    table.text()
}

/// Checks each agent together with all agents reachable from it.
fn check(args: &AgentsCheckArgs) -> Result<ExitCode, CliError> {
    let loader = loader(&args.files)?;
    let config = settings::configuration(&args.files).ok().map(|read| read.resolved);
    let all: Vec<(PathBuf, Result<AgentFile, AgentLoadError>)> = if args.names.is_empty() {
        loader.all()
    } else {
        let read = |name: &String| (PathBuf::from(name), loader.read(name, &AgentOverrides::default()));
        args.names.iter().map(read).collect()
    };
    let wrong: Vec<(&Path, String)> = all
        .iter()
        .filter_map(|(file, read)| {
            let found = problem(read, &loader, config.as_ref());
            let found = found.or_else(|| unknown_tools(read, config.as_ref()?))?;
            Some((file.as_path(), found))
        })
        .collect();
    for warning in
        all.iter().filter_map(|(_, read)| read.as_ref().ok()).flat_map(|found| &found.agent.warnings)
    {
        terminal::warn(warning);
    }
    let code: ExitCode = if wrong.is_empty() { ExitReason::Success.into() } else { ExitReason::Input.into() };
    let report = if args.json {
        let errors: Vec<Value> = wrong
            .iter()
            .map(|(file, problem)| json!({"file": file.to_string_lossy(), "error": problem}))
            .collect();
        format!("{:#}", json!({"ok": wrong.is_empty(), "agents": all.len(), "errors": errors}))
    } else if wrong.is_empty() {
        match all.len() {
            1 => "1 agent, no errors".into(),
            number => format!("{number} agents, no errors"),
        }
    } else {
        wrong.iter().map(|(_, problem)| problem.as_str()).collect::<Vec<_>>().join("\n")
    };
    let written = terminal::answer(&report);
    Ok(if written == ExitCode::SUCCESS { code } else { written })
}

/// Returns the problem with an agent, or with an agent reachable from it. With a configuration, also checks that
/// budgets in US dollars can be enforced.
pub(super) fn problem(
    read: &Result<AgentFile, AgentLoadError>,
    loader: &AgentLoader,
    config: Option<&ResolvedConfig>,
) -> Option<String> {
    match read {
        Err(error) => Some(hints::with(error, hints::agent(error))),
        Ok(found) => {
            let again = found.clone();
            match AgentGraph::gather(again, loader) {
                Err(error) => Some(hints::with(&error, hints::agent_graph(&error))),
                Ok(graph) => check_prices(&graph, config?).err().map(|error| error.to_string()),
            }
        }
    }
}

/// Returns errors for the entries in the tool lists of an agent that cannot match any tool.
fn unknown_tools(read: &Result<AgentFile, AgentLoadError>, config: &ResolvedConfig) -> Option<String> {
    let AgentFile { agent, file, .. } = read.as_ref().ok()?;
    let shown = agent.reach.tools.iter().flatten().map(ToString::to_string);
    let allowed = agent.reach.allowed_tools.iter().flatten().cloned();
    let file = printable(&file.to_string_lossy());
    let shown = shown.filter_map(|word| tool_names::unknown_selection(config, &word));
    let allowed = allowed.filter_map(|name| tool_names::unknown_tool(config, &name));
    let problems: Vec<String> = shown.chain(allowed).map(|problem| format!("{file}: {problem}")).collect();
    (!problems.is_empty()).then(|| hints::with(&problems.join("\n"), Some("`haft tools` lists the tools")))
}

/// Creates the file of a new agent. Never overwrites an existing file.
fn new(args: &AgentsNewArgs) -> Result<ExitCode, CliError> {
    let name = args.name.trim_end_matches(".md");
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_');
    if !is_name {
        let hint = "an agent name contains only letters, digits, - and _";
        return Err(
            CliError::usage(format!("`{}` is not a valid agent name", printable(&args.name))).with_hint(hint)
        );
    }
    let directory = if args.home { settings::home()?.root().join("agents") } else { PathBuf::from("agents") };
    let file = directory.join(format!("{name}.md"));
    let written = std::fs::create_dir_all(&directory)
        .and_then(|()| std::fs::File::create_new(&file))
        .and_then(|mut file| file.write_all(START.as_bytes()));
    written.map_err(|error| {
        let hint = "choose another agent name, or run the command in another directory";
        CliError::input(format!("haft cannot create the agent file `{}`: {error}", file.display()))
            .with_hint(hint)
    })?;
    let next = if args.home { format!("@{name}") } else { format!("@{}", file.display()) };
    terminal::note(&format!(
        "created the agent file {}\nhint: `haft run -m PROVIDER/MODEL {next} 'your request'` runs the agent",
        file.display()
    ));
    Ok(ExitReason::Success.into())
}

const START: &str = "---
description: Describe in one line what this agent does
# models: anthropic/claude-sonnet-4-5
tools: [read, bash]
maxTurns: 20
budget:
  tokens: 500000
---
You work on a request with the tools you are given. Look before you change anything, check what you did, and answer in plain
words when you are done.
";
