//! `haft mcp logs`: shows the log of a server's last run.

use haft_tools::mcp::read_saved_log;
use serde_json::json;

use super::super::cli_error::CliError;
use super::super::settings;
use super::args::McpLogsArgs;
use super::{McpCommandOutput, directory, namespace, unambiguous};
use haft_config::printable;

pub(super) fn logs(args: &McpLogsArgs) -> Result<McpCommandOutput, CliError> {
    let home = settings::home()?;
    let config = settings::configuration(&args.files)?.resolved;
    unambiguous(&config, &args.name)?;
    let path = directory(&home).join(format!("{}.log", namespace(&args.name)));
    let saved = read_saved_log(&path).map_err(|error| {
        CliError::internal(format!("haft cannot read the server log `{}`: {error}", path.display()))
    })?;
    let Some(saved) = saved else {
        let text = format!("the log of MCP server `{}` is empty", args.name);
        return Ok(McpCommandOutput::new(text, json!({ "name": args.name, "lines": [] })));
    };
    let lines: Vec<&str> = saved.lines().collect();
    let last = &lines[lines.len().saturating_sub(args.lines)..];
    let text = last.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n");
    Ok(McpCommandOutput::new(text, json!({ "name": args.name, "lines": last })))
}
