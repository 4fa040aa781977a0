//! `haft replay`: a recorded run is seen again.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use haft_core::event::Watchers;
use haft_models::cassette::{Matching, Recording, RecordingError, Replayer};

use super::show::Show;
use super::wire::Output;
use super::{Before, Beginning, Given, carry_out, ending, prepare, resume, unless_ended};
use crate::args::{Cli, Command, ReplayArgs, RunArgs};
use crate::cancel::Listening;
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

fn unusable(error: &RecordingError) -> Refused {
    (Exit::Input, format!("{}\nhint: {}", error.message(), error.hint()))
}

/// The calls are made again, by the tools that the run was begun with.
async fn live(args: &ReplayArgs, recording: &Recording) -> Result<ExitCode, Refused> {
    let beginning = recordings::beginning(recording).map_err(|error| unusable(&error))?;
    let order = recordings::order(recording).map_err(|error| unusable(&error))?;
    let models = Replayer::new(recording, Matching::Turn).map_err(|error| unusable(&error))?;
    let mut typed = resume::typed_then(order, &beginning.request)?;
    shown_as(&mut typed, args);
    let given = Given::configured(&typed.policy.files, Some(Arc::new(models)), Before::Nothing).await?;
    let mut listening = Listening::begin();
    let prepared = unless_ended(&mut listening, prepare(&typed, given)).await?;
    Ok(carry_out(prepared, Beginning::New, listening).await)
}

fn shown_as(typed: &mut RunArgs, args: &ReplayArgs) {
    typed.show.output_format = args.output_format;
    typed.show.quiet = args.quiet;
    typed.show.no_color = args.no_color;
    typed.record = None;
}

/// Nothing is asked and nothing is done: the same driver, with a recording in place of the world.
async fn played(args: &ReplayArgs, recording: &Recording) -> Result<ExitCode, Refused> {
    if args.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let broken = |problem: &dyn std::fmt::Display| {
        (Exit::Input, format!("{}: {problem}\nhint: record anew", args.file.display()))
    };
    let show = show(args)?;
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

/// Shown as a run is.
fn show(args: &ReplayArgs) -> Result<Show, Refused> {
    let words = ["haft", "run", "replayed"];
    let Ok(Command::Run(mut typed)) = Cli::try_parse_from(words).map(|cli| cli.command) else {
        return Err((Exit::Internal, "a replay is no run".into()));
    };
    shown_as(&mut typed, args);
    Ok(Show::new(&typed, Output::new(args.output_format)))
}
