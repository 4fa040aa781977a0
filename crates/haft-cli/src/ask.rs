//! `haft ask`: one question to a model, one answer. The command is a run without tools.

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use haft_config::agents::graph::AgentGraph;
use haft_config::agents::loader::{self, AgentLoader};
use haft_config::agents::{AgentOverride, AgentOverrides};
use haft_core::event::{Event, EventSink};
use haft_core::event_log::LogUsage;
use haft_core::internal_tools::final_report::ReportContent;
use haft_core::model_event::{ModelEvent, PartDelta, PartStart};
use haft_core::model_provider::ModelProvider;
use haft_core::model_reply::{ModelReply, ReplyFold, StopReason};
use haft_core::run::event::{RunBill, RunEvent};
use haft_core::run::finish::{FinishClass, FinishReason, RunAnswer, RunFinish};
use haft_models::cassette::{MatchRule, Recording, Replayer};
use haft_runtime::recordings::RunRecorder;
use haft_runtime::runs::Variables;
use haft_runtime::spec::{AgentChanges, RunSpec};
use haft_runtime::{
    AnswerSource, RunDefect, RunHandle, RunHooks, RunOutcome, Runtime, SessionStorage, Stores,
};
use serde_json::{Value, json};

use super::answer_writer::AnswerWriter;
use super::args::AskArgs;
use super::cli_error::CliError;
use super::exit::ExitReason;
use super::run::{
    PendingRecording, RunLaunch, accounting_stores, launch, output_schema, summary, warn, written_request,
};
use super::settings::{self, Configuration};
use super::watch::CommandWatchers;
use super::{cancel, images, piped_input, terminal};
use crate::variables::variable;

pub(super) async fn run(args: &AskArgs) -> ExitCode {
    let asked = match Box::pin(start(args)).await {
        Ok(asked) => asked,
        Err(error) => return error.report(),
    };
    let exit = tokio::select! {
        // `biased` checks the answer first: an answer that is complete when a signal arrives is still printed.
        biased;
        exit = asked.end(args) => exit,
        exit = cancel::cancelled() => exit.into(),
    };
    asked.watch.finish();
    match asked.recorder.and_then(|recorder| recorder.problem()) {
        None => exit,
        Some(problem) => {
            terminal::failed(ExitReason::Failed, &format!("the recording is incomplete: {problem}"))
        }
    }
}

/// The run that answers the question, and its watchers.
struct StartedQuestion {
    handle: RunHandle,
    reply: Arc<ReplyWatcher>,
    watch: CommandWatchers,
    /// The recorder of the run; `None` without the option `--record`.
    recorder: Option<Arc<RunRecorder>>,
    began: Instant,
}

async fn start(args: &AskArgs) -> Result<StartedQuestion, CliError> {
    let mut configuration = settings::configuration(&args.files)?;
    let mut spec = spec(args, &configuration).await?;
    let config = &mut configuration.resolved;
    // The run has no tools, so no server is started and no OpenAPI document is loaded.
    config.mcp_servers.clear();
    config.rest.tools.clear();
    config.rest.specs.clear();
    config.tool_output.enabled = false;
    let replayer = args.replay.as_deref().map(replayer).transpose()?;
    if let (Some(replayer), true) = (&replayer, args.model.is_empty()) {
        spec.changes.models = vec![format!("{}/{}", replayer.name(), replayer.model().unwrap_or_default())];
    }
    let variables: Variables = Arc::new(variable);
    let record = |file: &Path| PendingRecording::create(file, config, &variables);
    let recording = args.record.as_deref().map(record).transpose()?;
    let home = settings::home()?;
    // The cost of a replay was already recorded with the original run, so it is not recorded a second time.
    let is_paid = args.replay.is_none();
    let stores = if is_paid { accounting_stores(&home) } else { Stores::at(&home).without_accounting() };
    let watch = CommandWatchers::of_question(args);
    let reply = Arc::new(ReplyWatcher::new(args, watch.sink()));
    let hooks = RunHooks {
        approvals: AnswerSource::Denied,
        elicitations: AnswerSource::Denied,
        watchers: vec![Arc::clone(&reply) as _],
        recorder: recording.as_ref().map(PendingRecording::hook),
        models: replayer.map(|replayer| Arc::new(replayer) as _),
        session: Some(watch.place().session),
        sessions: SessionStorage::None,
        ..RunHooks::default()
    };
    let builder = Runtime::builder(configuration.resolved).home(home).stores(stores).variables(variables);
    let began = Instant::now();
    let handle = launch(builder, hooks, RunLaunch::New(Box::new(spec))).await?;
    handle.warnings().iter().for_each(|warning| warn(warning));
    Ok(StartedQuestion { handle, reply, watch, recorder: recording.map(PendingRecording::keep), began })
}

/// Builds the spec of the run: an agent without tools that gets one reply and sends no further request.
async fn spec(args: &AskArgs, configuration: &Configuration) -> Result<RunSpec, CliError> {
    // Read the question before the recording is created: the file must be new, so an empty recording would block the
    // next attempt.
    let question = question(args).await?;
    let images = args.image.iter().map(|path| images::image(path)).collect::<Result<_, _>>()?;
    let output_schema = args.output_schema.as_deref().map(object_schema).transpose()?;
    let mut overrides = vec![AgentOverride::new("maxAttempts", 1.into())];
    overrides
        .extend(args.max_output_tokens.map(|tokens| AgentOverride::new("maxOutputTokens", tokens.into())));
    if output_schema.is_some() {
        overrides.push(AgentOverride::new("finalReport", "none".into()));
    }
    let overrides = AgentOverrides(overrides);
    let agent = loader::of_text("ask", "", &overrides).map_err(CliError::internal)?;
    let graph = AgentGraph::gather(agent, &AgentLoader::default()).map_err(CliError::internal)?;
    let workspace = settings::workspace_of_question(&args.files, configuration)?;
    Ok(RunSpec {
        images,
        changes: AgentChanges {
            models: args.model.clone(),
            system: Some(args.system.clone().unwrap_or_default()),
            tools: Some(Vec::new()),
            output_schema,
            overrides,
            ..AgentChanges::default()
        },
        ..RunSpec::new(&graph, question, workspace)
    })
}

async fn question(args: &AskArgs) -> Result<String, CliError> {
    let text = written_request(&args.question, "question").await?;
    if args.question == "-" {
        return Ok(text);
    }
    let piped = piped_input::read(args.stdin_wait).await?;
    Ok(piped.map_or(text.clone(), |input| piped_input::inline(&text, &input)))
}

/// Reads the schema of the answer. Providers accept only a schema of type object.
fn object_schema(file: &Path) -> Result<Arc<Value>, CliError> {
    let schema = output_schema(file)?;
    match schema.get("type").filter(|kind| *kind != "object") {
        None => Ok(schema),
        Some(kind) => {
            let hint = "give a file that contains one JSON Schema for an object";
            let problem =
                format!("{}: the `type` of the schema must be \"object\"; got {kind}", file.display());
            Err(CliError::input(problem).with_hint(hint))
        }
    }
}

fn replayer(file: &Path) -> Result<Replayer, CliError> {
    let recording = Recording::read(file)?;
    if recording.cut_off() {
        terminal::warn(&format!(
            "haft skipped the last line of {}, because the line is incomplete",
            file.display()
        ));
    }
    Ok(Replayer::new(&recording, MatchRule::Digest)?)
}

/// Writes the reply to standard output as it arrives, and forwards model requests to the other watchers. Does not
/// forward run events, because the log of a question shows only its requests.
struct ReplyWatcher {
    /// True if text is written as it arrives. JSON is written when it is complete, and an answer with a schema after
    /// the check.
    streams: bool,
    reply: Mutex<ArrivingReply>,
    watchers: Arc<dyn EventSink>,
}

#[derive(Default)]
struct ArrivingReply {
    fold: ReplyFold,
    /// The indexes of the parts with text or a refusal; reasoning and calls are not shown.
    texts: Vec<usize>,
    prose: AnswerWriter,
}

impl ReplyWatcher {
    fn new(args: &AskArgs, watchers: Arc<dyn EventSink>) -> Self {
        let streams = !args.json && args.output_schema.is_none();
        Self { streams, reply: Mutex::default(), watchers }
    }

    fn reply(&self) -> MutexGuard<'_, ArrivingReply> {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, event: &ModelEvent) {
        let ArrivingReply { fold, texts, prose } = &mut *self.reply();
        fold.apply(event);
        match event {
            ModelEvent::PartStarted { index, part: PartStart::Text | PartStart::Refusal, .. } => {
                texts.push(*index);
            }
            ModelEvent::PartDelta { index, delta: PartDelta::Text(text) }
                if self.streams && texts.contains(index) =>
            {
                // Ignore an error: `cancel::cancelled` detects a closed pipe.
                let _ = prose.write(text);
            }
            ModelEvent::Started { .. }
            | ModelEvent::PartStarted { .. }
            | ModelEvent::PartDelta { .. }
            | ModelEvent::PartFinished { .. }
            | ModelEvent::Usage(_)
            | ModelEvent::Noted(_)
            | ModelEvent::Finished { .. } => {}
        }
    }
}

impl EventSink for ReplyWatcher {
    fn emit(&self, event: Event) {
        match &event {
            Event::Run { event, .. } => {
                if let RunEvent::Model(event) = &**event {
                    self.take(event);
                }
            }
            Event::ToolStarted { .. }
            | Event::ToolProgress { .. }
            | Event::ToolFinished { .. }
            | Event::ModelStarted { .. }
            | Event::ModelFinished { .. } => self.watchers.emit(event),
        }
    }
}

impl StartedQuestion {
    /// Waits for the answer, prints it and returns the exit code.
    async fn end(&self, args: &AskArgs) -> ExitCode {
        let outcome = self.handle.finished().await;
        self.handle.closed().await;
        let took = self.began.elapsed();
        self.recorder.iter().for_each(|recorder| recorder.end(took, None));
        let RunOutcome { finish, bill, .. } = match outcome {
            Ok(outcome) => outcome,
            Err(RunDefect(problem)) => return terminal::failed(ExitReason::Internal, &problem),
        };
        let ArrivingReply { fold, mut prose, .. } = std::mem::take(&mut *self.reply.reply());
        let answered =
            QuestionOutcome { reply: fold.finish(), failure: QuestionFailure::of(&finish), finish };
        if args.json {
            return answered.print_json(bill, took);
        }
        if prose.end().is_err() {
            return ExitReason::ClosedPipe.into();
        }
        answered.print()
    }
}

/// The outcome of the run that answered the question.
struct QuestionOutcome {
    reply: ModelReply,
    finish: RunFinish,
    /// `None` if there is a reply. The reply may still be incomplete, see [`stop_row`].
    failure: Option<QuestionFailure>,
}

/// The reason why there is no usable reply.
struct QuestionFailure {
    exit: ExitReason,
    /// The kind of error; `None` for a reply that does not match the schema.
    kind: Option<&'static str>,
    message: String,
    hint: &'static str,
}

impl QuestionFailure {
    fn of(finish: &RunFinish) -> Option<Self> {
        let message = summary::detail(finish).to_owned();
        match (&finish.reason, finish.reason.row().class) {
            (FinishReason::ModelFailed(kind), _) => {
                Some(Self { exit: (*kind).into(), kind: Some(kind.name()), message, hint: kind.row().hint })
            }
            (FinishReason::InvalidReport, _) => Some(Self {
                exit: ExitReason::Failed,
                kind: None,
                message: format!("the answer does not match the schema: {message}"),
                hint: "ask again, or use a model that supports JSON Schema",
            }),
            (FinishReason::ContextFull, _)
            | (_, FinishClass::Budget | FinishClass::Interrupted | FinishClass::TimedOut) => Some(Self {
                exit: summary::exit(finish, 0),
                kind: Some(finish.reason.name()),
                message,
                hint: finish.reason.row().hint,
            }),
            // This is no failure: the model replied, and `stop_row` explains an incomplete reply by its stop reason.
            (_, FinishClass::Answered | FinishClass::Limited | FinishClass::Failed) => None,
        }
    }
}

impl QuestionOutcome {
    /// Reports all results except the streamed text, and returns the exit code.
    fn print(&self) -> ExitCode {
        for note in &self.reply.notes {
            terminal::warn(&note.to_string());
        }
        match (&self.failure, stop_row(&self.reply.stop).1, self.structured()) {
            (Some(QuestionFailure { exit, message, hint, .. }), _, _) => {
                CliError::new(*exit, message).with_hint(hint).report()
            }
            (None, Some(problem), _) => problem.report(),
            (None, None, Some(value)) => terminal::answer(&format!("{value:#}")),
            (None, None, None) => ExitReason::Success.into(),
        }
    }

    /// Returns the answer that was checked against the schema.
    fn structured(&self) -> Option<&Value> {
        match self.finish.answer.as_ref()? {
            RunAnswer::Report(report) => match &report.content {
                ReportContent::Json(value) => Some(value),
                ReportContent::Text(_) => None,
            },
            RunAnswer::Text(_) => None,
        }
    }

    fn print_json(&self, bill: RunBill, took: std::time::Duration) -> ExitCode {
        let Self { reply, failure, .. } = self;
        let failure = failure.as_ref();
        let kind = failure.and_then(|failure| failure.kind);
        let (stop, problem) = stop_row(&reply.stop);
        let printed = json!({
            "model": reply.model,
            "text": reply.text(),
            "answer": self.structured(),
            "stop": kind.is_none().then_some(stop),
            "error_kind": kind,
            "error": failure.map(|failure| &failure.message),
            "usage": reply.usage.map(LogUsage::from),
            "cost_nano_usd": (bill.unpriced < bill.requests).then_some(bill.cost.nano_usd),
            "attempts": bill.requests,
            "latency_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "notes": reply.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        let code = terminal::answer(&format!("{printed:#}"));
        match (failure, problem) {
            _ if code != ExitCode::SUCCESS => code,
            (Some(failure), _) => failure.exit.into(),
            (None, Some(_)) => ExitReason::Failed.into(),
            (None, None) => ExitReason::Success.into(),
        }
    }
}

/// Returns the name of a stop reason and, for an incomplete answer, the message about it.
fn stop_row(stop: &StopReason) -> (&str, Option<CliError>) {
    let failed = |message: &str| CliError::failed(message);
    match stop {
        StopReason::EndOfTurn => ("end_of_turn", None),
        StopReason::ToolCalls => ("tool_calls", None),
        StopReason::StopSequence => ("stop_sequence", None),
        StopReason::Other(word) => (word, None),
        StopReason::Length => (
            "length",
            Some(
                failed("the answer was cut off at the output token limit")
                    .with_hint("raise the limit with --max-output-tokens"),
            ),
        ),
        StopReason::Refusal => ("refusal", Some(failed("the model refused to answer"))),
        StopReason::Filtered => (
            "filtered",
            Some(
                failed("a content filter of the provider blocked the answer")
                    .with_hint("rephrase the question"),
            ),
        ),
        StopReason::Paused => (
            "paused",
            Some(failed("the provider paused before the answer was complete").with_hint("ask again")),
        ),
        StopReason::CutOff => {
            ("cut_off", Some(failed("the answer ended before it was complete").with_hint("ask again")))
        }
    }
}
