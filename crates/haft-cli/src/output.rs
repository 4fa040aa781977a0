//! `haft output HANDLE`: prints a stored output, or a part of it.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

use haft_core::duration_text;
use haft_core::media;
use haft_core::output_store::{Handle, StoreError, WHOLE_OUTPUT};
use haft_fs::private_file;
use haft_sandbox::{SandboxMode, SandboxPolicy, WorkerPool, user_home};
use haft_store::outputs::{FileStore, StoreLimits};
use haft_tools::output::{EXTRACT_WORKER, ExtractError, OutputQuery, about_binary, ask};

use super::args::{FileArgs, OutputArgs};
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::settings;
use super::{hints, terminal};

pub(super) async fn run(args: &OutputArgs) -> ExitCode {
    let content = match content(&args.handle) {
        Ok(content) => content,
        Err(error) => return error.report(),
    };
    match &args.file {
        Some(file) => write(file, &content),
        None if args.raw => terminal::answer_bytes(&content),
        None if !args.extract.is_empty() => answer(&args.extract.join(" "), &content).await,
        None if media::is_binary(&content) => {
            terminal::note(&format!("hint: {}", hints::BINARY_OUTPUT));
            terminal::answer(&about_binary(&content))
        }
        None if std::io::stdout().is_terminal() => terminal::answer(&String::from_utf8_lossy(&content)),
        None => terminal::answer_bytes(&content),
    }
}

fn content(handle: &str) -> Result<Vec<u8>, CliError> {
    let home = settings::home()?;
    let store = FileStore::open(&home.data().join("outputs"), StoreLimits::untouched()).map_err(|error| {
        CliError::internal(format!("haft cannot open the store of tool outputs: {error}"))
    })?;
    let found = Handle::parse(handle)
        .ok_or(StoreError::NotFound)
        .and_then(|handle| store.read_any(&handle, WHOLE_OUTPUT));
    found.map_err(|error| CliError::input(error).with_hint("a handle has the form session-…/…"))
}

async fn answer(question: &str, content: &[u8]) -> ExitCode {
    let answered = match OutputQuery::parse(question) {
        Ok(Some(asked)) if media::is_binary(content) => asked.answer(content).map(Some),
        Ok(Some(_)) => match confined(question, content).await {
            Ok(answer) => answer.map(Some),
            Err(error) => return error.report(),
        },
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    match answered {
        Ok(Some(answer)) => terminal::answer(&answer),
        Ok(None) => CliError::input(format!("unknown query `{question}`"))
            .with_hint("`haft output --help` lists the queries")
            .report(),
        Err(error) => {
            let hint = media::is_binary(content).then_some(hints::BINARY_OUTPUT);
            CliError::input(error).with_optional_hint(hint).report()
        }
    }
}

/// Answers the question in a confined worker, as for a model: the question may contain a filter that a model wrote, and
/// the filter may run forever.
async fn confined(question: &str, content: &[u8]) -> Result<Result<String, ExtractError>, CliError> {
    let configuration = settings::configuration(&FileArgs::default())?;
    let limit = configuration.resolved.tool_timeout;
    // The worker receives the content, so it needs no workspace of the user.
    let unusable = |error: &dyn std::fmt::Display| {
        CliError::internal(format!(
            "haft cannot start the process that answers queries about stored outputs: {error}"
        ))
    };
    let empty = tempfile::tempdir().map_err(|error| unusable(&error))?;
    let home = settings::home()?;
    let policy = SandboxPolicy::new(SandboxMode::Workspace, empty.path(), &home, user_home().as_deref())
        .map_err(|error| unusable(&error))?;
    let workers = WorkerPool::new(EXTRACT_WORKER, policy);
    let answered = tokio::time::timeout(limit, ask(&workers, question, content)).await;
    let too_long = || {
        ExtractError(format!(
            "haft stopped the query, because it took more than {} (`toolTimeout`)",
            duration_text::in_words(limit)
        ))
    };
    let answered = answered.unwrap_or_else(|_| Err(too_long()));
    workers.stop().await;
    Ok(answered)
}

/// Writes the content to a file. Replaces only a regular file: a rename over a device such as `/dev/null` would remove
/// the device.
fn write(file: &Path, content: &[u8]) -> ExitCode {
    let shown = file.display();
    if std::fs::symlink_metadata(file).is_ok_and(|meta| !meta.is_file()) {
        let hint = "name a new file, or use --raw and redirect standard output";
        return CliError::input(format!("`{shown}` exists and is not a regular file"))
            .with_hint(hint)
            .report();
    }
    match private_file::replace(file, content) {
        Ok(()) => {
            terminal::note(&format!("{} bytes written to {shown}", content.len()));
            ExitReason::Success.into()
        }
        Err(error) => CliError::input(format!("haft cannot write `{shown}`: {error}"))
            .with_hint("name a file in a directory that you can write to")
            .report(),
    }
}
