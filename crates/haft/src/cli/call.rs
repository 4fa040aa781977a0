//! `haft call TOOL JSON`: one call.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use haft_core::approval::Remembered;
use haft_core::arguments::{ARGUMENTS_BYTES_MAX, Arguments};
use haft_core::event::{EventSink, NoEvents};
use haft_core::result::{ToolError, ToolErrorKind, ToolResult};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::{Memory, Orchestrator};
use haft_sandbox::Home;
use haft_tools::output::{FileStore, StoreLimits};
use serde::Serialize;
use serde_json::Value;

use super::approver::TerminalApprover;
use super::args::CallArgs;
use super::cancel;
use super::exit::Exit;
use super::log::Log;
use super::servers::servers;
use super::settings::{self, Refused};
use super::terminal::{self, StatusLine};
use crate::accounting::Journal;
use crate::approvals;
use crate::wiring::{self, Settings};

pub(super) async fn run(args: &CallArgs) -> ExitCode {
    let prepared = match arguments(args) {
        Ok(arguments) => orchestrator(args).await.map(|orchestrator| (arguments, orchestrator)),
        Err(refused) => Err(refused),
    };
    let (arguments, orchestrator) = match prepared {
        Ok(prepared) => prepared,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let name = args.tool.clone().unwrap_or_default();
    let call = ToolCall { id: CallId("1".into()), name, arguments };
    let result = tokio::select! {
        biased;
        result = orchestrator.execute(call) => result,
        exit = cancel::cancelled() => return exit.into(),
    };
    wiring::shut_down(&orchestrator).await;
    if let Some(home) = crate::home::find() {
        keep_approvals(&orchestrator, &home);
    }
    Log::new(args.verbose).tell(&result);
    if args.json { print_json(&result) } else { print_text(&result) }
}

pub(super) async fn orchestrator(args: &CallArgs) -> Result<Orchestrator, Refused> {
    let config = settings::configuration(&args.policy.files)?;
    let policy = settings::policy(&args.policy, &config)?;
    let home = policy.home().clone();
    let servers = servers(&config.resolved, &policy, args.tool.as_deref()).await;
    let approver = if args.stdin { None } else { TerminalApprover::when_somebody_is_there() };
    Ok(wiring::orchestrator(Settings {
        policy,
        timeout: args.timeout,
        events: events(args, &home),
        config: config.resolved,
        approver,
        remembered: Memory::new(approvals::load(&home)),
        store: Some(Arc::new(store(&home)?)),
        servers,
    }))
}

/// The status line on a terminal, and the journal behind it.
fn events(args: &CallArgs, home: &Home) -> Arc<dyn EventSink> {
    let status = if args.stdin { None } else { StatusLine::new() };
    let seen: Arc<dyn EventSink> = match status {
        Some(status) => Arc::new(status),
        None => Arc::new(NoEvents),
    };
    match Journal::open(home, Arc::clone(&seen)) {
        Ok(journal) => Arc::new(journal),
        Err(error) => {
            terminal::warn(&format!("calls are not accounted for: {error}"));
            seen
        }
    }
}

fn store(home: &Home) -> Result<FileStore, Refused> {
    FileStore::open(&home.data().join("outputs"), StoreLimits::default()).map_err(|error| {
        let hint = "hint: set HAFT_HOME to a directory that you may write";
        (Exit::Internal, format!("the output store cannot be opened: {error}\n{hint}"))
    })
}

/// Keeps what the person said for good during this run.
fn keep_approvals(orchestrator: &Orchestrator, home: &Home) {
    let Remembered { exact, rules } = orchestrator.config().authority.remembered.snapshot();
    let kept = approvals::load(home);
    // What another run kept meanwhile stays.
    let mut all = kept.clone();
    all.exact.extend(exact);
    all.rules.extend(rules);
    if all != kept
        && let Err(error) = approvals::save(home, &all)
    {
        terminal::warn(&format!("the approval could not be kept: {error}"));
    }
}

fn arguments(args: &CallArgs) -> Result<Arguments, Refused> {
    match args.arguments.as_deref() {
        None => Ok(Arguments::from_text("{}")),
        Some("-") => read_arguments(std::io::stdin()),
        Some(text) => Ok(Arguments::from_text(text)),
    }
}

fn read_arguments(input: impl Read) -> Result<Arguments, Refused> {
    let unreadable = |error: &dyn std::fmt::Display| {
        let hint = "hint: send one JSON object as UTF-8 text";
        (Exit::Input, format!("the arguments cannot be read from standard input: {error}\n{hint}"))
    };
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the parser can say that it is too much.
    let bytes_max = u64::try_from(ARGUMENTS_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    input.take(bytes_max).read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    if bytes.len() > ARGUMENTS_BYTES_MAX {
        // It may be cut inside a character; it is refused for its size all the same.
        return Ok(Arguments::from_text(String::from_utf8_lossy(&bytes)));
    }
    String::from_utf8(bytes).map(Arguments::from_text).map_err(|error| unreadable(&error.utf8_error()))
}

/// A tool that ran and failed has given an answer; everything else is said on standard error.
fn print_text(result: &ToolResult) -> ExitCode {
    match &result.outcome {
        Ok(output) => terminal::answer(&output.as_text()),
        Err(error) if error.kind == ToolErrorKind::Failed => {
            let printed = terminal::answer(&error.message);
            if printed == ExitCode::SUCCESS { Exit::Failed.into() } else { printed }
        }
        Err(error) => terminal::failed(error.kind.into(), &for_a_person(error, &result.call.name)),
    }
}

/// The message was written for a model. A person sees `error:` before it, and is told what to do next.
fn for_a_person(error: &ToolError, tool: &str) -> String {
    let lines: Vec<&str> = error.message.lines().map(|line| unlabelled(line, error.kind)).collect();
    let message = lines.join("\n");
    match hint(error.kind, tool) {
        Some(hint) => format!("{message}\nhint: {hint}"),
        None => message,
    }
}

/// Only complaints about arguments have a label on every line; elsewhere a line may be a command's own output.
fn unlabelled(line: &str, kind: ToolErrorKind) -> &str {
    match kind {
        ToolErrorKind::InvalidArguments => line.strip_prefix("Error: ").unwrap_or(line),
        ToolErrorKind::Denied => line.strip_prefix("Error ").unwrap_or(line),
        ToolErrorKind::UnknownTool
        | ToolErrorKind::ApprovalPending
        | ToolErrorKind::LimitExceeded
        | ToolErrorKind::QueueFull
        | ToolErrorKind::Cancelled
        | ToolErrorKind::Timeout
        | ToolErrorKind::Unavailable
        | ToolErrorKind::Failed
        | ToolErrorKind::Internal
        | ToolErrorKind::UnknownOutcome => line,
    }
}

fn hint(kind: ToolErrorKind, tool: &str) -> Option<String> {
    match kind {
        ToolErrorKind::UnknownTool => Some("`haft tools` lists all tools".into()),
        ToolErrorKind::InvalidArguments => Some(format!("`haft tools {tool} --schema` shows what it takes")),
        ToolErrorKind::Denied => Some("--writable and --readable grant more; see `haft call --help`".into()),
        ToolErrorKind::Timeout => Some("--timeout allows more".into()),
        // What the sandbox says brings its own hint.
        ToolErrorKind::Unavailable
        | ToolErrorKind::ApprovalPending
        | ToolErrorKind::LimitExceeded
        | ToolErrorKind::QueueFull
        | ToolErrorKind::Cancelled
        | ToolErrorKind::Failed
        | ToolErrorKind::Internal
        | ToolErrorKind::UnknownOutcome => None,
    }
}

/// The result as programs read it.
#[derive(Serialize)]
struct Printed<'a> {
    tool: &'a str,
    content: String,
    is_error: bool,
    error_kind: Option<&'static str>,
    retryable: Option<bool>,
    executed: bool,
    latency_ms: u128,
    output_bytes: usize,
    repairs: &'a [&'static str],
    unvalidated: bool,
    notes: &'a std::collections::BTreeMap<&'static str, Value>,
}

fn print_json(result: &ToolResult) -> ExitCode {
    let kind = result.error_kind();
    let printed = Printed {
        tool: &result.call.name,
        content: result.text(),
        is_error: kind.is_some(),
        error_kind: kind.map(ToolErrorKind::name),
        retryable: kind.map(|kind| kind.row().retryable),
        executed: result.receipt.executed,
        latency_ms: result.receipt.latency.as_millis(),
        output_bytes: result.receipt.output_bytes,
        repairs: &result.receipt.repairs,
        unvalidated: result.receipt.unvalidated,
        notes: &result.receipt.notes,
    };
    let code = match serde_json::to_string_pretty(&printed) {
        Ok(text) => terminal::answer(&text),
        Err(error) => terminal::failed(Exit::Internal, &error.to_string()),
    };
    match kind {
        Some(kind) if code == ExitCode::SUCCESS => Exit::from(kind).into(),
        Some(_) | None => code,
    }
}
