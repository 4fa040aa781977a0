//! `haft mcp test`: connects to a server and reports its tools and problems.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haft_core::result::ToolError;
use haft_core::tool::ToolDefinition;
use haft_tools::mcp::{McpServerStatus, SupervisedServer};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::args::{FileArgs, PolicyArgs};
use super::super::cli_error::CliError;
use super::super::exit::ExitReason;
use super::super::servers::face;
use super::super::settings::{self, Configuration};
use super::super::status_line::waiting;
use super::super::tools::{schema_problem, tokens_by_length, tokens_text};
use super::args::McpTestArgs;
use super::missing_permission::{config_hint, lacked};
use super::{McpCommandOutput, unambiguous};
use haft_config::printable;
use haft_config::resolved::McpServerSettings;
use haft_runtime::wiring::{self, McpServers};

/// The maximum number of log lines that are shown after a failure.
const LINES_SHOWN_MAX: usize = 10;

pub(super) async fn test(args: &McpTestArgs) -> Result<McpCommandOutput, CliError> {
    let configuration = alone(args)?;
    let policy = settings::policy(&PolicyArgs::of_files(&args.files), &configuration).await?;
    let resolved = &configuration.resolved;
    let found = wiring::mcp_servers(resolved, &policy, &face(resolved));
    let server = only(&found, &args.name)?;
    let began = Instant::now();
    let outcome = started(server, &args.name).await;
    let took = began.elapsed();
    let status = server.status();
    let answer = match outcome {
        Ok(()) => ready(&args.name, &status, took),
        Err(error) => failed(&args.name, &status, &error.message, server),
    };
    server.stop().await;
    Ok(answer)
}

/// Starts a server, waits at most `wait`, and returns its tools or the reason why they are not known. Asks no question:
/// if the workspace would be the user's home directory, the server is not started.
pub(super) async fn listed_tools(name: &str, wait: Duration) -> Result<Vec<ToolDefinition>, String> {
    let files = FileArgs::default();
    let args = McpTestArgs { name: name.to_owned(), trace_mcp: false, json: false, files };
    let message_of = |error: CliError| error.to_string();
    let configuration = alone(&args).map_err(message_of)?;
    let policy = settings::policy_outside_home(&PolicyArgs::of_files(&args.files), &configuration);
    let (policy, resolved) = (policy.map_err(message_of)?, &configuration.resolved);
    let found = wiring::mcp_servers(resolved, &policy, &face(resolved));
    let server = only(&found, name).map_err(message_of)?;
    let tools = match timeout(wait, started(server, name)).await {
        Ok(Ok(())) => Ok(server.status().listing.tools().to_vec()),
        Ok(Err(error)) => Err(server.status().reason.unwrap_or(error.message)),
        Err(_) => Err(format!("the server did not list its tools within {} s", wait.as_secs())),
    };
    server.stop().await;
    tools
}

/// Returns the configuration with only this server, enabled even if the configuration disables it.
fn alone(McpTestArgs { name, trace_mcp, files, .. }: &McpTestArgs) -> Result<Configuration, CliError> {
    let mut configuration = settings::configuration(files)?;
    let server = unambiguous(&configuration.resolved, name)?.clone();
    let enabled = McpServerSettings { enabled: true, ..server };
    configuration.resolved.mcp_servers = [(name.clone(), enabled)].into();
    configuration.resolved.trace_mcp |= trace_mcp;
    Ok(configuration)
}

fn only<'a>(found: &'a McpServers, name: &str) -> Result<&'a Arc<SupervisedServer>, CliError> {
    found.providers.first().map(|provider| provider.server()).ok_or_else(|| {
        let reason = found.unusable.first().map(|(_, reason)| reason.clone()).unwrap_or_default();
        CliError::input(format!("haft cannot use MCP server `{name}`: {reason}"))
    })
}

async fn started(server: &SupervisedServer, name: &str) -> Result<(), ToolError> {
    let last_log_line = || server.log(1).pop().unwrap_or_default();
    waiting(&format!("starting `{name}`"), last_log_line, server.start()).await
}

fn ready(name: &str, status: &McpServerStatus, took: Duration) -> McpCommandOutput {
    let tools = status.listing.tools();
    let protocol = status.era.as_ref().map_or("-", |era| era.version());
    let era = status.era.as_ref().map_or("-", |era| era.name());
    let transport = status.transport.unwrap_or("-");
    let mut text = format!("MCP server `{name}` is ready after {} ms\n", took.as_millis());
    let greeting = &status.greeting;
    let _ = writeln!(text, "  server     {}", printable(&format!("{} {}", greeting.name, greeting.version)));
    let _ = writeln!(text, "  protocol   {protocol} ({era})");
    let _ = writeln!(text, "  transport  {transport}");
    let _ = writeln!(text, "  tools      {}, {}", tools.len(), tokens_text(tokens_by_length(tools.iter())));
    for tool in tools {
        let _ = writeln!(text, "    {:<12} {}", tool.effects.name(), tool.name);
    }
    let unchecked: Vec<(&str, String)> =
        tools.iter().filter_map(|tool| Some((tool.name.as_str(), schema_problem(tool)?))).collect();
    for (tool, reason) in &unchecked {
        let _ = writeln!(text, "  unchecked  {tool}: {}", printable(reason));
    }
    for skipped in &status.listing.skipped {
        let _ = writeln!(text, "  left out   {}: {}", printable(&skipped.name), printable(&skipped.reason));
    }
    if status.noise > 0 {
        let _ = writeln!(
            text,
            "  noise      {} lines on the standard output of the server were not MCP messages",
            status.noise
        );
    }
    let skipped = status.listing.skipped.iter();
    let json = json!({
        "name": name,
        "ready": true,
        "milliseconds": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "server": { "name": greeting.name, "version": greeting.version },
        "protocol": protocol,
        "era": era,
        "transport": transport,
        "instructions": greeting.instructions.as_deref(),
        "tools": tools.iter().map(|tool| json!({
            "name": tool.name.as_str(), "effects": tool.effects.name(), "description": tool.description,
        })).collect::<Vec<Value>>(),
        "skipped": skipped.map(|skipped| json!({ "name": skipped.name, "reason": skipped.reason })).collect::<Vec<Value>>(),
        "unchecked": unchecked.iter().map(|(name, reason)| json!({ "name": name, "reason": reason })).collect::<Vec<Value>>(),
        "noise": status.noise,
    });
    McpCommandOutput::new(text, json)
}

/// Reports the reason for a failure, the last log lines, and the missing permission if the log shows one.
fn failed(
    name: &str,
    status: &McpServerStatus,
    message: &str,
    server: &Arc<SupervisedServer>,
) -> McpCommandOutput {
    let reason = status.reason.clone().unwrap_or_else(|| message.to_owned());
    let log = server.log(LINES_SHOWN_MAX);
    let all = server.log(usize::MAX);
    let lines = all.iter().map(String::as_str).chain(reason.lines());
    let lacked = lacked(lines, |path| Path::new(path).is_dir());
    let mut text = format!("MCP server `{name}` is not ready: {}\n", reason.trim_end());
    for line in &log {
        let _ = writeln!(text, "  | {}", printable(line));
    }
    let hint = lacked.as_ref().map(|lacked| lacked.hint(name)).or_else(|| config_hint(name, &reason));
    if let Some(hint) = &hint {
        let _ = writeln!(text, "hint: {hint}");
    }
    let json = json!({
        "name": name,
        "ready": false,
        "state": status.state,
        "reason": reason,
        "log": log,
        "grant": lacked.as_ref().map(super::missing_permission::MissingPermission::key),
        "hint": hint,
    });
    McpCommandOutput { text, json, exit: ExitReason::Unavailable }
}
