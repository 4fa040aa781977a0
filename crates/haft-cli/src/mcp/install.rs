//! `haft mcp install`: adds haft as an MCP server to the configuration of a client, or removes it.

use std::path::PathBuf;

use haft_config::edit::{ConfigEntry, EditError};
use haft_config::foreign_file::{BackupState, ForeignFile};
use haft_config::import::ImportSource;
use haft_sandbox::user_home;
use serde_json::{Value, json};

use super::super::cli_error::CliError;
use super::McpCommandOutput;
use super::args::{McpClientArg, McpInstallArgs};
use super::import::directory_variable;

pub(super) fn install(args: &McpInstallArgs) -> Result<McpCommandOutput, CliError> {
    let file = ForeignFile::read(&path(args.client)?).map_err(|error| refused(&error))?;
    let changed = if args.remove { without(args, &file) } else { with(args, &file) };
    let changed = changed.map_err(|error| refused(&error))?;
    let backup = file.replace(&changed).map_err(|error| refused(&error))?;
    let path = file.path().display();
    let done = if args.remove { "removed" } else { "added" };
    let preposition = if args.remove { "from" } else { "to" };
    let backup_line = backup.as_ref().map(|backup| match backup.state {
        BackupState::New => format!("\nhaft saved the old file as {}", backup.path.display()),
        BackupState::Earlier => {
            format!("\n{} contains the file from before the first change", backup.path.display())
        }
    });
    let backup = backup.as_ref().map(|backup| &backup.path);
    let text = format!("{done} `{}` {preposition} {path}{}", args.name, backup_line.unwrap_or_default());
    Ok(McpCommandOutput::new(
        text,
        json!({ "client": args.client.name(), "file": file.path(), "backup": backup, "removed": args.remove }),
    ))
}

fn path(client: McpClientArg) -> Result<PathBuf, CliError> {
    let home = user_home()
        .ok_or(CliError::usage("HOME is not set, so haft cannot find the configuration of the client"))?;
    let (source, in_home) = match client {
        McpClientArg::Claude => (ImportSource::ClaudeCode, ".claude.json"),
        McpClientArg::Cursor => (ImportSource::Cursor, ".cursor/mcp.json"),
        McpClientArg::Codex => (ImportSource::Codex, ".codex/config.toml"),
    };
    let named = directory_variable(source).and_then(|(variable, file)| {
        std::env::var_os(variable).filter(|at| !at.is_empty()).map(|at| PathBuf::from(at).join(file))
    });
    Ok(named.unwrap_or_else(|| home.join(in_home)))
}

fn with(args: &McpInstallArgs, file: &ForeignFile) -> Result<String, EditError> {
    let program = std::env::current_exe().map_or_else(|_| "haft".into(), |path| path.display().to_string());
    let words: Vec<&str> =
        ["mcp", "serve"].into_iter().chain(args.serve.iter().map(String::as_str)).collect();
    match args.client {
        McpClientArg::Claude => {
            let members = [("type", json!("stdio")), ("command", json!(program)), ("args", json!(words))];
            file.with_json_entry(json_entry(&args.name), &members)
        }
        McpClientArg::Cursor => {
            let members = [("command", json!(program)), ("args", json!(words))];
            file.with_json_entry(json_entry(&args.name), &members)
        }
        McpClientArg::Codex => {
            // Write the values as JSON, because a JSON string, or a list of such strings, is also valid TOML.
            let values = [("command", Value::from(program).to_string()), ("args", json!(words).to_string())];
            file.with_toml_table(toml_entry(&args.name), &values)
        }
    }
}

fn without(args: &McpInstallArgs, file: &ForeignFile) -> Result<String, EditError> {
    match args.client {
        McpClientArg::Claude | McpClientArg::Cursor => file.without_json_entry(json_entry(&args.name)),
        McpClientArg::Codex => file.without_toml_table(toml_entry(&args.name)),
    }
}

fn json_entry(name: &str) -> ConfigEntry<'_> {
    ConfigEntry { section: "mcpServers", name }
}

fn toml_entry(name: &str) -> ConfigEntry<'_> {
    ConfigEntry { section: "mcp_servers", name }
}

fn refused(error: &EditError) -> CliError {
    CliError::input(error)
}
