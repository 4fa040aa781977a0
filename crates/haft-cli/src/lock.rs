//! `haft lock`: writes the definitions of all tools to `haft.lock`, compares the current definitions with the file, and
//! lets the user accept changes.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::future::join_all;
use haft_config::ResolvedConfig;
use haft_config::tool_lock::{self, LOCK_FILE_NAME};
use haft_core::provider::ToolProvider;
use haft_core::tool_lock::{LockChange, LockFormat, LockedSource, ToolLock};
use haft_runtime::definition_watch::{locked_apis, locked_server, server_key};
use haft_runtime::rest::Freshness;
use haft_runtime::wiring;
use haft_tools::mcp::McpProvider;
use haft_tools::rest::RestTools;
use serde_json::{Value, json};

use super::args::{FileArgs, LockArgs, LockCommand, LockReviewArgs, PolicyArgs};
use super::exit::ExitReason;
use super::question::{self, Consent};
use super::servers::face;
use super::settings::{self, CliError};
use super::status_line::waiting;
use super::terminal::counted;
use super::{cancel, terminal};

/// The note about a lock file that an earlier version of haft wrote.
const FORMER_FORMAT: &str = "note: an earlier version of haft wrote this lock file, without the directories and \
    environment variables of servers and without the hosts of HTTP APIs. Review and accept this information once.\n";

/// The output of a command, as text and as JSON.
struct LockCommandOutput {
    text: String,
    json: Value,
    exit: ExitReason,
}

pub(super) async fn run(args: &LockArgs) -> ExitCode {
    let as_json = match &args.command {
        Some(LockCommand::Review(review)) => review.json,
        None => args.json,
    };
    let answer = tokio::select! {
        biased;
        exit = cancel::cancelled() => return exit.into(),
        answer = answer(args) => answer,
    };
    match answer {
        Ok(LockCommandOutput { text, json, exit }) => {
            let code = terminal::answer(&if as_json { format!("{json:#}") } else { text });
            if code == ExitCode::SUCCESS { exit.into() } else { code }
        }
        Err((exit, message)) => terminal::failed(exit, &message),
    }
}

async fn answer(args: &LockArgs) -> Result<LockCommandOutput, CliError> {
    match &args.command {
        Some(LockCommand::Review(review)) => self::review(review).await,
        None if args.check => check(&args.files).await,
        None => create(&args.files).await,
    }
}

/// The current tools, and the lock file to compare them with.
struct LockComparison {
    path: PathBuf,
    locked: Option<Arc<ToolLock>>,
    found: ToolLock,
}

impl LockComparison {
    async fn of(files: &FileArgs) -> Result<Self, CliError> {
        let configuration = settings::configuration(files)?;
        let home = settings::home()?;
        let project = files.workspace.clone().or_else(|| std::env::current_dir().ok());
        let path = tool_lock::path_for(project.as_deref(), Some(&home)).ok_or_else(|| {
            (
                ExitReason::Input,
                "haft found neither a project directory nor a home directory for the lock file".to_owned(),
            )
        })?;
        let policy = settings::policy(&PolicyArgs::of_files(files), &configuration).await?;
        // Load this file alone, because the configuration contains it merged with the lock file in haft's home
        // directory.
        let locked = tool_lock::load(&path).map_err(|error| (ExitReason::Input, error.to_string()))?;
        let rest = super::rest::tools(&configuration.resolved, &home, Freshness::Kept).await;
        let mut found = servers(&configuration.resolved, &policy).await?;
        found.sources.extend(locked_apis(&RestTools::new(rest)));
        Ok(Self { path, locked, found })
    }

    fn changes(&self) -> Vec<LockChange> {
        self.locked.as_ref().map_or_else(Vec::new, |locked| locked.changes_to(&self.found))
    }

    /// Returns everything that a review accepts: without a lock file, this is every tool.
    fn reviewed_changes(&self) -> Vec<LockChange> {
        let nothing = ToolLock::default();
        self.locked.as_deref().unwrap_or(&nothing).changes_to(&self.found)
    }

    /// Returns the differences as text. Explains the differences that only an earlier version of haft causes.
    fn overview(&self, changes: &[LockChange]) -> String {
        let format = self.locked.as_ref().map_or(LockFormat::Current, |locked| locked.format);
        let note = match format {
            LockFormat::Former if needs_review(changes) => FORMER_FORMAT,
            LockFormat::Former | LockFormat::Current => "",
        };
        format!("{note}{}", shown(changes))
    }

    fn tools(&self) -> usize {
        self.found.sources.values().map(|source| source.tools.len()).sum()
    }

    fn save(&self) -> Result<(), CliError> {
        tool_lock::save(&self.path, &self.found).map_err(|error| {
            (
                ExitReason::Internal,
                format!("haft cannot write the lock file `{}`: {error}", self.path.display()),
            )
        })
    }
}

/// Starts every server, because a cached tool list may be older than the server.
async fn servers(
    config: &ResolvedConfig,
    policy: &haft_sandbox::SandboxPolicy,
) -> Result<ToolLock, CliError> {
    let made = wiring::mcp_servers(config, policy, &face(config));
    if let Some((name, reason)) = made.unusable.first() {
        return Err((ExitReason::Input, format!("haft cannot use MCP server `{name}`: {reason}")));
    }
    let starting = made.providers.iter().map(|provider| started(provider, config));
    let started = waiting("starting servers", String::new, join_all(starting)).await;
    join_all(made.providers.iter().map(|provider| provider.shutdown())).await;
    let sources = started.into_iter().collect::<Result<_, _>>()?;
    Ok(ToolLock { sources, ..ToolLock::default() })
}

async fn started(
    provider: &Arc<McpProvider>,
    config: &ResolvedConfig,
) -> Result<(String, LockedSource), CliError> {
    let server = provider.server();
    let outcome = server.start().await;
    let status = server.status();
    if let Err(error) = outcome {
        let hint = format!("hint: `haft mcp test {}` tests the server", status.name);
        return Err((
            ExitReason::Unavailable,
            format!(
                "haft cannot compare the tools, because a server did not start: {}\n{hint}",
                error.message
            ),
        ));
    }
    let settings = config
        .mcp_servers
        .get(&status.name)
        .ok_or_else(|| (ExitReason::Internal, format!("MCP server `{}` is not configured", status.name)))?;
    Ok((server_key(&status.name), locked_server(settings, &status)))
}

async fn create(files: &FileArgs) -> Result<LockCommandOutput, CliError> {
    let comparison = LockComparison::of(files).await?;
    let changes = comparison.changes();
    let path = comparison.path.display().to_string();
    let tools = counted(comparison.tools(), "tool");
    if needs_review(&changes) {
        let text = comparison.overview(&changes);
        let hint = "hint: `haft lock review` shows the changes and accepts them";
        terminal::note(&text);
        return Err((
            ExitReason::Denied,
            format!("haft did not change `{path}`, because tool definitions changed\n{hint}"),
        ));
    }
    comparison.save()?;
    let text = match &comparison.locked {
        None => format!(
            "wrote {path} with {tools}\ncommit this file: from now on, haft quarantines each tool that is new or changed"
        ),
        Some(_) => format!("{path} is up to date: {tools}"),
    };
    Ok(output(text, &path, &changes, ExitReason::Success))
}

async fn check(files: &FileArgs) -> Result<LockCommandOutput, CliError> {
    let comparison = LockComparison::of(files).await?;
    let path = comparison.path.display().to_string();
    if comparison.locked.is_none() {
        let hint = "hint: `haft lock` writes the lock file";
        return Err((ExitReason::Input, format!("there is no {LOCK_FILE_NAME} at `{path}`\n{hint}")));
    }
    let changes = comparison.changes();
    let (exit, end) = if needs_review(&changes) {
        (
            ExitReason::Failed,
            "tools differ from the lock file; `haft lock review` shows and accepts the changes".to_owned(),
        )
    } else {
        (ExitReason::Success, format!("{path} is up to date: {}", counted(comparison.tools(), "tool")))
    };
    Ok(output(format!("{}{end}", comparison.overview(&changes)), &path, &changes, exit))
}

async fn review(args: &LockReviewArgs) -> Result<LockCommandOutput, CliError> {
    let comparison = LockComparison::of(&args.files).await?;
    let path = comparison.path.display().to_string();
    let changes = comparison.reviewed_changes();
    if comparison.locked.is_some() && changes.is_empty() {
        return Ok(output(format!("{path} is up to date"), &path, &changes, ExitReason::Success));
    }
    let overview = comparison.overview(&changes);
    if !args.yes {
        consent(&overview).await?;
    }
    comparison.save()?;
    let text = format!("{}accepted: wrote {path}", if args.yes { overview } else { String::new() });
    Ok(output(text, &path, &changes, ExitReason::Success))
}

fn output(text: String, path: &str, changes: &[LockChange], exit: ExitReason) -> LockCommandOutput {
    let listed: Vec<Value> = changes
        .iter()
        .map(|change| json!({ "informational": change.is_informational(), "lines": change.lines() }))
        .collect();
    LockCommandOutput { text, json: json!({ "file": path, "changes": listed }), exit }
}

fn needs_review(changes: &[LockChange]) -> bool {
    changes.iter().any(|change| !change.is_informational())
}

fn shown(changes: &[LockChange]) -> String {
    let mut text = String::new();
    for line in changes.iter().flat_map(LockChange::lines) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Asks the user at the terminal. A script must pass `--yes`.
async fn consent(overview: &str) -> Result<(), CliError> {
    match question::consent(overview, "accept these definitions? [y] yes, any other key: no").await {
        Consent::Given => Ok(()),
        Consent::Refused => {
            Err((ExitReason::Denied, "nothing was accepted, because you did not confirm".into()))
        }
        Consent::NoTerminal => {
            let hint = "hint: review the changes above, then accept them with `haft lock review --yes`";
            let message =
                format!("nothing was accepted: haft needs a terminal to ask for your consent\n{hint}");
            Err((ExitReason::Denied, message))
        }
    }
}
