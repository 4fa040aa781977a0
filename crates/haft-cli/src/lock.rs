//! `haft lock`: writes the definitions of all tools to `haft.lock`, compares the current definitions with the file, and
//! lets the user accept changes.

mod review;

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

use super::args::{FileArgs, LockArgs, LockCommand, PolicyArgs};
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::servers::face;
use super::settings;
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
        Err(error) => error.report(),
    }
}

async fn answer(args: &LockArgs) -> Result<LockCommandOutput, CliError> {
    match &args.command {
        Some(LockCommand::Review(review)) => review::review(review).await,
        None if args.check => check(args).await,
        None => create(args).await,
    }
}

/// Selects whether a command prints all lines of a change, or shortens long differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChangeDetail {
    Full,
    Shortened,
}

impl ChangeDetail {
    fn of(args: &LockArgs) -> Self {
        if args.full { Self::Full } else { Self::Shortened }
    }

    fn lines(self, change: &LockChange) -> Vec<String> {
        match self {
            Self::Full => change.lines(),
            Self::Shortened => change.shortened_lines(),
        }
    }
}

/// A server whose tools haft cannot compare.
#[derive(Debug)]
struct UncomparedSource {
    source: String,
    reason: String,
}

impl UncomparedSource {
    fn line(&self) -> String {
        let Self { source, reason } = self;
        format!("! {source}: not compared: {}", haft_config::printable(reason))
    }
}

/// The current tools, and the lock file to compare them with.
struct LockComparison {
    path: PathBuf,
    locked: Option<Arc<ToolLock>>,
    /// The tools of all sources. For a server that cannot be compared, these are its tools in the lock file.
    found: ToolLock,
    uncompared: Vec<UncomparedSource>,
    /// The project files that are ignored, because they are not trusted.
    ignored: Vec<PathBuf>,
}

impl LockComparison {
    async fn of(files: &FileArgs) -> Result<Self, CliError> {
        let configuration = settings::configuration(files)?;
        let home = settings::home()?;
        let project = files.workspace.clone().or_else(|| std::env::current_dir().ok());
        let path = tool_lock::path_for(project.as_deref(), Some(&home)).ok_or_else(|| {
            CliError::input("haft found neither a project directory nor a home directory for the lock file")
        })?;
        let policy = settings::policy(&PolicyArgs::of_files(files), &configuration).await?;
        // Load this file alone, because the configuration contains it merged with the lock file in haft's home
        // directory.
        let locked = tool_lock::load(&path).map_err(CliError::input)?;
        let rest = super::rest::tools(&configuration.resolved, &home, Freshness::Kept).await;
        let (mut found, uncompared) = servers(&configuration.resolved, &policy).await;
        found.sources.extend(locked_apis(&RestTools::new(rest)));
        keep_uncompared(&mut found, locked.as_deref(), &uncompared);
        Ok(Self { path, locked, found, uncompared, ignored: configuration.ignored().to_vec() })
    }

    fn changes(&self) -> Vec<LockChange> {
        self.locked.as_ref().map_or_else(Vec::new, |locked| locked.changes_to(&self.found))
    }

    /// Returns everything that a review accepts: without a lock file, this is every tool.
    fn reviewed_changes(&self) -> Vec<LockChange> {
        let nothing = ToolLock::default();
        self.locked.as_deref().unwrap_or(&nothing).changes_to(&self.found)
    }

    /// Returns the differences as text, with notes about the comparison.
    fn overview(&self, changes: &[LockChange], detail: ChangeDetail) -> String {
        format!("{}{}{}", self.note_about_format(changes), shown(changes, detail), self.end_notes(changes))
    }

    /// Returns a note if an earlier version of haft wrote the lock file and the changes need a review; otherwise an
    /// empty text.
    fn note_about_format(&self, changes: &[LockChange]) -> &'static str {
        let format = self.locked.as_ref().map_or(LockFormat::Current, |locked| locked.format);
        match format {
            LockFormat::Former if needs_review(changes) => FORMER_FORMAT,
            LockFormat::Former | LockFormat::Current => "",
        }
    }

    /// Returns the servers that were not compared, and the note about ignored files.
    fn end_notes(&self, changes: &[LockChange]) -> String {
        let lines = self.uncompared.iter().map(|server| server.line() + "\n");
        lines.collect::<String>() + &self.note_about_ignored(changes)
    }

    /// Returns a note if haft ignores untrusted project files, as in CI. Without the note, a user could believe that
    /// the servers in these files were removed.
    fn note_about_ignored(&self, changes: &[LockChange]) -> String {
        let is_removal = |change: &LockChange| matches!(change, LockChange::SourceRemoved { .. });
        let files: Vec<String> = self.ignored.iter().map(|path| format!("`{}`", path.display())).collect();
        if files.is_empty() || !changes.iter().any(is_removal) {
            return String::new();
        }
        format!(
            "note: haft ignores {}, because you have not trusted it, so its servers look removed\nhint: `haft trust` \
             shows the file and trusts it; in CI, run `haft trust --yes` first\n",
            files.join(" and ")
        )
    }

    /// Returns the output of a command. The JSON form contains all lines.
    fn output(&self, text: String, changes: &[LockChange], exit: ExitReason) -> LockCommandOutput {
        let listed: Vec<Value> = changes
            .iter()
            .map(|change| {
                let (source, lines) = (change.source(), change.lines());
                json!({ "source": source, "informational": change.is_informational(), "lines": lines })
            })
            .collect();
        let uncompared = |UncomparedSource { source, reason }: &UncomparedSource| json!({ "source": source, "reason": reason });
        let uncompared: Vec<Value> = self.uncompared.iter().map(uncompared).collect();
        let json =
            json!({ "file": self.path.display().to_string(), "changes": listed, "uncompared": uncompared });
        LockCommandOutput { text, json, exit }
    }

    /// Returns the exit reason of a command without an error: `Unavailable` if haft could not compare a server.
    fn exit(&self) -> ExitReason {
        if self.uncompared.is_empty() { ExitReason::Success } else { ExitReason::Unavailable }
    }

    fn tools(&self) -> usize {
        self.found.sources.values().map(|source| source.tools.len()).sum()
    }

    fn save(&self, lock: &ToolLock) -> Result<(), CliError> {
        tool_lock::save(&self.path, lock).map_err(|error| {
            CliError::internal(format!("haft cannot write the lock file `{}`: {error}", self.path.display()))
        })
    }
}

/// Copies the locked tools of each server that was not compared into `found`. Otherwise haft would report these tools
/// as removed, and drop them from the lock file.
fn keep_uncompared(found: &mut ToolLock, locked: Option<&ToolLock>, uncompared: &[UncomparedSource]) {
    for UncomparedSource { source, .. } in uncompared {
        if let Some(kept) = locked.and_then(|locked| locked.sources.get(source)) {
            found.sources.insert(source.clone(), kept.clone());
        }
    }
}

/// Starts every server, because a cached tool list may be older than the server.
async fn servers(
    config: &ResolvedConfig,
    policy: &haft_sandbox::SandboxPolicy,
) -> (ToolLock, Vec<UncomparedSource>) {
    let made = wiring::mcp_servers(config, policy, &face(config));
    let unusable = |(name, reason): (String, String)| UncomparedSource { source: server_key(&name), reason };
    let mut uncompared: Vec<UncomparedSource> = made.unusable.into_iter().map(unusable).collect();
    let starting = made.providers.iter().map(|provider| started(provider, config));
    let started = waiting("starting servers", String::new, join_all(starting)).await;
    join_all(made.providers.iter().map(|provider| provider.shutdown())).await;
    let mut found = ToolLock::default();
    for server in started {
        match server {
            Ok((key, source)) => {
                found.sources.insert(key, source);
            }
            Err(failed) => uncompared.push(failed),
        }
    }
    (found, uncompared)
}

async fn started(
    provider: &Arc<McpProvider>,
    config: &ResolvedConfig,
) -> Result<(String, LockedSource), UncomparedSource> {
    let server = provider.server();
    let outcome = server.start().await;
    let status = server.status();
    let source = server_key(&status.name);
    match (outcome, config.mcp_servers.get(&status.name)) {
        (Ok(()), Some(settings)) => Ok((source, locked_server(settings, &status))),
        (Ok(()), None) => Err(UncomparedSource { source, reason: "the server is not configured".to_owned() }),
        (Err(error), _) => Err(UncomparedSource { source, reason: error.message }),
    }
}

async fn create(args: &LockArgs) -> Result<LockCommandOutput, CliError> {
    let comparison = LockComparison::of(&args.files).await?;
    let changes = comparison.changes();
    let path = comparison.path.display().to_string();
    let tools = counted(comparison.tools(), "tool");
    if needs_review(&changes) {
        let text = comparison.overview(&changes, ChangeDetail::of(args));
        let hint = "`haft lock review` shows the changes and accepts them";
        terminal::note(&text);
        return Err(CliError::denied(format!(
            "haft did not change `{path}`, because tool definitions changed"
        ))
        .with_hint(hint));
    }
    comparison.save(&comparison.found)?;
    let text = match &comparison.locked {
        None => format!(
            "wrote {path} with {tools}\ncommit this file: from now on, haft quarantines each tool that is new or changed"
        ),
        Some(_) => format!("{path} is up to date: {tools}"),
    };
    let text = format!("{}{text}", comparison.end_notes(&changes));
    Ok(comparison.output(text, &changes, comparison.exit()))
}

async fn check(args: &LockArgs) -> Result<LockCommandOutput, CliError> {
    let comparison = LockComparison::of(&args.files).await?;
    let path = comparison.path.display().to_string();
    if comparison.locked.is_none() {
        let hint = "`haft lock` writes the lock file";
        return Err(CliError::input(format!("there is no {LOCK_FILE_NAME} at `{path}`")).with_hint(hint));
    }
    let changes = comparison.changes();
    let (exit, end) = if needs_review(&changes) {
        (
            ExitReason::Failed,
            "tools differ from the lock file; `haft lock review` shows and accepts the changes".to_owned(),
        )
    } else if comparison.uncompared.is_empty() {
        (ExitReason::Success, format!("{path} is up to date: {}", counted(comparison.tools(), "tool")))
    } else {
        let hint = "hint: `haft mcp test` tests a server";
        let end = format!("haft cannot compare all servers with {path}; the others are up to date\n{hint}");
        (comparison.exit(), end)
    };
    let overview = comparison.overview(&changes, ChangeDetail::of(args));
    Ok(comparison.output(format!("{overview}{end}"), &changes, exit))
}

fn needs_review(changes: &[LockChange]) -> bool {
    changes.iter().any(|change| !change.is_informational())
}

fn shown<'a>(changes: impl IntoIterator<Item = &'a LockChange>, detail: ChangeDetail) -> String {
    let mut text = String::new();
    for line in changes.into_iter().flat_map(|change| detail.lines(change)) {
        let _ = writeln!(text, "{line}");
    }
    text
}
