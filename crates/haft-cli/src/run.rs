//! `haft run`: a model works on a request with tools.

mod display;
mod model_wait;
mod output;
mod prepare;
mod replay;
mod request;
mod resume;
mod screen;
pub(super) mod summary;

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use tokio::time::interval;

use super::agents;
use super::args::{OutputFormat, RunArgs};
use super::cancel::SignalListener;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::piped_input;
use super::terminal;
use haft_runtime::{RunDefect, RunOutcome};
use prepare::StartedRun;
pub(super) use prepare::{PendingRecording, RunLaunch, RunSetup, accounting_stores, launch, start, warn};
pub(super) use request::{output_schema, written_request};
use screen::RunScreen;

/// The interval at which the status line is redrawn.
const TICK: Duration = Duration::from_millis(100);

pub(super) use replay::run as replay;
pub(super) use resume::run as resume;

pub(super) async fn run(args: &RunArgs) -> ExitCode {
    carry_out(args.show.output_format, Box::pin(started(args))).await
}

async fn started(args: &RunArgs) -> Result<StartedRun, CliError> {
    let setup = RunSetup::configured(&args.policy.files)?;
    Box::pin(begin(args, setup, StdinPolicy::Read)).await
}

/// Selects whether haft adds standard input to the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StdinPolicy {
    Read,
    Ignored,
}

/// Starts the run that the arguments describe, with the given configuration and environment.
pub(super) async fn begin(
    args: &RunArgs,
    mut setup: RunSetup,
    input: StdinPolicy,
) -> Result<StartedRun, CliError> {
    if args.show.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    let spec = request::spec(args, &setup.configuration, &agents::loader(&args.policy.files)?).await?;
    if input == StdinPolicy::Read && request::accepts_input(args, &spec) {
        setup.piped = piped_input::read(args.stdin_wait).await?;
    }
    Box::pin(start(args.show, args.record.as_deref(), setup, RunLaunch::New(Box::new(spec)))).await
}

/// Starts a run and shows it until its end. A signal ends the run at any time.
pub(super) async fn carry_out(
    format: OutputFormat,
    start: LocalBoxFuture<'_, Result<StartedRun, CliError>>,
) -> ExitCode {
    let mut listening = SignalListener::begin();
    match unless_signalled(&mut listening, start).await {
        Ok(started) => Box::pin(to_the_end(started, listening)).await,
        Err(error) => {
            // With a JSON output format, also write the reason as JSON, for the program that reads the output.
            if let Some(result) = output::not_started(format, error.exit(), &error.to_string()) {
                let _ = terminal::answer(&result);
            }
            error.report()
        }
    }
}

async fn unless_signalled<T>(
    listening: &mut SignalListener,
    start: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    tokio::select! {
        biased;
        exit = listening.first_signal() => Err(CliError::new(exit, "haft was interrupted before the run began")),
        started = start => started,
    }
}

async fn to_the_end(started: StartedRun, mut listening: SignalListener) -> ExitCode {
    let (outcome, stopped_by) = watched(&started, &mut listening).await;
    tokio::select! {
        biased;
        () = started.handle.closed() => {}
        // The run has ended and its result is known, so a signal at this point skips the wait for servers that shut
        // down slowly. After an earlier signal this branch is disabled, because `first_signal` resolves only once.
        _ = listening.first_signal(), if stopped_by.is_none() => {}
    }
    for warning in started.handle.warnings().iter().skip(started.shown_warnings) {
        warn(warning);
    }
    match outcome {
        Ok(outcome) => started.end(&outcome, stopped_by),
        Err(RunDefect(problem)) => terminal::failed(ExitReason::Internal, &problem),
    }
}

/// Shows the run until it has finished. If a signal cancels the run, the end of the run is still shown.
async fn watched(
    started: &StartedRun,
    listening: &mut SignalListener,
) -> (Result<RunOutcome, RunDefect>, Option<ExitReason>) {
    let mut finished = pin!(started.handle.finished());
    let mut ticks = interval(TICK);
    let mut stopped_by = None;
    loop {
        tokio::select! {
            biased;
            outcome = &mut finished => return (outcome, stopped_by),
            exit = listening.first_signal(), if stopped_by.is_none() => {
                stopped_by = Some(exit);
                started.show.clear_key_echo();
                started.handle.cancel();
            }
            _ = ticks.tick() => started.show.screen().into_iter().for_each(RunScreen::tick),
        }
    }
}

impl StartedRun {
    /// Prints the answer and the summary, and returns the exit code.
    fn end(self, outcome: &RunOutcome, stopped_by: Option<ExitReason>) -> ExitCode {
        let RunOutcome { finish, turns, bill } = outcome;
        let summary = summary::RunSummary {
            session: self.handle.id(),
            turns: *turns,
            took: self.began.elapsed(),
            bill: *bill,
            denied: self.show.denied(),
            exit: stopped_by.unwrap_or_else(|| self.show.exit(finish)),
        };
        let code = self.show.end(finish, &summary);
        let recorded = self.record_end(summary.took, stopped_by);
        if let (Some(_), Some(_), true) = (stopped_by, self.show.screen(), self.keeps_session) {
            terminal::note(&summary::stored_line(&summary));
        }
        self.watch.draw_tree();
        self.watch.finish();
        if let (Some(problem), ExitReason::Success) = (recorded, summary.exit) {
            return terminal::failed(ExitReason::Failed, &format!("the recording is incomplete: {problem}"));
        }
        code
    }
}
