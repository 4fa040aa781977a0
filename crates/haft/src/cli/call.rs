//! `haft call TOOL JSON`: one call.

use std::io::Read;
use std::process::ExitCode;
use std::sync::Arc;

use haft_core::arguments::{ARGUMENTS_BYTES_MAX, Arguments};
use haft_core::event::{EventSink, NoEvents};
use haft_core::result::{ToolErrorKind, ToolResult};
use haft_core::tool::{CallId, ToolCall};
use haft_engine::Orchestrator;
use serde::Serialize;
use serde_json::Value;

use super::args::CallArgs;
use super::exit::Exit;
use super::settings::{self, Refused};
use super::terminal::{self, StatusLine};
use super::cancel;
use crate::wiring::{self, Settings};

pub(super) async fn run(args: &CallArgs) -> ExitCode {
    let prepared = arguments(args).and_then(|arguments| Ok((arguments, orchestrator(args)?)));
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
    tell_how(args, &result);
    if args.json { print_json(&result) } else { print_text(&result) }
}

pub(super) fn orchestrator(args: &CallArgs) -> Result<Orchestrator, Refused> {
    let status = if args.stdin { None } else { StatusLine::new() };
    let events: Arc<dyn EventSink> = match status {
        Some(status) => Arc::new(status),
        None => Arc::new(NoEvents),
    };
    let policy = settings::policy(&args.policy)?;
    Ok(wiring::orchestrator(Settings { policy, timeout: args.timeout, events }))
}

fn arguments(args: &CallArgs) -> Result<Arguments, Refused> {
    match args.arguments.as_deref() {
        None => Ok(Arguments::from_text("{}")),
        Some("-") => read_arguments(std::io::stdin()),
        Some(text) => Ok(Arguments::from_text(text)),
    }
}

fn read_arguments(input: impl Read) -> Result<Arguments, Refused> {
    let mut text = String::new();
    // One byte more than allowed, so that the parser can say that it is too much.
    let bytes_max = u64::try_from(ARGUMENTS_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    match input.take(bytes_max).read_to_string(&mut text) {
        Ok(_) => Ok(Arguments::from_text(text)),
        Err(error) => Err((Exit::Input, format!("the arguments cannot be read from standard input: {error}"))),
    }
}

/// A tool that ran and failed has given an answer; everything else is said on standard error.
fn print_text(result: &ToolResult) -> ExitCode {
    match &result.outcome {
        Ok(output) => terminal::answer(&output.as_text()),
        Err(error) if error.kind == ToolErrorKind::Failed => {
            let printed = terminal::answer(&error.message);
            if printed == ExitCode::SUCCESS { Exit::Failed.into() } else { printed }
        }
        Err(error) => terminal::failed(error.kind.into(), &error.message),
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

fn tell_how(args: &CallArgs, result: &ToolResult) {
    warn_if_weaker(result);
    if !args.verbose {
        return;
    }
    let receipt = &result.receipt;
    terminal::note(&format!("{} in {} ms", result.call.name, receipt.latency.as_millis()));
    for repair in &receipt.repairs {
        terminal::note(&format!("  arguments repaired: {repair}"));
    }
    for (topic, value) in &receipt.notes {
        terminal::note(&format!("  {topic}: {value}"));
    }
}

/// A sandbox that cannot keep every promise says so whenever it is used.
pub(super) fn warn_if_weaker(result: &ToolResult) {
    let weaker = result.receipt.notes.get("sandbox").and_then(|sandbox| sandbox.get("weaker")?.as_array());
    if let Some(weaker) = weaker.filter(|weaker| !weaker.is_empty()) {
        let sentences: Vec<&str> = weaker.iter().filter_map(Value::as_str).collect();
        terminal::warn(&format!("the sandbox is weaker here (`haft doctor` tells why): {}", sentences.join("; ")));
    }
}
