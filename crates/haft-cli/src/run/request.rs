//! Converts the command line to a run spec.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haft_core::glob::ToolGlob;
use haft_core::internal_tools::final_report::ReportShape;
use serde_json::Value;

use crate::args::{FileArgs, RunArgs};
use crate::cli_error::CliError;
use crate::hints;
use crate::images;
use crate::settings::{self, Configuration};
use crate::terminal;
use crate::variables::variable;
use haft_config::agents::graph::AgentGraph;
use haft_config::agents::loader::{self, AgentLoader, read_bounded};
use haft_config::agents::{AgentOverride, AgentOverrides, InputFormat};
use haft_config::printable;
use haft_config::project_instructions::{InstructionFile, ProjectInstructions};
use haft_runtime::spec::{AgentChanges, ConfigFiles, ModelChoice, RunSpec};

/// The largest request that is read from standard input, in bytes.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// The largest schema that is read, in bytes.
const SCHEMA_BYTES_MAX: u64 = 1 << 20;

/// Builds the run that the command line describes.
pub(super) async fn spec(
    args: &RunArgs,
    configuration: &Configuration,
    loader: &AgentLoader,
) -> Result<RunSpec, CliError> {
    let overrides = overrides(args);
    let (agent, request) = match args.words.as_slice() {
        [agent] if agent.starts_with('@') => {
            let hint = "`haft run @AGENT 'your request'`, or - instead of the request to read it from standard input";
            return Err(CliError::usage("the request for the agent is missing").with_hint(hint));
        }
        [agent, request @ ..] if agent.starts_with('@') => {
            (loader.read(&agent[1..], &overrides)?, request.join(" "))
        }
        request => {
            let agent = loader::default_agent(&overrides).map_err(CliError::input)?;
            (agent, request.join(" "))
        }
    };
    let graph = AgentGraph::gather(agent, loader)?;
    let changes = changes(args, overrides)?;
    let request = written_request(&request, "request").await?;
    let workspace = settings::workspace_spec(&args.policy, configuration).await?;
    let mut spec = RunSpec::new(&graph, request, workspace);
    spec.changes = changes;
    spec.images = args.image.iter().map(|path| images::image(path)).collect::<Result<_, _>>()?;
    if configuration.resolved.project_instructions && !args.no_project_instructions {
        spec.instructions = instructions(&args.policy.files)?;
    }
    if args.route || configuration.resolved.route {
        spec.model_choice = ModelChoice::Routed;
    }
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let files = &args.policy.files;
    spec.config = ConfigFiles {
        named: files.config.as_ref().map(absolute),
        project: files.workspace.as_ref().map(absolute).or_else(|| std::env::current_dir().ok()),
    };
    Ok(spec)
}

/// Reads the trusted instruction files of the project, and warns about the others.
fn instructions(files: &FileArgs) -> Result<Vec<InstructionFile>, CliError> {
    let home = settings::home()?;
    let project = files.workspace.clone().or_else(|| std::env::current_dir().ok());
    let Some(project) = project else { return Ok(Vec::new()) };
    let ProjectInstructions { files, ignored } = ProjectInstructions::load(Some(&home), &project);
    for (path, reason) in &ignored {
        let message = format!(
            "haft does not use `{}` as instructions: {}",
            printable(&path.to_string_lossy()),
            loader::untrusted_message(reason)
        );
        terminal::warn(&hints::with(&message, hints::untrusted(reason)));
    }
    Ok(files)
}

/// Returns the keys of the agent file that the command line sets.
fn overrides(args: &RunArgs) -> AgentOverrides {
    let mut overrides = args.overrides.clone();
    if args.allow_unpriced {
        overrides.push(AgentOverride::new("budget.unpriced", "allow".into()));
    }
    let choice =
        args.tool_choice.as_ref().map(|choice| AgentOverride::new("toolChoice", choice.as_str().into()));
    let output = args.max_output_tokens.map(|tokens| AgentOverride::new("maxOutputTokens", tokens.into()));
    overrides.extend(choice.into_iter().chain(output));
    AgentOverrides(overrides)
}

/// Returns true if piped input can be added to the request: standard input is not the request itself, and the agent
/// accepts text.
pub(super) fn accepts_input(args: &RunArgs, spec: &RunSpec) -> bool {
    let takes_text =
        spec.graph(&variable).is_ok_and(|graph| graph.first().agent.input.format == InputFormat::Text);
    args.words.last().is_none_or(|word| word != "-") && takes_text
}

/// Returns the arguments that name the configuration files of a stored run.
pub(super) fn files_of(spec: &RunSpec) -> FileArgs {
    let project = spec.config.project.as_ref().unwrap_or(&spec.workspace.directory);
    FileArgs { config: spec.config.named.clone(), workspace: Some(project.clone()), ..FileArgs::default() }
}

fn changes(args: &RunArgs, overrides: AgentOverrides) -> Result<AgentChanges, CliError> {
    let globs =
        |tools: &[String]| words(tools).iter().map(|word| ToolGlob::new(word)).collect::<Result<Vec<_>, _>>();
    let tools = args.tools.as_deref().map(globs).transpose();
    Ok(AgentChanges {
        models: args.model.clone(),
        system: args.system.clone(),
        turns_max: args.max_turns,
        timeout: args.timeout,
        tools: tools.map_err(|error| CliError::usage(format!("the value of --tools is invalid: {error}")))?,
        allowed_tools: args.allowed_tools.as_deref().map(words),
        continuations_max: None,
        output_schema: args.output_schema.as_deref().map(output_schema).transpose()?,
        overrides,
    })
}

/// Returns the request, or standard input for `-`. A user may take long to type it, or interrupt, so the read must not
/// block signals. `noun` is the word for the request in messages.
pub(crate) async fn written_request(word: &str, noun: &str) -> Result<String, CliError> {
    let unusable = |problem: &dyn std::fmt::Display| {
        CliError::input(problem).with_hint("give UTF-8 text that is not empty")
    };
    let text = match word {
        "-" => {
            let read = tokio::task::spawn_blocking(read_stdin).await;
            let read = read.unwrap_or_else(|error| Err(error.into()));
            read.map_err(|error| {
                unusable(&format!("haft cannot read the {noun} from standard input: {error}"))
            })?
        }
        _ => word.to_owned(),
    };
    if text.len() as u64 > REQUEST_BYTES_MAX {
        let message = format!("the {noun} has more than {REQUEST_BYTES_MAX} bytes; shorten the {noun}");
        return Err(CliError::input(message));
    }
    if text.trim().is_empty() {
        return Err(unusable(&format!("the {noun} is empty")));
    }
    Ok(text)
}

fn read_stdin() -> std::io::Result<String> {
    let mut text = String::new();
    std::io::stdin().take(REQUEST_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a JSON Schema from a file.
pub(crate) fn output_schema(file: &Path) -> Result<Arc<Value>, CliError> {
    let wrong = |problem: String| {
        CliError::input(format!("{}: {problem}", file.display()))
            .with_hint("give a file that contains one JSON Schema")
    };
    let text = read_bounded(file, SCHEMA_BYTES_MAX).map_err(wrong)?;
    let schema: Arc<Value> =
        serde_json::from_str(&text).map(Arc::new).map_err(|error| wrong(error.to_string()))?;
    // Check the schema before the run, because this error names the file; the runtime would only name the schema.
    ReportShape::json(Arc::clone(&schema)).map_err(wrong)?;
    Ok(schema)
}

/// Removes empty words, so that `--tools ''` means no tools.
fn words(typed: &[String]) -> Vec<String> {
    typed.iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}
