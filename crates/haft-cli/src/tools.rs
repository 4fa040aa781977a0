//! `haft tools`: lists the tools.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;

use haft_core::tokens::{Tokens, tokens_of};
use haft_core::tool::ToolDefinition;
use haft_core::validate::Schema;
use haft_engine::exposure::SHOWN_TOOLS_MAX;
use haft_engine::{OfferedTool, Orchestrator, RunContext, ToolFilter};
use haft_tools::rest::RestTools;
use serde_json::{Value, json};

use super::args::{FileArgs, PolicyArgs, ToolsArgs};
use super::call::{begin, end};
use super::cancel;
use super::cli_error::CliError;
use super::servers::{ServerRequirements, providers};
use super::settings::Configuration;
use super::table::{Table, left, right};
use super::{settings, terminal};
use haft_config::printable;
use haft_runtime::definition_watch::DefinitionWatch;
use haft_runtime::rest::Freshness;
use haft_runtime::tokens::UsedCounter;
use haft_runtime::wiring::{self, ToolSettings};

pub(super) async fn run(args: &ToolsArgs) -> ExitCode {
    let configuration = match settings::configuration(&args.files) {
        Ok(configuration) => configuration,
        Err(error) => return error.report(),
    };
    let listed = tokio::select! {
        biased;
        exit = cancel::cancelled() => return exit.into(),
        listed = listed(&args.files, args.name.as_deref(), configuration) => listed,
    };
    let mut tools = match listed {
        Ok(tools) => tools,
        Err(error) => return error.report(),
    };
    if let Some(group) = &args.group {
        let groups = groups(&tools);
        tools.retain(|tool| tool.groups.iter().any(|found| found.as_str() == group));
        if tools.is_empty() {
            let message = format!("no active tool is in the group `{group}`");
            return CliError::input(message).with_hint(format!("the groups are {groups}")).report();
        }
    }
    if let Some(name) = &args.name {
        tools.retain(|tool| tool.name.as_str().eq_ignore_ascii_case(name));
        if tools.is_empty() {
            return CliError::input(format!("Unknown tool: {name}"))
                .with_hint("`haft tools` lists all tools")
                .report();
        }
    }
    warn_of_schemas(&tools);
    match (args.json, args.tokens) {
        (true, _) => {
            let list =
                tools.iter().map(|tool| if args.tokens { as_json_with_tokens(tool) } else { as_json(tool) });
            terminal::answer(&format!("{:#}", Value::Array(list.collect())))
        }
        (false, true) => terminal::answer(&token_table(&tools)),
        (false, false) => terminal::answer(&if args.schema { with_schemas(&tools) } else { table(&tools) }),
    }
}

/// Warns about tools whose arguments cannot be checked.
fn warn_of_schemas(tools: &[ToolDefinition]) {
    for tool in tools {
        if let Some(reason) = schema_problem(tool) {
            let name = printable(tool.name.as_str());
            terminal::warn(&format!(
                "haft does not check the arguments of tool `{name}`: {}",
                printable(&reason)
            ));
        }
    }
}

/// Returns the reason why arguments cannot be checked with the schema of a tool.
pub(super) fn schema_problem(tool: &ToolDefinition) -> Option<String> {
    match Schema::compile(&tool.input_schema) {
        Schema::Checked(_) => None,
        Schema::Unchecked { reason } => Some(reason),
    }
}

fn as_json_with_tokens(tool: &ToolDefinition) -> Value {
    let mut value = as_json(tool);
    value["tokens"] = json!(definition_tokens(tool).count());
    value
}

/// Estimates the tokens of all definitions from their length.
pub(super) fn tokens_by_length<'a>(tools: impl Iterator<Item = &'a ToolDefinition>) -> Tokens {
    let bytes: usize = tools
        .map(|tool| tool.name.as_str().len() + tool.description.len() + tool.input_schema.to_string().len())
        .sum();
    Tokens::by_length(bytes as u64)
}

/// Returns a number of tokens as text, such as `about 1200 tokens`.
pub(super) fn tokens_text(tokens: Tokens) -> String {
    format!("{tokens} tokens")
}

/// Returns a note about tool search for a new source with this many tools. It continues a sentence; empty if models see
/// all tools.
pub(super) fn search_note(tools: usize) -> &'static str {
    if tools > SHOWN_TOOLS_MAX { "; models search these tools instead of seeing all of them" } else { "" }
}

/// Estimates the tokens of a definition in a model's context: name, description and schema, as most wire formats send
/// them.
fn definition_tokens(tool: &ToolDefinition) -> Tokens {
    let sent = json!({ "name": tool.name.as_str(), "description": tool.description, "parameters": tool.input_schema });
    tokens_of(&UsedCounter, &sent.to_string())
}

fn token_table(tools: &[ToolDefinition]) -> String {
    let costs: Vec<Tokens> = tools.iter().map(definition_tokens).collect();
    let mut table = Table::new([left("NAME"), right("TOKENS"), left("DESCRIPTION")]);
    for (tool, cost) in tools.iter().zip(&costs) {
        table.row([tool.name.as_str().to_owned(), cost.to_string(), first_sentence(tool)]);
    }
    let sum: Tokens = costs.into_iter().sum();
    table.row(["sum".to_owned(), sum.to_string()]);
    table.text()
}

/// Lists the distinct groups of all tools.
fn groups(tools: &[ToolDefinition]) -> String {
    let names: BTreeSet<&str> =
        tools.iter().flat_map(|tool| &tool.groups).map(haft_core::name::GroupName::as_str).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// Returns the definitions of all tools. Without MCP servers no sandbox is needed, so no sandbox policy is built.
pub(super) async fn listed(
    files: &FileArgs,
    name: Option<&str>,
    configuration: Configuration,
) -> Result<Vec<ToolDefinition>, CliError> {
    let rest = super::rest::tools(&configuration.resolved, &settings::home()?, Freshness::Kept).await;
    if configuration.resolved.mcp_servers.is_empty() {
        return Ok(wiring::definitions(&configuration.resolved, rest));
    }
    let policy = settings::policy(&PolicyArgs::of_files(files), &configuration).await?;
    let config = configuration.resolved;
    let mut others =
        providers(&config, &policy, ServerRequirements { tool: name, ..ServerRequirements::default() });
    others.push(Arc::new(RestTools::new(rest)));
    let definitions = DefinitionWatch::new(&config, policy.home());
    let settings = ToolSettings { policy, timeout: None, config };
    let orchestrator = wiring::orchestrator_with(settings, others);
    begin(&orchestrator, &definitions).await;
    let tools = shown(&orchestrator);
    end(&orchestrator, &definitions).await;
    Ok(tools)
}

fn shown(orchestrator: &Orchestrator) -> Vec<ToolDefinition> {
    let definition = |OfferedTool { entry, governed }: OfferedTool| ToolDefinition {
        name: entry.exposed().clone(),
        effects: governed.effects,
        groups: governed.groups,
        ..entry.definition().clone()
    };
    orchestrator.tools(&ToolFilter::default(), &RunContext::default()).into_iter().map(definition).collect()
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
    let mut table = Table::new(["NAME", "GROUP", "EFFECTS", "DESCRIPTION"].map(left));
    for tool in tools {
        let group = tool.groups.first().map_or("", |group| group.as_str());
        table.row([tool.name.as_str(), group, tool.effects.name(), &first_sentence(tool)]);
    }
    table.text()
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

pub(super) fn first_sentence(tool: &ToolDefinition) -> String {
    let line = tool.description.replace('\n', " ");
    line.split_inclusive(". ").next().unwrap_or_default().trim().trim_end_matches('.').to_owned()
}
