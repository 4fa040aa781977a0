//! What was typed: the agent, as what was typed changes it, and what is asked of it.

use std::io::Read;
use std::sync::Arc;

use haft_core::glob::ToolGlob;
use haft_core::internal::final_report::ReportShape;
use haft_core::validate::Schema;
use serde_json::Value;

use crate::args::RunArgs;
use crate::exit::Exit;
use crate::settings::Refused;
use haft_config::agents::graph::AgentGraph;
use haft_config::agents::loader::{self, AgentFile, AgentLoader, read_bounded};
use haft_config::agents::{Agent, InputFormat, Overrides, ReportBy};

/// The longest request that is read from standard input.
const REQUEST_BYTES_MAX: u64 = 16 << 20;

/// The longest schema that is read.
const SCHEMA_BYTES_MAX: u64 = 1 << 20;

/// The agent and what is asked of it.
pub(super) async fn said(args: &RunArgs, loader: &AgentLoader) -> Result<(AgentGraph, String), Refused> {
    let overrides = Overrides(args.overrides.clone());
    let (agent, request) = match args.words.as_slice() {
        [agent, request] if agent.starts_with('@') => {
            let agent = loader.read(&agent[1..], &overrides);
            (agent.map_err(|error| (Exit::Input, error.to_string()))?, request)
        }
        [agent] if agent.starts_with('@') => {
            let hint = "hint: haft run @AGENT 'what it shall do', or - to read it from standard input";
            return Err((Exit::Usage, format!("nothing is asked of the agent\n{hint}")));
        }
        [request] => {
            (loader::unnamed(&overrides).map_err(|error| (Exit::Input, error.to_string()))?, request)
        }
        _ => {
            let hint = "hint: put it in quotation marks; an agent's file is written @FILE";
            return Err((Exit::Usage, format!("the request must be one word for the shell\n{hint}")));
        }
    };
    let AgentFile { agent, file } = agent;
    let agent = AgentFile { agent: as_typed(args, agent)?, file };
    let graph = AgentGraph::gather(agent, loader).map_err(|error| (Exit::Input, error.to_string()))?;
    let request = written_request(request).await?;
    Ok((graph, request))
}

/// An agent that says what it is given is given nothing else.
pub(super) fn fits(agent: &Agent, request: &str) -> Result<(), Refused> {
    let wrong = |problem: String| {
        let hint = "hint: give JSON as the agent's `input` says";
        Err((Exit::Input, format!("`{}` cannot take the request: {problem}\n{hint}", agent.name)))
    };
    if agent.input.format == InputFormat::Text {
        return Ok(());
    }
    let value: Value = match serde_json::from_str(request) {
        Ok(value) => value,
        Err(error) => return wrong(format!("it is not JSON: {error}")),
    };
    let schema = agent.input.schema.as_deref().map(Schema::compile);
    schema.map_or(Ok(()), |schema| schema.check(&value, request.len())).or_else(wrong)
}

/// Whoever types it may take their time, and may change their mind.
pub(super) async fn written_request(word: &str) -> Result<String, Refused> {
    let unusable = |problem: &dyn std::fmt::Display| {
        (
            Exit::Input,
            format!("the request cannot be used: {problem}\nhint: give UTF-8 text that is not empty"),
        )
    };
    let text = match word {
        "-" => {
            let read = tokio::task::spawn_blocking(read_stdin).await;
            read.unwrap_or_else(|error| Err(error.into())).map_err(|error| unusable(&error))?
        }
        _ => word.to_owned(),
    };
    if text.len() as u64 > REQUEST_BYTES_MAX {
        return Err(unusable(&format!("it has more than {REQUEST_BYTES_MAX} bytes")));
    }
    if text.trim().is_empty() {
        return Err(unusable(&"it is empty"));
    }
    Ok(text)
}

fn read_stdin() -> std::io::Result<String> {
    let mut text = String::new();
    std::io::stdin().take(REQUEST_BYTES_MAX + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// What was typed wins over the agent's file.
fn as_typed(args: &RunArgs, mut agent: Agent) -> Result<Agent, Refused> {
    if !args.model.is_empty() {
        agent.models.clone_from(&args.model);
    }
    if let Some(system) = &args.system {
        agent.body.clone_from(system);
    }
    agent.limits.turns_max = args.max_turns.unwrap_or(agent.limits.turns_max);
    agent.times.run = args.timeout.unwrap_or(agent.times.run);
    if let Some(allowed) = &args.allowed_tools {
        agent.reach.allowed_tools = Some(words(allowed));
    }
    if let Some(tools) = &args.tools {
        let globs = words(tools).iter().map(|word| ToolGlob::new(word)).collect::<Result<Vec<_>, _>>();
        agent.reach.tools = Some(globs.map_err(|error| (Exit::Usage, format!("--tools: {error}")))?);
    }
    if let Some(shape) = output_shape(args)? {
        agent.report.shape = shape;
        agent.report.by = match agent.report.by {
            ReportBy::None | ReportBy::Tool => ReportBy::Tool,
            ReportBy::Xml => ReportBy::Xml,
        };
    }
    Ok(agent)
}

fn output_shape(args: &RunArgs) -> Result<Option<ReportShape>, Refused> {
    let Some(file) = &args.output_schema else { return Ok(None) };
    let wrong = |problem: String| {
        (Exit::Input, format!("{}: {problem}\nhint: give a file with one JSON Schema", file.display()))
    };
    let text = read_bounded(file, SCHEMA_BYTES_MAX).map_err(wrong)?;
    let schema: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    ReportShape::json(Arc::new(schema)).map(Some).map_err(wrong)
}

/// `--tools ''` is no tools at all.
fn words(typed: &[String]) -> Vec<String> {
    typed.iter().map(|word| word.trim().to_owned()).filter(|word| !word.is_empty()).collect()
}
