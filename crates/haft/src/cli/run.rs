//! `haft run`: a model works on a request with tools.

mod ending;
mod prepare;
mod said;
mod screen;
mod wire;

use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use haft_core::event::EventSink;
use haft_core::run::finish::Finish;
use haft_core::run::{Abort, RunError, Verdict};
use haft_engine::Driven;
use tokio::time::interval;

use super::args::RunArgs;
use super::call;
use super::cancel;
use super::exit::Exit;
use super::settings::{self, Refused};
use super::skills;
use super::terminal;
use crate::config::environment;
use crate::runs::Errand;
pub(super) use prepare::{Given, Prepared};

/// How often a line that says what is running moves.
const TICK: Duration = Duration::from_millis(100);

pub(super) async fn run(args: &RunArgs) -> ExitCode {
    let prepared = async {
        let configuration = settings::configuration(&args.policy.files)?;
        let others = call::over_http(&configuration.resolved, &settings::home()?).await;
        let skills = skills::found(&args.policy.files)?;
        prepare(args, Given { configuration, others, skills, variables: Arc::new(environment) }).await
    };
    match prepared.await {
        Ok(prepared) => carry_out(prepared).await,
        Err((exit, message)) => terminal::failed(exit, &message),
    }
}

/// Also for a run that was not typed.
pub(super) async fn prepare(args: &RunArgs, given: Given) -> Result<Prepared, Refused> {
    if args.no_color {
        anstream::ColorChoice::Never.write_global();
    }
    Prepared::new(args, given).await
}

pub(super) async fn carry_out(prepared: Prepared) -> ExitCode {
    let orchestrator = prepared.worker.orchestrator();
    let mut cancelled = pin!(cancel::cancelled());
    tokio::select! {
        biased;
        () = call::begin(orchestrator) => {}
        exit = &mut cancelled => return exit.into(),
    }
    let task = prepared.task();
    prepared.screen.iter().for_each(|screen| screen.show_budget(&task.scope.meter));
    let ended = match Errand::begin(Arc::clone(&prepared.worker), task) {
        Ok(errand) => drive(errand, &prepared, cancelled).await,
        Err(error) => Err(error),
    };
    call::end(orchestrator).await;
    call::keep_approvals_of(orchestrator);
    match ended {
        Ok(ended) => prepared.end(&ended),
        Err(error) => terminal::failed(Exit::Internal, &error.to_string()),
    }
}

/// A run that is over.
struct Ended {
    errand: Errand,
    finish: Finish,
    stopped_by: Option<Exit>,
}

async fn drive(
    mut errand: Errand,
    prepared: &Prepared,
    mut cancelled: Pin<&mut impl Future<Output = Exit>>,
) -> Result<Ended, RunError> {
    let ended = tokio::select! {
        biased;
        ended = to_the_end(&mut errand, prepared) => ended.map(|finish| (Some(finish), None)),
        exit = &mut cancelled => Ok((None, Some(exit))),
    }?;
    let (finish, stopped_by) = match ended {
        (Some(finish), stopped_by) => (finish, stopped_by),
        (None, stopped_by) => {
            errand.run_mut().abort(Abort::Interrupted);
            (to_the_end(&mut errand, prepared).await?, stopped_by)
        }
    };
    Ok(Ended { errand, finish, stopped_by })
}

/// At a terminal nobody else carries out functions, and whoever does not answer now has said no.
async fn to_the_end(errand: &mut Errand, prepared: &Prepared) -> Result<Finish, RunError> {
    loop {
        let calls = match moving(errand, prepared).await? {
            Driven::Done(finish) => return Ok(finish),
            Driven::AwaitsClient(calls) | Driven::AwaitsApproval(calls) => calls,
        };
        for call in calls {
            errand.run_mut().approval_given(&call.id, Verdict::Denied)?;
        }
    }
}

async fn moving(errand: &mut Errand, prepared: &Prepared) -> Result<Driven, RunError> {
    let mut stops = pin!(errand.drive());
    let mut ticks = interval(TICK);
    loop {
        tokio::select! {
            biased;
            outcome = &mut stops => return outcome,
            _ = ticks.tick() => prepared.screen.iter().for_each(|screen| screen.tick()),
        }
    }
}

impl Prepared {
    /// Gives the answer and says how it came about.
    fn end(self, ended: &Ended) -> ExitCode {
        let Ended { errand, finish, stopped_by } = ended;
        let exit = stopped_by.unwrap_or_else(|| ending::exit(finish, self.denials.count()));
        let summary = ending::Summary {
            session: self.watch.options().place.session,
            turns: errand.run().counts().turns,
            took: self.began.elapsed(),
            bill: errand.bill(),
            exit,
        };
        let written = self.output.end(finish, &summary);
        if let Some(screen) = &self.screen {
            screen.end(&summary);
        }
        if let Some(complaint) = ending::complaint(finish, exit).filter(|_| exit != Exit::ClosedPipe) {
            let _ = terminal::failed(exit, &complaint);
        }
        self.watch.draw_tree();
        self.watch.finish();
        if written == ExitCode::SUCCESS { exit.into() } else { written }
    }
}

/// Counts calls that were refused: a run that fails because of them says so by its exit code.
#[derive(Debug, Default)]
struct Denials(std::sync::atomic::AtomicU64);

impl Denials {
    fn count(&self) -> u64 {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl EventSink for Denials {
    fn emit(&self, event: haft_core::event::Event) {
        use haft_core::event::Event;
        use haft_core::result::ToolErrorKind;
        if let Event::ToolFinished { failure: Some(ToolErrorKind::Denied), .. } = event {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
