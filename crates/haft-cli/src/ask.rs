//! `haft ask`: one question to a model, one answer; no tools.

mod answer_schema;

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures_util::StreamExt;
use haft_core::conversation::{Conversation, Message, MessagePart, PartBody};
use haft_core::event::{Event, EventSink};
use haft_core::model_error::ModelError;
use haft_core::model_event::{ModelEvent, PartDelta};
use haft_core::model_provider::{ModelContext, ModelProvider};
use haft_core::model_reply::{ModelReply, ReplyFold, StopReason};
use haft_core::model_request::ModelRequest;
use haft_core::price::Cost;
use haft_core::provider::Principal;
use haft_models::cassette::{MatchRule, Recorder, Recording, RecordingError, Replayer, Tape};
use serde_json::{Value, json};

use self::answer_schema::AnswerSchema;
use super::answer_writer::AnswerWriter;
use super::args::AskArgs;
use super::exit::ExitReason;
use super::settings::{self, CliError};
use super::watch::CommandWatchers;
use super::{cancel, hints, images, piped_input, terminal};
use haft_config::resolved::ModelName;
use haft_config::{ResolvedConfig, environment};
use haft_runtime::models::{self, ModelsError};

/// The longest question that is read from standard input.
const QUESTION_BYTES_MAX: u64 = 16 * 1024 * 1024;

pub(super) async fn run(args: &AskArgs) -> ExitCode {
    let asked = match prepare(args).await {
        Ok(asked) => asked,
        Err((exit, message)) => return terminal::failed(exit, &message),
    };
    let PreparedQuestion { question, watch, tape } = asked;
    let exit = tokio::select! {
        // A finished answer wins over a signal that arrives at the same time.
        biased;
        exit = ask(args, question) => exit,
        exit = cancel::cancelled() => exit.into(),
    };
    watch.finish();
    match tape.and_then(|tape| tape.problem()) {
        None => exit,
        Some(problem) => {
            terminal::failed(ExitReason::Failed, &format!("the recording is incomplete: {problem}"))
        }
    }
}

/// Everything decided before the request is sent.
struct PreparedQuestion {
    question: ModelQuestion,
    watch: CommandWatchers,
    /// The recording, with `--record`.
    tape: Option<Arc<Tape>>,
}

/// The request and the provider that answers it.
struct ModelQuestion {
    provider: Box<dyn ModelProvider>,
    request: ModelRequest,
    shape: Option<AnswerSchema>,
    cx: ModelContext,
    spent: Arc<AttemptCosts>,
}

async fn prepare(args: &AskArgs) -> Result<PreparedQuestion, CliError> {
    let config = settings::configuration(&args.files)?.resolved;
    let names = names(args, &config)?;
    // Read before the recording is created: a recording without an exchange would block the next attempt, because the
    // file must be new.
    let message = message(args).await?;
    let shape = args.output_schema.as_deref().map(AnswerSchema::read).transpose()?;
    let SelectedModel { provider, name, tape } = match &args.replay {
        Some(file) => replayed(file, names)?,
        None => asked(args, &config, names)?,
    };
    let mut request = request(args, message, &config, &name)?;
    if let Some(shape) = &shape {
        request.output = shape.output();
    }
    let spent = Arc::new(AttemptCosts::default());
    // A replay was paid for when it was recorded: without a home, its cost is not journaled a second time.
    let home = args.replay.is_none().then(settings::home).transpose()?;
    let watch = CommandWatchers::of_question(args, home.as_ref(), vec![Arc::clone(&spent) as _]);
    let cx = ModelContext::new("1", Principal::local(), watch.sink()).at(watch.place());
    Ok(PreparedQuestion { question: ModelQuestion { provider, request, shape, cx, spent }, watch, tape })
}

/// The provider that answers, and the name of the model.
struct SelectedModel {
    provider: Box<dyn ModelProvider>,
    name: ModelName,
    tape: Option<Arc<Tape>>,
}

fn asked(args: &AskArgs, config: &ResolvedConfig, names: Vec<ModelName>) -> Result<SelectedModel, CliError> {
    let provider = models::chain(config, &names, &environment).map_err(|error| refused(&error))?;
    let name = names.into_iter().next().ok_or_else(|| refused(&ModelsError::NoModel))?;
    let Some(file) = &args.record else { return Ok(SelectedModel { provider, name, tape: None }) };
    let tape = Tape::create(file, models::secrets(config, &environment)).map_err(|error| unusable(&error))?;
    let provider = Box::new(Recorder::new(provider, Arc::clone(&tape)));
    Ok(SelectedModel { provider, name, tape: Some(tape) })
}

/// Uses the recorded model unless another one is named; the replay sends no request either way.
fn replayed(file: &Path, names: Vec<ModelName>) -> Result<SelectedModel, CliError> {
    let recording = Recording::read(file).map_err(|error| unusable(&error))?;
    if recording.cut_off() {
        terminal::warn(&format!("{}: the last line is incomplete and was skipped", file.display()));
    }
    let replayer = Replayer::new(&recording, MatchRule::Digest).map_err(|error| unusable(&error))?;
    let recorded =
        || ModelName { provider: replayer.name().to_owned(), model: replayer.model().unwrap_or_default() };
    let name = names.into_iter().next().unwrap_or_else(recorded);
    Ok(SelectedModel { provider: Box::new(replayer), name, tape: None })
}

/// Returns the error for a recording that cannot be written or read.
pub(super) fn unusable(error: &RecordingError) -> CliError {
    (ExitReason::Input, hints::with(error, Some(hints::recording(error))))
}

/// Returns the models named on the command line, else those of the configuration.
fn names(args: &AskArgs, config: &ResolvedConfig) -> Result<Vec<ModelName>, CliError> {
    if args.model.is_empty() {
        return Ok(config.models.default.iter().chain(&config.models.fallback).cloned().collect());
    }
    args.model
        .iter()
        .map(|text| ModelName::parse(text).map_err(|message| (ExitReason::Usage, message)))
        .collect()
}

/// Builds the message from the question and the images.
async fn message(args: &AskArgs) -> Result<Message, CliError> {
    let mut message = Message::user(question(args).await?);
    for path in &args.image {
        message.parts.push(MessagePart::new(PartBody::Image(images::image(path)?)));
    }
    Ok(message)
}

fn request(
    args: &AskArgs,
    message: Message,
    config: &ResolvedConfig,
    name: &ModelName,
) -> Result<ModelRequest, CliError> {
    let mut conversation = Conversation::default();
    conversation.push(message).map_err(|error| (ExitReason::Internal, error.to_string()))?;
    let settings = config.models.settings.get(name).cloned().unwrap_or_default();
    Ok(ModelRequest {
        system: args.system.as_deref().unwrap_or_default().into(),
        output_tokens_max: args.max_output_tokens.or(settings.output_tokens_max),
        context_tokens: settings.context_tokens,
        ..ModelRequest::new(name.model.clone(), Arc::new(conversation))
    })
}

async fn question(args: &AskArgs) -> Result<String, CliError> {
    let text = if args.question == "-" { from_standard_input()? } else { args.question.clone() };
    if text.trim().is_empty() {
        return Err((
            ExitReason::Input,
            "the question is empty\nhint: `haft ask --help` has examples".into(),
        ));
    }
    if args.question == "-" {
        return Ok(text);
    }
    let piped = piped_input::read(args.stdin_wait).await?;
    Ok(piped.map_or(text.clone(), |input| piped_input::inline(&text, &input)))
}

fn from_standard_input() -> Result<String, CliError> {
    let unreadable = |error: &dyn std::fmt::Display| {
        (
            ExitReason::Input,
            format!("the question cannot be read from standard input: {error}\nhint: send UTF-8 text"),
        )
    };
    let mut text = String::new();
    let read = std::io::stdin().take(QUESTION_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| unreadable(&error))?;
    if text.len() as u64 > QUESTION_BYTES_MAX {
        let message = format!("the question has more than {QUESTION_BYTES_MAX} bytes; shorten it");
        return Err((ExitReason::Input, message));
    }
    Ok(text)
}

async fn ask(args: &AskArgs, question: ModelQuestion) -> ExitCode {
    let began = Instant::now();
    let ModelQuestion { provider, request, shape, cx, spent } = question;
    let mut fold = ReplyFold::default();
    let mut shown = StreamedAnswer::default();
    let mut replies = provider.ask(request, &cx);
    let mut failure = None;
    while let Some(event) = replies.next().await {
        match event {
            Ok(event) => {
                // An answer with a schema is shown only after it was checked against the schema.
                if !args.json && shape.is_none() && shown.show(&event).is_err() {
                    return ExitReason::ClosedPipe.into();
                }
                fold.apply(&event);
            }
            Err(error) => failure = Some(error),
        }
    }
    drop(replies);
    let reply = fold.finish();
    let fit = shape.filter(|_| failure.is_none() && end(&reply.stop).is_ok()).map(|shape| shape.fit(&reply));
    if args.json {
        return print_json(&QuestionOutcome { reply, failure, fit }, &spent, began);
    }
    if shown.prose.end().is_err() {
        return ExitReason::ClosedPipe.into();
    }
    print_outcome(&QuestionOutcome { reply, failure, fit })
}

/// The outcome of the request.
struct QuestionOutcome {
    reply: ModelReply,
    failure: Option<ModelError>,
    /// The answer that fits the schema, or the reason why it does not fit.
    fit: Option<Result<Value, String>>,
}

/// Writes text to standard output as it arrives.
#[derive(Default)]
struct StreamedAnswer {
    /// Indexes of the parts with text or a refusal; reasoning and calls are not shown.
    texts: Vec<usize>,
    prose: AnswerWriter,
}

impl StreamedAnswer {
    fn show(&mut self, event: &ModelEvent) -> std::io::Result<()> {
        use haft_core::model_event::PartStart;
        match event {
            ModelEvent::PartStarted { index, part: PartStart::Text | PartStart::Refusal, .. } => {
                self.texts.push(*index);
                Ok(())
            }
            ModelEvent::PartDelta { index, delta: PartDelta::Text(text) } if self.texts.contains(index) => {
                self.prose.write(text)
            }
            ModelEvent::Started { .. }
            | ModelEvent::PartStarted { .. }
            | ModelEvent::PartDelta { .. }
            | ModelEvent::PartFinished { .. }
            | ModelEvent::Usage(_)
            | ModelEvent::Noted(_)
            | ModelEvent::Finished { .. } => Ok(()),
        }
    }
}

/// Reports everything besides the streamed text, and returns the exit code.
fn print_outcome(answered: &QuestionOutcome) -> ExitCode {
    for note in &answered.reply.notes {
        terminal::warn(&note.to_string());
    }
    if let Some(error) = &answered.failure {
        return terminal::failed(error.kind.into(), &message_with_hint(error));
    }
    match (end(&answered.reply.stop), &answered.fit) {
        (Err(message), _) => terminal::failed(ExitReason::Failed, &message),
        (Ok(()), Some(Err(message))) => terminal::failed(ExitReason::Failed, message),
        (Ok(()), Some(Ok(value))) => terminal::answer(&format!("{value:#}")),
        (Ok(()), None) => ExitReason::Success.into(),
    }
}

fn message_with_hint(error: &ModelError) -> String {
    format!("{}\nhint: {}", error.message, error.kind.row().hint)
}

/// Returns an error when the answer is incomplete.
fn end(stop: &StopReason) -> Result<(), String> {
    match stop {
        StopReason::EndOfTurn | StopReason::ToolCalls | StopReason::StopSequence | StopReason::Other(_) => {
            Ok(())
        }
        StopReason::Paused => {
            Err("the provider paused before the answer was complete\nhint: ask again".into())
        }
        StopReason::Length => {
            Err("the answer was cut at its limit\nhint: raise the limit with --max-output-tokens".into())
        }
        StopReason::Refusal => Err("the model declined".into()),
        StopReason::Filtered => {
            Err("a content filter of the provider blocked the answer\nhint: rephrase the question".into())
        }
        StopReason::CutOff => Err("the answer ended before it was complete\nhint: ask again".into()),
    }
}

/// The number of attempts and their total cost.
#[derive(Default)]
struct AttemptCosts(Mutex<(u32, Option<Cost>)>);

impl EventSink for AttemptCosts {
    fn emit(&self, event: Event) {
        if let Event::ModelFinished { account, .. } = event {
            let mut spent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            spent.0 += 1;
            if let Some(cost) = account.cost {
                let sum = spent.1.unwrap_or_default().nano_usd.saturating_add(cost.nano_usd);
                spent.1 = Some(Cost { nano_usd: sum });
            }
        }
    }
}

fn print_json(answered: &QuestionOutcome, spent: &AttemptCosts, began: Instant) -> ExitCode {
    let QuestionOutcome { reply, failure, fit } = answered;
    let unfit = fit.as_ref().and_then(|fit| fit.as_ref().err());
    let failure = failure.as_ref();
    let (attempts, cost) = *spent.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (stop, other) = stop_name(&reply.stop);
    let usage = reply.usage.map(|usage| {
        json!({
            "input_tokens": usage.input, "output_tokens": usage.output, "cache_read_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write, "reasoning_tokens": usage.reasoning,
        })
    });
    let printed = json!({
        "model": reply.model,
        "text": reply.text(),
        "answer": fit.as_ref().and_then(|fit| fit.as_ref().ok()),
        "stop": if failure.is_some() { Value::Null } else { other.unwrap_or(stop).into() },
        "error_kind": failure.map(|error| error.kind.name()),
        "error": failure.map(|error| error.message.as_str()).or(unfit.map(String::as_str)),
        "usage": usage,
        "cost_nano_usd": cost.map(|cost| cost.nano_usd),
        "attempts": attempts,
        "latency_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        "notes": reply.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
    });
    let code = terminal::answer(&format!("{printed:#}"));
    match (failure, end(&reply.stop)) {
        _ if code != ExitCode::SUCCESS => code,
        (Some(error), _) => ExitReason::from(error.kind).into(),
        (None, Err(_)) => ExitReason::Failed.into(),
        (None, Ok(())) if unfit.is_some() => ExitReason::Failed.into(),
        (None, Ok(())) => ExitReason::Success.into(),
    }
}

fn stop_name(stop: &StopReason) -> (&'static str, Option<&str>) {
    match stop {
        StopReason::EndOfTurn => ("end_of_turn", None),
        StopReason::ToolCalls => ("tool_calls", None),
        StopReason::Length => ("length", None),
        StopReason::StopSequence => ("stop_sequence", None),
        StopReason::Refusal => ("refusal", None),
        StopReason::Filtered => ("filtered", None),
        StopReason::Paused => ("paused", None),
        StopReason::CutOff => ("cut_off", None),
        StopReason::Other(word) => ("other", Some(word)),
    }
}

pub(super) fn refused(error: &ModelsError) -> CliError {
    use haft_models::providers::SetupError;
    let exit = match error {
        ModelsError::NoModel | ModelsError::Name(_) | ModelsError::NoPrice { .. } => ExitReason::Usage,
        ModelsError::Setup { error: SetupError::NoKey { .. }, .. } => ExitReason::Unauthorized,
        ModelsError::Unknown { .. }
        | ModelsError::Variable { .. }
        | ModelsError::Setup { .. }
        | ModelsError::Command { .. } => ExitReason::Input,
        ModelsError::Client(error) => error.kind.into(),
    };
    (exit, hints::with(error, hints::models(error)))
}
