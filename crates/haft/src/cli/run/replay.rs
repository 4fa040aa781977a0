//! `haft replay`: a recorded run is seen again.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use haft_core::event::{Event, EventSink, Watchers};
use haft_core::naming::Scheme;
use haft_core::place::{Place, SessionId};
use haft_core::run::event::{Began, RunEvent};
use haft_core::run::finish::Finish;
use haft_core::run::meter::Meter;
use haft_core::run::scope::RunScope;
use haft_core::run::told::Told;
use haft_core::run::{AgentRun, RunError, Verdict};
use haft_engine::{CallOptions, Catalog, Driven, Driver, Orchestrator, OrchestratorConfig};
use haft_models::cassette::{Matching, Recording, RecordingError, Replayer};
use tokio::time::Instant;

use super::screen::Screen;
use super::wire::Output;
use super::{Beginning, Denials, Given, carry_out, ending, prepare, resume};
use crate::cli::args::{Cli, Command, ReplayArgs, RunArgs};
use crate::cli::exit::Exit;
use crate::cli::settings::{self, Refused};
use crate::cli::{call, skills, terminal};
use crate::config::environment;
use crate::recordings::RunPlayer;

/// Nothing is waited for, so this is never come to but by a recording that contradicts itself.
const TIMEOUT: Duration = Duration::from_mins(10);

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
    let player = RunPlayer::of(recording).map_err(|error| unusable(&error))?;
    let models = Replayer::new(recording, Matching::Turn).map_err(|error| unusable(&error))?;
    let beginning = player.beginning();
    let mut typed = resume::typed_then(beginning.order.clone(), &beginning.request)?;
    shown_as(&mut typed, args);
    let configuration = settings::configuration(&typed.policy.files)?;
    let others = call::over_http(&configuration.resolved, &settings::home()?).await;
    let skills = skills::found(&typed.policy.files)?;
    let models = Some(Arc::new(models) as _);
    let given = Given { configuration, others, skills, variables: Arc::new(environment), models };
    Ok(carry_out(prepare(&typed, given).await?, Beginning::New).await)
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
    let player = Arc::new(RunPlayer::of(recording).map_err(|error| unusable(&error))?);
    let models = Replayer::new(recording, Matching::Digest).map_err(|error| unusable(&error))?;
    let broken = |problem: &dyn std::fmt::Display| {
        (Exit::Input, format!("{}: {problem}\nhint: record anew", args.file.display()))
    };
    let request = models.first_request().ok_or_else(|| broken(&"it holds no request"))?;
    let mut run = player.beginning().run.clone().resume(request).map_err(|error| broken(&error))?;
    let session = uuid::Uuid::parse_str(&player.beginning().session).map_err(|error| broken(&error))?;
    let place = Place::first(SessionId(session.as_u128()));
    let show = Show::new(args, &run)?;
    let scope = scope(&show, &run, &player);
    let orchestrator =
        Orchestrator::new(Catalog::new(Vec::new(), Scheme::Double), OrchestratorConfig::default());
    let driver = Driver {
        models: &models,
        orchestrator: &orchestrator,
        scope: Arc::clone(&scope),
        options: CallOptions { place, ..CallOptions::default() },
        reply_timeout: TIMEOUT,
        witness: Some(Arc::clone(&player) as _),
    };
    tell_beginning(&scope, place, &run, &player);
    let finish = to_the_end(&driver, &mut run).await.map_err(|error| (Exit::Internal, error.to_string()))?;
    if let Some(difference) = player.difference() {
        let hint = "hint: record anew, or let the calls be made with --live-tools";
        return Err((Exit::Failed, format!("{difference}\n{hint}")));
    }
    let exit = ending::exit(&finish, show.denials.count());
    let (turns, took, bill) = (run.counts().turns, player.took(), scope.meter.bill());
    Ok(show.end(&finish, &ending::Summary { session: place.session, turns, took, bill, exit }))
}

/// What is seen of it.
struct Show {
    output: Arc<Output>,
    screen: Option<Arc<Screen>>,
    denials: Arc<Denials>,
}

impl Show {
    fn new(args: &ReplayArgs, run: &AgentRun) -> Result<Self, Refused> {
        let words = ["haft", "run", "replayed"];
        let Ok(Command::Run(mut typed)) = Cli::try_parse_from(words).map(|cli| cli.command) else {
            return Err((Exit::Internal, "a replay is no run".into()));
        };
        shown_as(&mut typed, args);
        let output = Arc::new(Output::of_plan(args.output_format, run.plan()));
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

fn scope(show: &Show, run: &AgentRun, player: &RunPlayer) -> Arc<RunScope> {
    let began = Instant::now().into_std();
    Arc::new(RunScope {
        meter: Meter::new(Arc::new(show.sinks()), run.plan().budget),
        path: player.beginning().path.clone(),
        began,
        until: began + TIMEOUT,
    })
}

fn tell_beginning(scope: &RunScope, place: Place, run: &AgentRun, player: &RunPlayer) {
    let began = Began {
        path: scope.path.clone(),
        model: player.beginning().model.clone(),
        request: player.beginning().request.clone(),
        tools: run.tools().iter().map(|tool| tool.name.clone()).collect(),
    };
    scope.meter.emit(Event::Run { place, event: Arc::new(RunEvent::Began(began)) });
}

async fn to_the_end(driver: &Driver<'_>, run: &mut AgentRun) -> Result<Finish, RunError> {
    loop {
        let calls = match driver.drive(run).await? {
            Driven::Done(finish) => return Ok(finish),
            Driven::AwaitsClient(calls) | Driven::AwaitsApproval(calls) => calls,
        };
        for call in calls {
            driver.tell_run(run, Told::Judged { call: call.id, verdict: Verdict::Denied })?;
        }
    }
}
