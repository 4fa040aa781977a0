//! `haft run`: a model works on a request with tools.

mod ending;
mod prepare;
mod replay;
mod resume;
mod said;
mod screen;
mod show;
mod wire;

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use haft_core::run::finish::Finish;
use haft_core::run::told::Told;
use haft_core::run::{Abort, RunError, Verdict};
use haft_engine::Driven;
use tokio::time::interval;

use super::args::RunArgs;
use super::call;
use super::cancel::Listening;
use super::exit::Exit;
use super::settings::Refused;
use super::terminal;
use haft_config::printable;
use haft_runtime::runs::{ActiveRun, LeftSessions, PreparedAgent, ResumeError, ResumedSession};
pub(super) use prepare::{Before, Given, Prepared};
use screen::Screen;

/// How often a line that says what is running moves.
const TICK: Duration = Duration::from_millis(100);

pub(super) use replay::run as replay;
pub(super) use resume::run as resume;

pub(super) async fn run(args: &RunArgs) -> ExitCode {
    let mut listening = Listening::begin();
    let prepared = async {
        let given = Given::configured(&args.policy.files, None, Before::Nothing).await?;
        prepare(args, given).await
    };
    match unless_ended(&mut listening, prepared).await {
        Ok(prepared) => {
            prepared.keep_session(LeftSessions::Ignored);
            carry_out(prepared, Beginning::New, listening).await
        }
        Err((exit, message)) => terminal::failed(exit, &message),
    }
}

/// Also for a run that was not typed.
pub(super) async fn prepare(args: &RunArgs, mut given: Given) -> Result<Prepared, Refused> {
    if args.show.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    given.configuration.resolved.trace_mcp |= args.show.trace_mcp;
    Prepared::new(args, given).await
}

/// What is done before there is a run can be ended too.
pub(super) async fn unless_ended<T>(
    listening: &mut Listening,
    prepared: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    tokio::select! {
        biased;
        exit = listening.heard() => Err((exit, "ended before the run began".into())),
        prepared = prepared => prepared,
    }
}

/// How a run begins.
pub(super) enum Beginning {
    New,
    Again(Box<ResumedSession>),
}

pub(super) async fn carry_out(
    prepared: Prepared,
    beginning: Beginning,
    mut listening: Listening,
) -> ExitCode {
    let orchestrator = prepared.worker.orchestrator();
    let ready = async {
        call::begin(orchestrator).await;
        Ok(())
    };
    if let Err((exit, message)) = unless_ended(&mut listening, ready).await {
        return terminal::failed(exit, &message);
    }
    for warning in prepared.worker.reachable_agents().iter().flat_map(|worker| missing_tools(worker)) {
        terminal::warn(&warning);
    }
    let ended = match begin(&prepared, beginning) {
        Ok(run) => drive(run, &prepared, &mut listening).await.map_err(internal),
        Err(refused) => Err(refused),
    };
    let stopped = ended.as_ref().is_ok_and(|ended| ended.stopped_by.is_some());
    tokio::select! {
        biased;
        () = call::end(orchestrator) => {}
        // The run is over and how is known: servers that take their time are not waited for.
        _ = listening.heard(), if !stopped => {}
    }
    call::keep_approvals(&prepared.context);
    match ended {
        Ok(ended) => prepared.end(&ended),
        Err((exit, message)) => terminal::failed(exit, &message),
    }
}

/// What an agent's file, or what was typed, names in vain.
fn missing_tools(worker: &PreparedAgent) -> Vec<String> {
    let agent = printable(&worker.agent().name);
    let told = |name: &String| {
        let name = printable(name);
        format!("there is no tool `{name}`, which `{agent}` names; `haft tools` lists those there are")
    };
    worker.unresolved_names().iter().map(told).collect()
}

fn begin(prepared: &Prepared, beginning: Beginning) -> Result<ActiveRun, Refused> {
    let worker = Arc::clone(&prepared.worker);
    let run = match beginning {
        Beginning::New => ActiveRun::begin(worker, prepared.task()).map_err(internal)?,
        Beginning::Again(resumed) => ActiveRun::resume(worker, *resumed, Arc::clone(&prepared.context))
            .map_err(|error| not_resumed(&error))?,
    };
    prepared.record_begin();
    prepared.show.screen().into_iter().for_each(|screen| screen.show_budget(&run.task().scope.meter));
    if let Some(error) = run.unkept() {
        terminal::warn(&format!("the run cannot be resumed: {error}"));
    }
    Ok(run)
}

#[expect(clippy::needless_pass_by_value, reason = "handed to `map_err`")]
fn internal(error: RunError) -> Refused {
    (Exit::Internal, error.to_string())
}

fn not_resumed(error: &ResumeError) -> Refused {
    match error {
        ResumeError::Finished { .. } => {
            let hint = "hint: haft resume ID 'what else it shall do'";
            (Exit::Input, format!("{error}\n{hint}"))
        }
        ResumeError::Run(_) => (Exit::Internal, error.to_string()),
    }
}

/// A run that is over.
struct Ended {
    run: ActiveRun,
    finish: Finish,
    stopped_by: Option<Exit>,
}

async fn drive(
    mut run: ActiveRun,
    prepared: &Prepared,
    listening: &mut Listening,
) -> Result<Ended, RunError> {
    let ended = tokio::select! {
        biased;
        ended = to_the_end(&mut run, prepared) => ended.map(|finish| (Some(finish), None)),
        exit = listening.heard() => Ok((None, Some(exit))),
    }?;
    let (finish, stopped_by) = match ended {
        (Some(finish), stopped_by) => (finish, stopped_by),
        (None, stopped_by) => (aborted(&mut run).await?, stopped_by),
    };
    Ok(Ended { run, finish, stopped_by })
}

async fn aborted(run: &mut ActiveRun) -> Result<Finish, RunError> {
    match run.abort(Abort::Interrupted).await? {
        Driven::Done(finish) => Ok(finish),
        Driven::AwaitsClient(_) | Driven::AwaitsApproval(_) => {
            Err(RunError::Unexpected { given: "its end", waits_for: "more" })
        }
    }
}

/// At a terminal nobody else carries out functions, and whoever does not answer now has said no.
async fn to_the_end(run: &mut ActiveRun, prepared: &Prepared) -> Result<Finish, RunError> {
    loop {
        let calls = match moving(run, prepared).await? {
            Driven::Done(finish) => return Ok(finish),
            Driven::AwaitsClient(calls) | Driven::AwaitsApproval(calls) => calls,
        };
        for call in calls {
            run.tell(Told::Judged { call: call.id, verdict: Verdict::Denied })?;
        }
    }
}

async fn moving(run: &mut ActiveRun, prepared: &Prepared) -> Result<Driven, RunError> {
    let mut stops = pin!(run.drive());
    let mut ticks = interval(TICK);
    loop {
        tokio::select! {
            biased;
            outcome = &mut stops => return outcome,
            _ = ticks.tick() => prepared.show.screen().into_iter().for_each(Screen::tick),
        }
    }
}

impl Prepared {
    /// Gives the answer and says how it came about.
    fn end(self, ended: &Ended) -> ExitCode {
        let Ended { run, finish, stopped_by } = ended;
        let summary = ending::Summary {
            session: self.watch.place().session,
            turns: run.run().counts().turns,
            took: self.began.elapsed(),
            bill: run.bill(),
            exit: stopped_by.unwrap_or_else(|| self.show.exit(finish)),
        };
        let code = self.show.end(finish, &summary);
        let recorded = self.record_end(summary.took, *stopped_by);
        self.watch.draw_tree();
        self.watch.finish();
        if let (Some(problem), Exit::Success) = (recorded, summary.exit) {
            return terminal::failed(Exit::Failed, &format!("the recording is not whole: {problem}"));
        }
        code
    }
}
