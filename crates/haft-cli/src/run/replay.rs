//! `haft replay`: replays a recorded run.

use std::process::ExitCode;
use std::sync::Arc;

use haft_core::event::Watchers;
use haft_models::cassette::{Matching, Recording, Replayer};
use haft_runtime::runtime::ResumeFailure;
use haft_runtime::spec::{RunSpec, SpecError, StoredSpec};
use serde_json::Value;

use super::prepare::{Given, Job, not_resumed, start};
use super::show::Show;
use super::wire::Output;
use super::{carry_out, ending, request, resume};
use crate::args::{ReplayArgs, ShowArgs};
use crate::ask::unusable;
use crate::exit::Exit;
use crate::settings::Refused;
use crate::terminal;
use haft_runtime::recordings::{self, Played, RunPlayer};

pub(crate) async fn run(args: &ReplayArgs) -> ExitCode {
    let played = async {
        let recording = Recording::read(&args.file).map_err(|error| unusable(&error))?;
        if recording.cut_off() {
            terminal::warn(&format!(
                "{}: the last line is not whole and is passed over",
                args.file.display()
            ));
        }
        if args.live_tools { live(args, &recording).await } else { played(args, &recording).await }
    };
    played.await.unwrap_or_else(|(exit, message)| terminal::failed(exit, &message))
}

/// Replays the model replies, but makes the calls again with the tools of the recorded spec.
async fn live(args: &ReplayArgs, recording: &Recording) -> Result<ExitCode, Refused> {
    let beginning = recordings::beginning(recording).map_err(|error| unusable(&error))?;
    let order = recordings::order(recording).map_err(|error| unusable(&error))?;
    let models = Replayer::new(recording, Matching::Turn).map_err(|error| unusable(&error))?;
    let spec = recorded_spec(order, &beginning.start.request).await?;
    let given = Given {
        models: Some(Arc::new(models)),
        keeps_session: false,
        ..Given::configured(&request::files_of(&spec))?
    };
    Ok(carry_out(Box::pin(start(shown_as(args), None, given, Job::New(Box::new(spec))))).await)
}

/// Returns the spec in the recording; recordings of version 0.1 hold a command line instead.
async fn recorded_spec(order: Value, request: &str) -> Result<RunSpec, Refused> {
    let Some(sources) = order["sources"].as_str() else { return resume::typed_spec(order, request).await };
    let broken = |error: SpecError| not_resumed(&ResumeFailure::Spec(error));
    StoredSpec::read(&order["spec"]).and_then(|stored| stored.into_spec(sources.as_bytes())).map_err(broken)
}

/// Returns the display options of a run for a replay.
fn shown_as(args: &ReplayArgs) -> ShowArgs {
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

/// Replays the whole run from the recording, with the same driver as a live run. It calls no model and no tool.
async fn played(args: &ReplayArgs, recording: &Recording) -> Result<ExitCode, Refused> {
    if args.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let broken = |problem: &dyn std::fmt::Display| {
        (Exit::Input, format!("{}: {problem}\nhint: record anew", args.file.display()))
    };
    let show = Show::new(shown_as(args), Output::new(args.output_format));
    let player =
        RunPlayer::of(recording, Arc::new(Watchers(show.sinks()))).map_err(|error| unusable(&error))?;
    let Played { session, finish, turns, bill, took, stopped_by, difference } =
        player.play().await.map_err(|error| broken(&error))?;
    if let Some(difference) = difference {
        let hint = "hint: record anew, or let the calls be made with --live-tools";
        return Err((Exit::Failed, format!("{difference}\n{hint}")));
    }
    let exit = stopped_by.and_then(Exit::of_code).unwrap_or_else(|| show.exit(&finish));
    Ok(show.end(&finish, &ending::Summary { session, turns, took, bill, exit }))
}
