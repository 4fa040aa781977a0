//! Everything that is decided before the model is asked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haft_core::event::EventSink;
use haft_engine::Memory;
use haft_models::cassette::{RecordingError, Tape};

use super::resume;
use super::said;
use super::screen::Screen;
use super::wire::Output;
use super::{Denials, Means};
use crate::approvals;
use crate::cli::approver::TerminalApprover;
use crate::cli::args::RunArgs;
use crate::cli::ask;
use crate::cli::call;
use crate::cli::elicitor::TerminalElicitor;
use crate::cli::exit::Exit;
use crate::cli::servers::{self, Asked};
use crate::cli::settings::{self, Configuration, Refused};
use crate::cli::watch::Watch;
use crate::config::Resolved;
use crate::models;
use crate::recordings::{Beginning, RunRecorder};
use crate::runs::shelf::Shelf;
use crate::runs::{Errand, TakingUp, Task, Variables, Worker, Workshop};
use crate::sessions::Sessions;
use crate::telemetry::captures_content;
use crate::wiring::Settings;

/// A run that can begin.
pub(in crate::cli) struct Prepared {
    pub(super) worker: Arc<Worker>,
    pub(super) watch: Watch,
    pub(super) output: Arc<Output>,
    /// Where nobody said that they want it quiet.
    pub(super) screen: Option<Arc<Screen>>,
    pub(super) denials: Arc<Denials>,
    /// Where somebody wants to see the run again.
    recorder: Option<Arc<RunRecorder>>,
    pub(super) began: Instant,
    request: String,
}

impl Prepared {
    pub(super) fn new(
        args: &RunArgs,
        mut configuration: Configuration,
        means: Means,
    ) -> Result<Self, Refused> {
        let (crew, request) = said::said(args, &shelf())?;
        let policy = settings::policy(&args.policy, &configuration)?;
        let home = policy.home().clone();
        let config = &mut configuration.resolved;

        let output = Arc::new(Output::new(args.output_format, &crew.first().agent));
        let screen = (!args.quiet).then(|| Arc::new(Screen::new(args, &output)));
        let denials = Arc::new(Denials::default());
        let mut seen: Vec<Arc<dyn EventSink>> = vec![Arc::clone(&denials) as _, Arc::clone(&output) as _];
        seen.extend(screen.iter().map(|screen| Arc::clone(screen) as Arc<dyn EventSink>));
        let mut watch = Watch::of_run(args, &home, seen);
        let tape = tape(args, config, &means.variables)?;
        let recorder = tape.clone().map(|tape| {
            let recorder = Arc::new(RunRecorder::new(tape, watch.options().place.session));
            watch.add(Arc::clone(&recorder) as _);
            recorder
        });
        let telemetry = &mut config.telemetry;
        telemetry.capture_content =
            watch.tells_a_collector() && captures_content().unwrap_or(telemetry.capture_content);
        let store = Arc::new(call::store(&home, &config.tool_output.limits)?);
        let person = TerminalElicitor::when_somebody_is_there();
        let asked = Asked { tool: None, person, parents: watch.trace_parents() };
        let servers = servers::providers(config, &policy, asked);
        let settings = Settings {
            policy,
            timeout: None,
            events: watch.sink(),
            config: configuration.resolved,
            approver: TerminalApprover::when_somebody_is_there(),
            remembered: Memory::new(approvals::load(&home)),
            store: Some(store),
        };
        let workshop = Workshop::new(settings, [servers, means.others].concat(), means.variables);
        if let (Some(tape), Some(recorder)) = (tape, &recorder) {
            workshop.record_on(tape, Arc::clone(recorder));
        }
        means.models.into_iter().for_each(|models| workshop.ask_instead(models));
        let worker = workshop.employ(&crew).map_err(|error| ask::refused(&error))?;
        let began = Instant::now();
        Ok(Self { worker, watch, output, screen, denials, recorder, began, request })
    }

    /// Puts the run on record, where the operator wants that.
    pub(super) fn keep_session(&self, taking_up: TakingUp) {
        let workshop = self.worker.workshop();
        let Some(home) = crate::home::find() else { return };
        let kept = &workshop.config().sessions;
        if kept.enabled {
            workshop.keep_sessions(Sessions::of(&home, kept.limits), resume::order(), taking_up);
        }
    }

    pub(super) fn record_beginning(&self, errand: &Errand) {
        let Some(recorder) = &self.recorder else { return };
        recorder.begin(&Beginning {
            session: errand.task().place.session.to_string(),
            model: self.worker.model().to_string(),
            path: errand.task().scope.path.clone(),
            request: self.request.clone(),
            order: resume::order(),
            run: errand.run().snapshot(),
        });
    }

    /// Why the recording is not whole, if it is not.
    pub(super) fn record_end(&self, took: Duration) -> Option<String> {
        let recorder = self.recorder.as_ref()?;
        recorder.end(took);
        recorder.problem()
    }

    /// What is asked, on the account of whoever typed it.
    pub(super) fn task(&self) -> Task {
        let place = self.watch.options().place;
        Task::first(&self.worker, self.request.clone(), place, self.watch.sink())
    }
}

fn tape(args: &RunArgs, config: &Resolved, variables: &Variables) -> Result<Option<Arc<Tape>>, Refused> {
    let Some(file) = &args.record else { return Ok(None) };
    let unusable =
        |error: RecordingError| (Exit::Input, format!("{}\nhint: {}", error.message(), error.hint()));
    Tape::create(file, models::secrets(config, &**variables)).map(Some).map_err(unusable)
}

/// Where agents are that are named and not written out.
fn shelf() -> Shelf {
    let home = crate::home::find().map(|home| home.root().join("agents"));
    Shelf { directories: home.into_iter().collect() }
}
