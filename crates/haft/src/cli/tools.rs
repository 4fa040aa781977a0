//! `haft tools`: what can be called.

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::future::join_all;
use haft_core::tool::ToolDefinition;
use haft_tools::mcp::Server;
use serde_json::{Value, json};

use super::args::{PolicyArgs, ToolsArgs};
use super::exit::Exit;
use super::servers::servers;
use super::settings::{Configuration, Refused};
use super::{settings, terminal};
use crate::wiring;

pub(super) async fn run(args: &ToolsArgs) -> ExitCode {
    let configuration = match settings::configuration(&args.files) {
        Ok(configuration) => configuration,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let config = &configuration.resolved;
    let servers = match servers_of(args, &configuration).await {
        Ok(servers) => servers,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let mut tools = wiring::definitions(config, &servers);
    join_all(servers.iter().map(|server| server.stop())).await;
    if let Some(group) = &args.group {
        tools.retain(|tool| tool.groups.iter().any(|found| found.as_str() == group));
    }
    if let Some(name) = &args.name {
        tools.retain(|tool| tool.name.as_str().eq_ignore_ascii_case(name));
        if tools.is_empty() {
            return terminal::failed(
                Exit::Input,
                &format!("Unknown tool: {name}\nhint: `haft tools` lists them all"),
            );
        }
    }
    if args.json {
        let list: Vec<Value> = tools.iter().map(as_json).collect();
        return terminal::answer(&format!("{:#}", Value::Array(list)));
    }
    terminal::answer(&if args.schema { with_schemas(&tools) } else { table(&tools) })
}

/// No sandbox is needed to show what is built in, so none is asked for where there are no servers.
async fn servers_of(args: &ToolsArgs, configuration: &Configuration) -> Result<Vec<Arc<Server>>, Refused> {
    if configuration.resolved.mcp_servers.is_empty() {
        return Ok(Vec::new());
    }
    let policy = settings::policy(&PolicyArgs::of_files(&args.files), configuration)?;
    Ok(servers(&configuration.resolved, &policy, args.name.as_deref()).await)
}

fn as_json(tool: &ToolDefinition) -> Value {
    json!({
        "name": tool.name.as_str(),
        "description": tool.description,
        "groups": tool.groups.iter().map(haft_core::name::GroupName::as_str).collect::<Vec<_>>(),
        "effects": tool.effects.name(),
        "input_schema": tool.input_schema,
    })
}

fn table(tools: &[ToolDefinition]) -> String {
    let width = tools.iter().map(|tool| tool.name.as_str().len()).fold(14, usize::max);
    let mut text = format!("{:<width$} {:<9} {:<11} {}\n", "NAME", "GROUP", "EFFECTS", "DESCRIPTION");
    for tool in tools {
        let group = tool.groups.first().map_or("", |group| group.as_str());
        let _ = writeln!(
            text,
            "{:<width$} {group:<9} {:<11} {}",
            tool.name.as_str(),
            tool.effects.name(),
            first_sentence(tool)
        );
    }
    text
}

fn with_schemas(tools: &[ToolDefinition]) -> String {
    let mut text = String::new();
    for tool in tools {
        let _ = writeln!(
            text,
            "{}\n  {}\n{:#}\n",
            tool.name,
            tool.description.replace('\n', "\n  "),
            tool.input_schema
        );
    }
    text.trim_end().to_owned()
}

fn first_sentence(tool: &ToolDefinition) -> String {
    let line = tool.description.replace('\n', " ");
    line.split_inclusive(". ").next().unwrap_or_default().trim().trim_end_matches('.').to_owned()
}
