//! `haft sandbox -- CMD`: runs a command of the user in the same sandbox as a tool.

use std::io::{self, Write};
use std::process::ExitCode;

use haft_sandbox::{CommandExit, OutputPipes, SandboxError, SandboxPolicy, sandboxed_command};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::args::SandboxArgs;
use super::cli_error::CliError;
use super::{cancel, hints, settings, terminal};

/// The exit codes if haft itself failed, or if the command was not found, as in `env` and `docker run`.
const HAFT_FAILED: u8 = 125;
const NOT_FOUND: u8 = 127;
/// The exit code of a command that a signal killed is this number plus the signal number.
const BY_SIGNAL: i32 = 128;

pub(super) async fn run(args: &SandboxArgs) -> ExitCode {
    let config = settings::configuration(&args.policy.files);
    let policy = async { settings::policy(&args.policy, &config?).await };
    let policy = match policy.await {
        Ok(policy) => policy,
        Err(error) => return error.report(),
    };
    tokio::select! {
        biased;
        ended = confined(args, &policy) => match ended {
            Ok(code) => ExitCode::from(code),
            Err(error) => failed(args, &error),
        },
        exit = cancel::cancelled() => exit.into(),
    }
}

fn failed(args: &SandboxArgs, error: &SandboxError) -> ExitCode {
    let (code, refused) = match error {
        SandboxError::Start { reason } => {
            let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            let hint = "use `bash -c '…'` for pipes and other shell syntax";
            let message = format!("haft could not start `{program}`: {reason}");
            (NOT_FOUND, CliError::unavailable(message).with_hint(hint))
        }
        SandboxError::Plan(_)
        | SandboxError::Exposed { .. }
        | SandboxError::NoLauncher
        | SandboxError::Launcher { .. }
        | SandboxError::Layer { .. } => {
            (HAFT_FAILED, CliError::unavailable(error).with_optional_hint(hints::sandbox(error)))
        }
    };
    refused.report();
    ExitCode::from(code)
}

async fn confined(args: &SandboxArgs, policy: &SandboxPolicy) -> Result<u8, SandboxError> {
    let mut words = args.command.iter();
    let program = words.next().cloned().unwrap_or_default();
    let command = sandboxed_command(program, policy).args(words).output(OutputPipes::Separate);
    let mut child = command.spawn().await?;
    let confinement = child.confinement();
    for sentence in &confinement.weaker {
        terminal::warn(sentence);
    }
    if args.verbose {
        terminal::note(&format!("sandbox level: {}", confinement.level.name()));
        for layer in &confinement.layers {
            let mark = if layer.active { "on " } else { "off" };
            terminal::note(&format!("  {mark} {:<13} {}", layer.name, layer.detail));
        }
    }
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (exit, (), ()) =
        tokio::join!(child.wait(), copy_output(out, io::stdout()), copy_output(err, io::stderr()));
    Ok(code_of(exit?))
}

/// Copies output as it arrives. The command never gets access to haft's terminal.
async fn copy_output(from: Option<pipe::Receiver>, mut to: impl Write) {
    let Some(mut from) = from else { return };
    let mut chunk = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut chunk).await {
        // `cancel` detects a reader that is gone, and ends the command.
        if to.write_all(&chunk[..read]).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

fn code_of(exit: CommandExit) -> u8 {
    let code = match exit {
        CommandExit::Code(code) => code,
        CommandExit::Signal(signal) => BY_SIGNAL + signal,
    };
    u8::try_from(code & 0xff).unwrap_or(u8::MAX)
}
