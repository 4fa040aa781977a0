//! What goes to standard output: the answer, or what programs read. Its names are stable; `docs/agents.md` lists them.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use haft_core::event::{Event, EventSink, Progress};
use haft_core::internal::report_format::ReportFormat;
use haft_core::model_event::{Delta, ModelEvent, PartStart};
use haft_core::model_provider::{Attempt, ModelAccount};
use haft_core::model_reply::Usage;
use haft_core::place::{Place, SessionId};
use haft_core::result::ToolErrorKind;
use haft_core::run::RunNote;
use haft_core::run::event::{Answered, Began, RunEvent, Speaks};
use haft_core::run::finish::{Answer, Finish};
use serde_json::{Value, json};

use super::ending::{Summary, complaint};
use super::screen::note_in_words;
use crate::args::OutputFormat;
use crate::exit::Exit;
use crate::prose::Prose;
use crate::terminal;

/// Standard output of a run.
#[derive(Debug)]
pub(crate) struct Output {
    format: OutputFormat,
    /// Those of the run that has the request now.
    texts: Mutex<Texts>,
    reply: Mutex<Reply>,
    /// The kinds of parts of the replies that are arriving in sessions below.
    below: Mutex<HashMap<SessionId, Vec<Said>>>,
}

/// Where the words of a model go while it says them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Texts {
    /// To the terminal of the person who reads: an answer is seen as it is written.
    Streamed,
    /// Nowhere before the reply is whole. Only then it is known whether it is the answer, and nothing else may be in a
    /// pipe.
    Held,
}

/// The reply that is arriving.
#[derive(Debug, Default)]
struct Reply {
    kinds: Vec<Said>,
    prose: Prose,
    /// Whether a person has seen some of it.
    seen: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Text,
    Reasoning,
    Nothing,
}

impl Output {
    pub(super) fn new(format: OutputFormat) -> Self {
        let texts = Mutex::new(Texts::Held);
        Self { format, texts, reply: Mutex::default(), below: Mutex::default() }
    }

    /// Where the words go of the run that has the request now.
    pub(super) fn texts(&self) -> Texts {
        *self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, speaks: Speaks) {
        let texts = match speaks {
            Speaks::Answer => answer_texts(self.format),
            Speaks::Draft => Texts::Held,
        };
        *self.texts.lock().unwrap_or_else(PoisonError::into_inner) = texts;
    }

    /// The answer, and with JSON what there is to say about it.
    pub(super) fn end(&self, finish: &Finish, summary: &Summary) -> ExitCode {
        let result = || result(finish, summary);
        match self.format {
            OutputFormat::Text => self.end_text(finish),
            OutputFormat::Json => terminal::answer(&format!("{:#}", result())),
            OutputFormat::StreamJson => terminal::answer(&result().to_string()),
        }
    }

    fn end_text(&self, finish: &Finish) -> ExitCode {
        let mut reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner);
        if reply.seen {
            return terminal::written(reply.prose.end());
        }
        let Some(answer) = &finish.answer else { return Exit::Success.into() };
        let mut prose = prose_for(answer);
        terminal::written(prose.write(&answer.text()).and_then(|()| prose.end()))
    }

    /// What those below say is told to programs, and is no part of the answer.
    fn said(&self, place: Place, event: &ModelEvent) {
        if place.parent.is_some() {
            return self.said_below(place, event);
        }
        let mut reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            ModelEvent::Started { .. } => *reply = Reply::default(),
            ModelEvent::PartStarted { part, .. } => reply.kinds.push(kind(part)),
            ModelEvent::PartDelta { index, delta: Delta::Text(text) } => {
                let kind = reply.kinds.get(*index).copied().unwrap_or(Said::Nothing);
                self.delta(place, kind, text, &mut reply);
            }
            ModelEvent::PartDelta { delta: Delta::Annotation(_), .. }
            | ModelEvent::PartFinished { .. }
            | ModelEvent::Usage(_)
            | ModelEvent::Noted(_)
            | ModelEvent::Finished { .. } => {}
        }
    }

    fn said_below(&self, place: Place, event: &ModelEvent) {
        let mut below = self.below.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = below.entry(place.session).or_default();
        match event {
            ModelEvent::Started { .. } => kinds.clear(),
            ModelEvent::PartStarted { part, .. } => kinds.push(kind(part)),
            ModelEvent::PartDelta { index, delta: Delta::Text(text) } => match kinds.get(*index) {
                Some(Said::Text) => self.line(place, json!({"type": "text_delta", "text": text})),
                Some(Said::Reasoning) => self.line(place, json!({"type": "reasoning_delta", "text": text})),
                Some(Said::Nothing) | None => {}
            },
            ModelEvent::PartDelta { delta: Delta::Annotation(_), .. }
            | ModelEvent::PartFinished { .. }
            | ModelEvent::Usage(_)
            | ModelEvent::Noted(_)
            | ModelEvent::Finished { .. } => {}
        }
    }

    fn delta(&self, place: Place, kind: Said, text: &str, reply: &mut Reply) {
        match (self.format, kind) {
            (OutputFormat::StreamJson, Said::Text) => {
                self.line(place, json!({"type": "text_delta", "text": text}));
            }
            (OutputFormat::StreamJson, Said::Reasoning) => {
                self.line(place, json!({"type": "reasoning_delta", "text": text}));
            }
            (OutputFormat::Text, Said::Text) if self.texts() == Texts::Streamed => {
                let _ = reply.prose.write(text);
                reply.seen |= !text.is_empty();
            }
            (OutputFormat::Text | OutputFormat::Json | OutputFormat::StreamJson, _) => {}
        }
    }

    /// What comes next begins a line of its own.
    fn end_line(&self) {
        let mut reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner);
        if reply.seen {
            let _ = reply.prose.end();
        }
    }

    fn run_event(&self, place: Place, event: &RunEvent) {
        match event {
            RunEvent::Said(_) | RunEvent::Finished { .. } => {}
            RunEvent::Began(_)
            | RunEvent::Asked
            | RunEvent::Called(_)
            | RunEvent::Answered(_)
            | RunEvent::Noted(_) => self.end_line(),
        }
        if let (RunEvent::Began(began), None) = (event, place.parent) {
            self.begin(began.speaks);
        }
        match event {
            RunEvent::Began(Began { path, model, tools, .. }) => self.line(
                place,
                json!({"type": "run_started", "agents": path, "model": model, "tools": tools}),
            ),
            RunEvent::Said(ModelEvent::Noted(note)) if note.is_alarm() => {
                self.line(place, json!({"type": "note", "kind": "alarm", "text": note.to_string()}));
            }
            RunEvent::Said(event) => self.said(place, event),
            RunEvent::Asked => self.line(place, json!({"type": "turn_started"})),
            RunEvent::Called(call) => self.line(
                place,
                json!({
                    "type": "tool_call", "id": call.id.0, "tool": call.name,
                    "arguments": call.arguments.as_text(),
                }),
            ),
            RunEvent::Answered(Answered { call, name, failure, text, latency }) => self.line(
                place,
                json!({
                    "type": "tool_result", "id": call.0, "tool": name, "is_error": failure.is_some(),
                    "error_kind": failure.map(ToolErrorKind::name), "text": text, "latency_ms": millis(*latency),
                }),
            ),
            RunEvent::Noted(note) => self.line(place, noted(note)),
            RunEvent::Finished { finish, .. } if place.session != place.origin => {
                self.line(place, json!({"type": "run_finished", "finish": finish.reason.name()}));
            }
            // The result is the last line, and says more.
            RunEvent::Finished { .. } => {}
        }
    }

    /// Every line says in which session it was, and in which turn of it.
    fn line(&self, place: Place, mut value: Value) {
        if self.format == OutputFormat::StreamJson {
            value["session"] = place.session.to_string().into();
            value["turn"] = place.turn.into();
            line(&value);
        }
    }
}

impl EventSink for Output {
    fn emit(&self, event: Event) {
        match &event {
            Event::Run { place, event } => self.run_event(*place, event),
            Event::ModelFinished { place, attempt, account, .. } => {
                self.line(*place, attempted(attempt, account));
            }
            Event::ToolProgress { operation, progress: Progress::Output(text) | Progress::Message(text) } => {
                let id = &operation.call.0;
                self.line(operation.place, json!({"type": "tool_progress", "id": id, "text": text}));
            }
            Event::ToolProgress { progress: Progress::Part { .. }, .. }
            | Event::ToolStarted { .. }
            | Event::ToolFinished { .. }
            | Event::ModelStarted { .. } => {}
        }
    }
}

/// How an answer looks that was not seen while it was written.
fn prose_for(answer: &Answer) -> Prose {
    match answer {
        Answer::Text(_) => Prose::default(),
        Answer::Report(report) => match report.format {
            ReportFormat::Markdown | ReportFormat::SubAgent => Prose::default(),
            ReportFormat::Json | ReportFormat::SlackBlockKit | ReportFormat::Pipe | ReportFormat::Text => {
                Prose::plain()
            }
            // Its colours were looked at when it was taken.
            ReportFormat::Tty => Prose::coloured(),
        },
    }
}

/// Where words go that are the answer.
fn answer_texts(format: OutputFormat) -> Texts {
    let streams = format == OutputFormat::Text && std::io::stdout().is_terminal();
    if streams { Texts::Streamed } else { Texts::Held }
}

fn kind(part: &PartStart) -> Said {
    match part {
        PartStart::Text | PartStart::Refusal => Said::Text,
        PartStart::Reasoning => Said::Reasoning,
        PartStart::Call { .. }
        | PartStart::Image(_)
        | PartStart::Audio(_)
        | PartStart::File { .. }
        | PartStart::Opaque => Said::Nothing,
    }
}

fn attempted(attempt: &Attempt, account: &ModelAccount) -> Value {
    json!({
        "type": "model_finished", "model": format!("{}/{}", attempt.provider, attempt.model), "attempt": attempt.number,
        "error_kind": account.failure.map(haft_core::model_error::ModelErrorKind::name),
        "latency_ms": millis(account.latency), "usage": account.usage.map(usage),
        "cost_nano_usd": account.cost.map(|cost| cost.nano_usd),
    })
}

fn noted(note: &RunNote) -> Value {
    let mut value = json!({"type": "note", "kind": note.name(), "text": note_in_words(note)});
    if let RunNote::Status(status) = note {
        value["status"] = json!({
            "status": status.state.name(), "done": status.done, "pending": status.pending, "now": status.now,
            "ready_for_final_report": status.ready_for_final_report,
            "need_to_run_more_tools": status.need_to_run_more_tools,
        });
    }
    value
}

fn result(finish: &Finish, summary: &Summary) -> Value {
    let report = match &finish.answer {
        Some(Answer::Report(report)) => Some(report),
        Some(Answer::Text(_)) | None => None,
    };
    let structured = report.and_then(|report| match &report.content {
        haft_core::internal::final_report::ReportContent::Json(value) => Some(value.clone()),
        haft_core::internal::final_report::ReportContent::Text(_) => None,
    });
    json!({
        "type": "result",
        "session": summary.session.to_string(),
        "finish": finish.reason.name(),
        "is_error": summary.exit != Exit::Success,
        "exit_code": summary.exit.code(),
        "answer": finish.answer.as_ref().map(Answer::text),
        "answer_json": structured,
        "status": report.map(|report| report.status.name()),
        "metadata": report.map(|report| &report.metadata),
        "ts": finish.ended_ms,
        "error": complaint(finish, summary.exit),
        "turns": summary.turns,
        "tool_calls": summary.bill.calls,
        "requests": summary.bill.requests,
        "usage": usage(summary.bill.usage),
        "cost_nano_usd": summary.bill.cost.nano_usd,
        "unpriced_requests": summary.bill.unpriced,
        "duration_ms": millis(summary.took),
    })
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input, "output_tokens": usage.output, "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write, "reasoning_tokens": usage.reasoning,
    })
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A reader that went away is noticed elsewhere, and ends the run.
fn line(value: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{value}").and_then(|()| out.flush());
}
