//! Everything that is decided before the model is asked.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haft_core::approval::Grants;
use haft_core::event::{Event, EventSink, Watchers};
use haft_core::model_provider::ModelProvider;
use haft_core::provider::ToolProvider;
use haft_core::run::event::Bill;
use haft_engine::RunContext;
use haft_models::cassette::{RecordingError, Tape};
use haft_sandbox::Policy;

use super::resume;
use super::said;
use super::show::Show;
use super::wire::Output;
use crate::agents;
use crate::approver::TerminalApprover;
use crate::args::{FileArgs, RunArgs};
use crate::ask;
use crate::call;
use crate::elicitor::TerminalElicitor;
use crate::exit::Exit;
use crate::servers::{self, Asked};
use crate::settings::{self, Configuration, Refused};
use crate::skills;
use crate::terminal;
use crate::watch::Watch;
use haft_config::agents::graph::AgentGraph;
use haft_config::skills::Skills;
use haft_config::{Resolved, environment};
use haft_runtime::models;
use haft_runtime::recordings::{Recorded, RunRecorder};
use haft_runtime::runs::{
    self, LeftSessions, PreparedAgent, RunEnvironment, RunRequest, Variables, call_in, route,
};
use haft_runtime::sampling::ModelSampler;
use haft_runtime::telemetry::captures_content;
use haft_runtime::wiring::ToolSettings;
use haft_store::approvals;
use haft_store::sessions::Sessions;

/// A run that can begin.
pub(crate) struct Prepared {
    pub(super) worker: Arc<PreparedAgent>,
    pub(super) context: Arc<RunContext>,
    pub(super) watch: Watch,
    pub(super) show: Show,
    /// Where somebody wants to see the run again.
    recorder: Option<Arc<RunRecorder>>,
    unused: Unused,
    pub(super) began: Instant,
    request: String,
    /// What was done to find out which model to ask.
    routing: Vec<Event>,
}

/// What is there beside what was typed.
pub(crate) struct Given {
    pub(crate) configuration: Configuration,
    /// Tools beside the built-in ones.
    pub(crate) others: Vec<Arc<dyn ToolProvider>>,
    pub(crate) skills: Skills,
    /// Say where the provider of the model is.
    pub(crate) variables: Variables,
    /// Asked instead of those that are configured.
    pub(crate) models: Option<Arc<dyn ModelProvider>>,
    pub(crate) before: Before,
}

/// What was decided about the run before.
#[derive(Debug)]
pub(crate) enum Before {
    Nothing,
    /// It was begun: what it was asked fitted, and its model was chosen.
    Begun {
        model: Option<String>,
    },
}

impl Given {
    /// What the operator's files and environment say.
    pub(super) async fn configured(
        files: &FileArgs,
        models: Option<Arc<dyn ModelProvider>>,
        before: Before,
    ) -> Result<Self, Refused> {
        let configuration = settings::configuration(files)?;
        let others = call::over_http(&configuration.resolved, &settings::home()?).await;
        let skills = skills::found(files)?;
        Ok(Self { configuration, others, skills, variables: Arc::new(environment), models, before })
    }
}

impl Prepared {
    pub(super) async fn new(args: &RunArgs, given: Given) -> Result<Self, Refused> {
        let Given { mut configuration, others, skills, variables, models, before } = given;
        let (mut graph, request) = said::said(args, &agents::loader(&args.policy.files)?).await?;
        if let Before::Nothing = before {
            said::fits(&graph.first().agent, &request)?;
        }
        let policy = settings::policy(&args.policy, &configuration)?;
        let config = &mut configuration.resolved;
        let skills = call_in(&skills, &request, config, &environment);
        let routed = args.route || config.route;

        let show = Show::new(args, Output::new(args.show.output_format));
        let mut watch = Watch::of_run(args.show, policy.home(), show.sinks());
        let tape = tape(args, config, &variables)?;
        let unused = Unused(Cell::new(args.record.clone()));
        let recorder = tape.as_ref().map(|tape| recorded_by(tape, &mut watch));
        let telemetry = &mut config.telemetry;
        telemetry.capture_content =
            watch.tells_a_collector() && captures_content().unwrap_or(telemetry.capture_content);
        let context = Arc::new(context(config, &policy, &variables, (&graph, &watch))?);
        let elicitation = call::elicitation(context.elicitor.as_ref());
        let asked = Asked { tool: None, elicitation, parents: watch.trace_parents() };
        let servers = servers::providers(config, &policy, asked);
        let settings = ToolSettings { policy, timeout: None, config: configuration.resolved };
        let environment = RunEnvironment::new(settings, [servers, others].concat(), variables, skills);
        if let (Some(tape), Some(recorder)) = (tape, &recorder) {
            environment.record_on(tape, Arc::clone(recorder));
        }
        if let Some(models) = models {
            environment.ask_instead(models);
        }
        let routing = match before {
            Before::Nothing if routed => route(&environment, &mut graph, &request, &watch).await?,
            Before::Begun { model: Some(model) } if routed && graph.first().agent.models.is_empty() => {
                graph.ask_model(model);
                Vec::new()
            }
            Before::Nothing | Before::Begun { .. } => Vec::new(),
        };
        let worker = environment.prepare(&graph).map_err(|error| ask::refused(&error))?;
        Ok(Self { worker, context, watch, show, recorder, unused, began: Instant::now(), request, routing })
    }

    /// Puts the run on record, where the operator wants that.
    pub(super) fn keep_session(&self, left_sessions: LeftSessions) {
        let environment = self.worker.environment();
        let Some(home) = haft_runtime::home::find() else { return };
        let kept = &environment.config().sessions;
        if kept.enabled {
            environment.keep_sessions(Sessions::of(&home, kept.limits), resume::order(), left_sessions);
        }
    }

    /// There is a run: what is recorded of it stays.
    pub(super) fn record_begin(&self) {
        self.unused.0.take();
    }

    /// Why the recording is not whole, if it is not.
    pub(super) fn record_end(&self, took: Duration, stopped_by: Option<Exit>) -> Option<String> {
        let recorder = self.recorder.as_ref()?;
        recorder.end(took, stopped_by.map(Exit::code));
        recorder.problem()
    }

    /// What is asked, on the account of whoever typed it.
    pub(super) fn task(&self) -> RunRequest {
        let place = self.watch.place();
        let (request, before) = (self.request.clone(), self.routing.clone());
        let spent = Bill::of(&before);
        RunRequest {
            before,
            ..RunRequest::first(&self.worker, request, place, Arc::clone(&self.context), spent)
        }
    }
}

/// A recording of no run yet. Dropped, it is gone: the same words can be typed again, once what was wrong with them is mended.
struct Unused(Cell<Option<PathBuf>>);

impl Drop for Unused {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn tape(args: &RunArgs, config: &Resolved, variables: &Variables) -> Result<Option<Arc<Tape>>, Refused> {
    let Some(file) = &args.record else { return Ok(None) };
    let unusable =
        |error: RecordingError| (Exit::Input, format!("{}\nhint: {}", error.message(), error.hint()));
    Tape::create(file, models::secrets(config, &**variables)).map(Some).map_err(unusable)
}

/// All who watch see what the recording has, and see it as the recording has it.
fn recorded_by(tape: &Arc<Tape>, watch: &mut Watch) -> Arc<RunRecorder> {
    let recorder = Arc::new(RunRecorder::new(Arc::clone(tape), resume::order()));
    watch.all_through(|watchers| Arc::new(Recorded::new(Arc::clone(&recorder), watchers)));
    recorder
}

/// Whom this run can ask, and where its outputs and events go.
fn context(
    config: &Resolved,
    policy: &Policy,
    variables: &Variables,
    (graph, watch): (&AgentGraph, &Watch),
) -> Result<RunContext, Refused> {
    let usual = runs::model_names(&graph.first().agent, config).map_err(|error| ask::refused(&error))?;
    let sampler = ModelSampler::new(config, policy, Arc::clone(variables), usual.into_iter().next());
    let store = call::store(policy.home(), &config.tool_output.limits)?;
    Ok(RunContext {
        workspace: policy.workspace().to_string_lossy().into(),
        approver: TerminalApprover::when_somebody_is_there(),
        grants: Grants::new(approvals::load(policy.home())),
        outputs: Some(Arc::new(store)),
        elicitor: TerminalElicitor::when_somebody_is_there(),
        sampler: Some(Arc::new(sampler)),
        events: watch.sink(),
        ..RunContext::default()
    })
}

/// Lets the fast model choose, where no model is named and there are two. One that cannot be asked is no reason not to go on.
async fn route(
    environment: &Arc<RunEnvironment>,
    graph: &mut AgentGraph,
    request: &str,
    watch: &Watch,
) -> Result<Vec<Event>, Refused> {
    let choices = route::choices(&environment.config().models);
    let Some(choices) = choices.filter(|_| graph.first().agent.models.is_empty()) else {
        return Ok(Vec::new());
    };
    let complex = choices.1.clone();
    let fast = environment.models(std::slice::from_ref(&choices.0)).map_err(|error| ask::refused(&error))?;
    let session = watch.place().session;
    let seen = Arc::new(Seen::default());
    let watchers = Watchers(vec![Arc::clone(&seen) as _, watch.sink()]);
    let chosen = route::choose(&*fast, choices, request, session, Arc::new(watchers)).await;
    let chosen = chosen.unwrap_or_else(|error| {
        terminal::warn(&format!("the fast model cannot choose: {error}; `{complex}` is asked"));
        complex
    });
    graph.ask_model(chosen.to_string());
    Ok(seen.take())
}

/// Keeps what it sees.
#[derive(Debug, Default)]
struct Seen(Mutex<Vec<Event>>);

impl Seen {
    fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl EventSink for Seen {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}
