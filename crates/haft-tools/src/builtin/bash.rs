//! `bash`: runs a shell command in the sandbox.

use std::pin::pin;
use std::time::Duration;

use haft_core::event::CallProgress;
use haft_core::output::ToolOutput;
use haft_core::output_store::OutputStore;
use haft_core::provider::CallContext;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::tool::{Effects, OutputFact, ToolDefinition, ToolFacts};
use haft_sandbox::{
    CommandExit, SandboxError, SandboxPolicy, SandboxedChild, WorkspaceScan, sandboxed_command,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout, timeout_at};

use super::changes::note_changes;
use super::file::note_confinement;
use super::transcript::LimitedOutput;

/// The maximum length of the output before it is cut, in characters.
pub const MAX_BASH_OUTPUT: usize = 30_000;

/// The default timeout of a command, in seconds.
pub const BASH_TIMEOUT_SECS: u64 = 120;

/// The maximum length of a command line, in bytes: the kernel's limit for one argument.
pub const COMMAND_BYTES_MAX: usize = 128 * 1024 - 1;

/// The maximum time for reading output after the shell has ended.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// Run a shell command with `bash -c` in the workspace directory and return standard output and standard error, in
/// order. It runs in a sandbox: it may write only where the operator allows, and everything it starts ends with it,
/// background processes included. There is no terminal and no standard input.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BashInput {
    /// The command line to run.
    command: String,
}

pub(super) fn definition() -> Option<ToolDefinition> {
    let definition = super::define::<BashInput>("bash", Effects::Mutating)?;
    let facts = ToolFacts {
        output: OutputFact::CapsItself,
        command_argument: Some("command"),
        ..definition.facts.clone()
    };
    Some(definition.with_facts(facts))
}

pub(super) async fn call(
    input: BashInput,
    policy: &SandboxPolicy,
    store: Option<&dyn OutputStore>,
    cx: &CallContext,
) -> Result<ToolOutput, ToolError> {
    check(&input.command)?;
    let before = scan(policy).await;
    let command = sandboxed_command("bash", policy).args(["-c", &input.command]);
    let mut child = command.spawn().await.map_err(|error| not_started(&error))?;
    note_confinement(cx, child.confinement());
    let mut output = LimitedOutput::new(MAX_BASH_OUTPUT, store);
    let followed = follow(&mut child, &mut output, cx);
    let result = match cx.time_limit {
        None => conclude(followed.await, output, cx),
        Some(limit) => match timeout_at(Instant::from_std(limit.deadline), followed).await {
            Ok(ended) => conclude(ended, output, cx),
            Err(_) => Err(timed_out(cx, output)),
        },
    };
    note_changes(cx, &before, &scan(policy).await);
    result
}

async fn scan(policy: &SandboxPolicy) -> WorkspaceScan {
    let roots = policy.granted_by_operator();
    tokio::task::spawn_blocking(move || WorkspaceScan::of(&roots)).await.unwrap_or_default()
}

fn check(command: &str) -> Result<(), ToolError> {
    let reason = if command.len() > COMMAND_BYTES_MAX {
        format!(
            "the command has {} bytes; the limit is {COMMAND_BYTES_MAX}; write the command to a file first",
            command.len()
        )
    } else if command.contains('\0') {
        "the command contains a NUL character".to_owned()
    } else {
        return Ok(());
    };
    Err(ToolError::new(ToolErrorKind::InvalidArguments, format!("Failed to execute command: {reason}")))
}

fn not_started(error: &SandboxError) -> ToolError {
    ToolError::new(ToolErrorKind::Unavailable, format!("Failed to execute command: {error}"))
}

/// Reads the output until the shell has ended and the pipe is closed, or until a background process has held the pipe
/// too long.
async fn follow(
    child: &mut SandboxedChild,
    output: &mut LimitedOutput<'_>,
    cx: &CallContext,
) -> Result<CommandExit, SandboxError> {
    let Some(mut pipe) = child.stdout.take() else { return child.wait().await };
    // Both branches of the `select!` poll this one future. The exit status is reported only once, so a second call of
    // `wait` could miss it.
    let mut ended = pin!(child.wait());
    tokio::select! {
        () = drain(&mut pipe, output, cx) => ended.await,
        exit = &mut ended => {
            // After the shell has ended, only background processes still hold the pipe, and their output is not part of
            // the command.
            let _ = timeout(DRAIN_MAX, drain(&mut pipe, output, cx)).await;
            exit
        }
    }
}

/// Reads to the end of the pipe, keeps the output that fits and counts the characters that do not.
async fn drain(pipe: &mut pipe::Receiver, output: &mut LimitedOutput<'_>, cx: &CallContext) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        let text = output.push(&chunk[..read]);
        if !text.is_empty() {
            cx.progress(CallProgress::Output(text.into_owned()));
        }
    }
}

fn conclude(
    ended: Result<CommandExit, SandboxError>,
    output: LimitedOutput<'_>,
    cx: &CallContext,
) -> Result<ToolOutput, ToolError> {
    let exit = ended.map_err(|error| not_started(&error))?;
    let output = if output.is_empty() { ToolOutput::text(describe(exit)) } else { output.finish(cx) };
    match exit {
        CommandExit::Code(code) => cx.note("exit_code", json!(code)),
        CommandExit::Signal(signal) => cx.note("signal", json!(signal)),
    }
    if exit.success() { Ok(output) } else { Err(ToolError::new(ToolErrorKind::Failed, output.as_text())) }
}

fn describe(exit: CommandExit) -> String {
    match exit {
        CommandExit::Code(code) => format!("(exit code: {code})"),
        CommandExit::Signal(signal) => format!("(exit code: -1)\nkilled by signal {signal}"),
    }
}

/// Returns the timeout error. It contains the output so far, which often shows why the command did not finish.
fn timed_out(cx: &CallContext, output: LimitedOutput<'_>) -> ToolError {
    let limit = cx.time_limit.map_or_else(String::new, |limit| format!(" after {}", limit.in_words()));
    let printed =
        if output.is_empty() { String::new() } else { format!("\n{}", output.finish(cx).as_text()) };
    ToolError::new(ToolErrorKind::Timeout, format!("Command timed out{limit}{printed}"))
}
