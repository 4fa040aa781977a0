//! `haft replay`: replays a recorded run.

use std::process::ExitCode;
use std::sync::Arc;

use haft_core::event::EventSinks;
use haft_models::cassette::{MatchRule, Recording, Replayer};
use haft_runtime::runtime::ResumeFailure;
use haft_runtime::spec::{RunSpec, SpecError, StoredSpec};
use serde_json::Value;

use super::display::RunDisplay;
use super::output::RunOutput;
use super::prepare::{RunLaunch, RunSetup, start};
use super::{carry_out, request, resume, summary};
use crate::args::{ReplayArgs, ShowArgs};
use crate::cli_error::CliError;
use crate::exit::ExitReason;
use crate::terminal;
use haft_runtime::recordings::{self, ReplayOutcome, RunPlayer};

pub(crate) async fn run(args: &ReplayArgs) -> ExitCode {
    let played = async {
        let recording = Recording::read(&args.file)?;
        if recording.cut_off() {
            terminal::warn(&format!(
                "haft skipped the last line of {}, because the line is incomplete",
                args.file.display()
            ));
        }
        if args.live_tools { live(args, &recording).await } else { played(args, &recording).await }
    };
    played.await.unwrap_or_else(CliError::report)
}

/// Replays the model replies, but makes the calls again with the tools of the recorded spec.
async fn live(args: &ReplayArgs, recording: &Recording) -> Result<ExitCode, CliError> {
    let beginning = recordings::beginning(recording)?;
    let order = recordings::order(recording)?;
    let models = Replayer::new(recording, MatchRule::Turn)?;
    let spec = recorded_spec(order, &beginning.start.request).await?;
    let setup = RunSetup {
        models: Some(Arc::new(models)),
        keeps_session: false,
        ..RunSetup::configured(&request::files_of(&spec))?
    };
    let shown = show_args(args);
    let started = Box::pin(start(shown, None, setup, RunLaunch::New(Box::new(spec))));
    Ok(carry_out(shown.output_format, started).await)
}

/// Returns the spec in the recording; recordings of version 0.1 contain a command line instead.
async fn recorded_spec(order: Value, request: &str) -> Result<RunSpec, CliError> {
    let Some(sources) = order["sources"].as_str() else {
        return resume::spec_of_stored_command_line(order, request).await;
    };
    let broken = |error: SpecError| CliError::from(ResumeFailure::Spec(error));
    StoredSpec::read(&order["spec"]).and_then(|stored| stored.into_spec(sources.as_bytes())).map_err(broken)
}

/// Returns the display options of a run for a replay.
fn show_args(args: &ReplayArgs) -> ShowArgs {
    ShowArgs {
        output_format: args.output_format,
        quiet: args.quiet,
        verbose: false,
        log_format: None,
        tree: false,
        trace_mcp: false,
        no_color: args.no_color,
    }
}

/// Replays the whole run from the recording, with the same driver as a live run. Calls no model and no tool.
async fn played(args: &ReplayArgs, recording: &Recording) -> Result<ExitCode, CliError> {
    if args.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let broken = |problem: &dyn std::fmt::Display| {
        CliError::input(format!("{}: {problem}", args.file.display())).with_hint("record the run again")
    };
    let show = RunDisplay::new(show_args(args), RunOutput::new(args.output_format));
    let player = RunPlayer::of(recording, Arc::new(EventSinks(show.sinks())))?;
    let ReplayOutcome { session, finish, turns, bill, took, stopped_by, difference } =
        player.play().await.map_err(|error| broken(&error))?;
    if let Some(difference) = difference {
        let hint = "record the run again, or call the tools again with --live-tools";
        return Err(CliError::failed(difference).with_hint(hint));
    }
    let exit = stopped_by.and_then(ExitReason::of_code).unwrap_or_else(|| show.exit(&finish));
    Ok(show.end(&finish, &summary::RunSummary { session, turns, took, bill, denied: show.denied(), exit }))
}
