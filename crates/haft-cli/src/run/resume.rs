//! `haft resume`: continues a session.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_store::sessions::line::SessionStart;
use serde::Deserialize;
use serde_json::Value;

use super::prepare::{RunLaunch, RunSetup, StartedRun, start};
use super::{carry_out, request};
use crate::agents;
use crate::args::{Cli, CliCommand, ResumeArgs, RunArgs};
use crate::cli_error::CliError;
use crate::piped_input;
use crate::sessions;
use crate::settings;
use haft_runtime::Runtime;
use haft_runtime::runtime::{ResumeFailure, Takeover};
use haft_runtime::spec::RunSpec;

pub(crate) async fn run(args: &ResumeArgs) -> ExitCode {
    carry_out(args.show.output_format, Box::pin(resumed(args))).await
}

async fn resumed(args: &ResumeArgs) -> Result<StartedRun, CliError> {
    if args.show.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let all = sessions::sessions()?;
    let id = sessions::find(&all, &args.id)?;
    let opened = all.opened(id)?;
    let more = match &args.request {
        Some(word) => Some(request::written_request(word, "request").await?),
        None => None,
    };
    let piped = match args.request.as_deref() {
        None | Some("-") => None,
        Some(_) => piped_input::read(args.stdin_wait).await?,
    };
    let mut spec = spec_of(id, opened, more.as_deref()).await?;
    if !args.model.is_empty() {
        spec.changes.models.clone_from(&args.model);
    }
    let directory = &spec.workspace.directory;
    if !directory.is_dir() {
        return Err(CliError::not_restored(format!(
            "the directory `{}` of the run does not exist",
            directory.display()
        )));
    }
    let setup = RunSetup { piped, ..RunSetup::configured(&request::files_of(&spec))? };
    // Protect the files of the current configuration, which may differ from the files at the start of the run.
    spec.workspace.protected = setup.configuration.in_use().to_vec();
    let takeover = if args.take_over { Takeover::Allowed } else { Takeover::Never };
    let job = RunLaunch::Resume { id, spec: Box::new(spec), more, takeover };
    Box::pin(start(args.show, None, setup, job)).await
}

/// Returns the spec that the session was started with. Version 1 stored the command line instead.
async fn spec_of(id: SessionId, opened: SessionStart, more: Option<&str>) -> Result<RunSpec, CliError> {
    if let Some(origin) = opened.origin {
        return Err(ResumeFailure::WorksForAnother { origin }.into());
    }
    if opened.spec.is_null() {
        let asked = [opened.run.request(), more.map(str::to_owned)];
        let asked = asked.into_iter().flatten().collect::<Vec<_>>().join("\n");
        let mut spec = spec_of_stored_command_line(opened.order, &asked).await?;
        if let (true, Some(model)) = (spec.changes.models.is_empty(), opened.model) {
            spec.changes.models = vec![model];
        }
        return Ok(spec);
    }
    let defaults = haft_config::defaults().map_err(CliError::internal)?;
    let runtime = Runtime::builder(defaults).home(settings::home()?).build().await;
    let runtime = runtime.map_err(CliError::usage)?;
    Ok(runtime.stored_spec(&Principal::local(), id).await?)
}

/// The command line that started a session of version 1, and its directory.
#[derive(Debug, Deserialize)]
struct StoredCommandLine {
    directory: StoredArgument,
    words: Vec<StoredArgument>,
}

/// A command-line argument. File names need not be UTF-8.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum StoredArgument {
    Text(String),
    Bytes(Vec<u8>),
}

impl StoredArgument {
    fn into_os(self) -> OsString {
        match self {
            Self::Text(text) => text.into(),
            Self::Bytes(bytes) => OsString::from_vec(bytes),
        }
    }
}

/// Builds the spec of a run that version 1 stored as a command line.
pub(super) async fn spec_of_stored_command_line(order: Value, request: &str) -> Result<RunSpec, CliError> {
    let typed = parse_stored_command_line(order, request)?;
    let configuration = settings::configuration(&typed.policy.files)?;
    request::spec(&typed, &configuration, &agents::loader(&typed.policy.files)?).await
}

/// Parses the stored command line with another request. First changes to the directory of the stored run, because file
/// names are relative to it.
fn parse_stored_command_line(order: Value, request: &str) -> Result<RunArgs, CliError> {
    let order: StoredCommandLine = serde_json::from_value(order)
        .map_err(|_| CliError::not_restored("the run was not started from a command line"))?;
    let directory = order.directory.into_os();
    let missing = |error| {
        CliError::not_restored(format!(
            "haft cannot change to the directory `{}` of the run: {error}",
            Path::new(&directory).display()
        ))
    };
    std::env::set_current_dir(&directory).map_err(missing)?;
    let words = std::iter::once("haft".into()).chain(order.words.into_iter().map(StoredArgument::into_os));
    let mut typed = match Cli::try_parse_from(words).map(|cli| cli.command) {
        Ok(CliCommand::Run(typed)) => typed,
        Ok(_) => return Err(CliError::not_restored("the session was not started with `haft run`")),
        Err(error) => return Err(CliError::not_restored(&error)),
    };
    if let Some(last) = typed.words.last_mut() {
        request.clone_into(last);
    }
    Ok(typed)
}
