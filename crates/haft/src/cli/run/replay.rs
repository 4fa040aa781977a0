//! `haft replay`: a recorded run is seen again.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use haft_core::event::{EventSink, Watchers};
use haft_core::run::RunPlan;
use haft_core::run::finish::Finish;
use haft_models::cassette::{Matching, Recording, RecordingError, Replayer};

use super::screen::Screen;
use super::wire::Output;
use super::{Before, Beginning, Denials, Given, carry_out, ending, prepare, resume, unless_ended};
use crate::cli::args::{Cli, Command, ReplayArgs, RunArgs};
use crate::cli::cancel::Listening;
use crate::cli::exit::Exit;
use crate::cli::settings::{self, Refused};
use crate::cli::{call, skills, terminal};
use crate::config::environment;
use crate::recordings::{self, Played, RunPlayer};

pub(in crate::cli) async fn run(args: &ReplayArgs) -> ExitCode {
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
    let configuration = settings::configuration(&typed.policy.files)?;
    let others = call::over_http(&configuration.resolved, &settings::home()?).await;
    let skills = skills::found(&typed.policy.files)?;
    let models = Some(Arc::new(models) as _);
    let given = Given {
        configuration,
        others,
        skills,
        variables: Arc::new(environment),
        models,
        before: Before::Nothing,
    };
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
    let beginning = recordings::beginning(recording).map_err(|error| unusable(&error))?;
    let plan = beginning.run.plan().map_err(|error| broken(&error))?;
    let show = Show::new(args, &plan)?;
    let player = RunPlayer::of(recording, Arc::new(show.sinks())).map_err(|error| unusable(&error))?;
    let Played { session, finish, turns, bill, took, difference } =
        player.play().await.map_err(|error| broken(&error))?;
    if let Some(difference) = difference {
        let hint = "hint: record anew, or let the calls be made with --live-tools";
        return Err((Exit::Failed, format!("{difference}\n{hint}")));
    }
    let exit = ending::exit(&finish, show.denials.count());
    Ok(show.end(&finish, &ending::Summary { session, turns, took, bill, exit }))
}

/// What is seen of it.
struct Show {
    output: Arc<Output>,
    screen: Option<Arc<Screen>>,
    denials: Arc<Denials>,
}

impl Show {
    fn new(args: &ReplayArgs, plan: &RunPlan) -> Result<Self, Refused> {
        let words = ["haft", "run", "replayed"];
        let Ok(Command::Run(mut typed)) = Cli::try_parse_from(words).map(|cli| cli.command) else {
            return Err((Exit::Internal, "a replay is no run".into()));
        };
        shown_as(&mut typed, args);
        let output = Arc::new(Output::of_plan(args.output_format, plan));
        let screen = (!args.quiet).then(|| Arc::new(Screen::new(&typed, &output)));
        Ok(Self { output, screen, denials: Arc::default() })
    }

    fn sinks(&self) -> Watchers {
        let mut sinks: Vec<Arc<dyn EventSink>> =
            vec![Arc::clone(&self.denials) as _, Arc::clone(&self.output) as _];
        sinks.extend(self.screen.iter().map(|screen| Arc::clone(screen) as Arc<dyn EventSink>));
        Watchers(sinks)
    }

    fn end(self, finish: &Finish, summary: &ending::Summary) -> ExitCode {
        let written = self.output.end(finish, summary);
        self.screen.iter().for_each(|screen| screen.end(summary));
        if let Some(complaint) = ending::complaint(finish, summary.exit) {
            let _ = terminal::failed(summary.exit, &complaint);
        }
        if written == ExitCode::SUCCESS { summary.exit.into() } else { written }
    }
}
