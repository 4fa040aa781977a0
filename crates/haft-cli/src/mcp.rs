//! `haft mcp`: adds, lists, tests and removes MCP servers, shows their logs, and offers all tools as one server.

mod add;
pub(super) mod args;
mod callback;
pub(super) mod import;
mod import_preview;
mod import_sockets;
mod install;
mod list;
mod login;
mod logs;
pub(super) mod missing_permission;
#[cfg(feature = "serve")]
pub(super) mod opener;
#[cfg(feature = "serve")]
pub(super) mod serve;
#[cfg(feature = "serve")]
mod std_streams;
mod test;
#[cfg(feature = "serve")]
pub(super) mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use haft_core::name::Namespace;
use haft_sandbox::Home;
use serde_json::Value;

use self::args::{ConfigScopeArg, McpCommand};
use super::cancel;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::terminal;
use haft_config::namespace_conflict::namespace_conflict;
use haft_config::resolved::McpServerSettings;
use haft_config::{ResolvedConfig, trust};

/// The section of a configuration file for MCP servers.
const SECTION: &str = "mcpServers";

/// The output of a command, as text and as JSON.
struct McpCommandOutput {
    text: String,
    json: Value,
    exit: ExitReason,
}

impl McpCommandOutput {
    fn new(text: String, json: Value) -> Self {
        Self { text, json, exit: ExitReason::Success }
    }
}

pub(super) async fn run(command: &McpCommand) -> ExitCode {
    let (answer, as_json) = match command {
        #[cfg(feature = "serve")]
        McpCommand::Serve(args) => return Box::pin(serve::serve(args)).await,
        McpCommand::Add(args) => match args.clone().with_options_after_url() {
            Ok(args) => {
                let answer = tokio::select! {
                    biased;
                    exit = cancel::cancelled() => return exit.into(),
                    answer = add::add(&args) => answer,
                };
                (answer, args.options.json)
            }
            Err(error) => return error.report(),
        },
        McpCommand::Remove(args) => (add::remove(args).await, args.json),
        McpCommand::Install(args) => (install::install(args), args.json),
        McpCommand::Import(args) => {
            let answer = tokio::select! {
                biased;
                exit = cancel::cancelled() => return exit.into(),
                answer = import::import(args) => answer,
            };
            (answer, args.json)
        }
        McpCommand::List(args) => (list::list(args), args.json),
        McpCommand::Logout(args) => (login::logout(args).await, args.json),
        McpCommand::Login(args) => {
            let answer = tokio::select! {
                biased;
                exit = cancel::cancelled() => return exit.into(),
                answer = login::login(args) => answer,
            };
            (answer, args.json)
        }
        McpCommand::Logs(args) => (logs::logs(args), args.json),
        McpCommand::Test(args) => {
            let answer = tokio::select! {
                biased;
                exit = cancel::cancelled() => return exit.into(),
                answer = test::test(args) => answer,
            };
            (answer, args.json)
        }
    };
    match answer {
        Ok(McpCommandOutput { text, json, exit }) => {
            let code = terminal::answer(&if as_json { format!("{json:#}") } else { text });
            if code == ExitCode::SUCCESS { exit.into() } else { code }
        }
        Err(error) => error.report(),
    }
}

/// Returns the directory for cached data about servers.
fn directory(home: &Home) -> PathBuf {
    home.data().join("mcp")
}

/// Returns the configuration file of a scope.
fn file_of(scope: ConfigScopeArg, home: &Home) -> Result<PathBuf, CliError> {
    match scope {
        // The file may be a symlink; the edit must not replace the link.
        ConfigScopeArg::User => Ok(home.config().canonicalize().unwrap_or_else(|_| home.config())),
        ConfigScopeArg::Project => {
            let here = std::env::current_dir().and_then(|directory| trust::project_file(&directory));
            here.map_err(|error| CliError::usage(format!("haft cannot read the current directory: {error}")))
        }
    }
}

/// Returns the server with this name.
fn configured<'a>(config: &'a ResolvedConfig, name: &str) -> Result<&'a McpServerSettings, CliError> {
    config.mcp_servers.get(name).ok_or_else(|| {
        let known: Vec<&str> = config.mcp_servers.keys().map(String::as_str).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        CliError::input(format!("there is no MCP server `{name}`; configured servers: {known}"))
            .with_hint("`haft mcp list` shows the state of each server")
    })
}

/// Returns the server with this name, unless another server uses the same namespace.
fn unambiguous<'a>(config: &'a ResolvedConfig, name: &str) -> Result<&'a McpServerSettings, CliError> {
    match namespace_conflict(&config.mcp_servers, name) {
        None => configured(config, name),
        Some(reason) => Err(CliError::input(format!("haft cannot use MCP server `{name}`: {reason}"))),
    }
}

fn namespace(name: &str) -> String {
    Namespace::sanitize(name).as_str().to_owned()
}
