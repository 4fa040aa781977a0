//! The standard output of a run: the answer, or events for programs. `docs/agents.md` lists the event names, which are
//! stable.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haft_core::event::{Event, EventSink};
use haft_core::event_log::{EventEnvelope, EventReader, LogEvent, LogUsage};
use haft_core::internal_tools::final_report::ReportContent;
use haft_core::internal_tools::report_format::ReportFormat;
use haft_core::model_event::{ModelEvent, PartDelta, PartStart};
use haft_core::position::RunPosition;
use haft_core::run::event::{RunEvent, RunStart, TextPurpose};
use haft_core::run::finish::{RunAnswer, RunFinish};
use serde_json::{Value, json};

use super::summary::{RunSummary, complaint};
use crate::answer_writer::AnswerWriter;
use crate::args::OutputFormat;
use crate::exit::ExitReason;
use crate::terminal;

/// The standard output of a run.
#[derive(Debug)]
pub(crate) struct RunOutput {
    format: OutputFormat,
    /// The destination of model text in the current root run.
    texts: Mutex<TextDestination>,
    reply: Mutex<ArrivingReply>,
    stream: Mutex<JsonEventStream>,
}

/// The numbered events that programs read.
#[derive(Debug, Default)]
struct JsonEventStream {
    reader: EventReader,
    seq: u64,
}

/// The destination of model text while it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextDestination {
    /// The text is written to the user's terminal as it arrives.
    Streamed,
    /// The text is held back until the reply is complete. Only then is it known to be the answer, and a pipe gets only
    /// the answer.
    Held,
}

/// The model reply that is arriving.
#[derive(Debug, Default)]
struct ArrivingReply {
    /// For each part, true if it is text.
    texts: Vec<bool>,
    prose: AnswerWriter,
    /// True once the user has seen a part of the reply.
    seen: bool,
}

impl RunOutput {
    pub(super) fn new(format: OutputFormat) -> Self {
        let texts = Mutex::new(TextDestination::Held);
        Self { format, texts, reply: Mutex::default(), stream: Mutex::default() }
    }

    /// Returns the destination of model text in the current root run.
    pub(super) fn texts(&self) -> TextDestination {
        *lock(&self.texts)
    }

    /// Returns true while a line of streamed text is not complete.
    pub(super) fn is_mid_line(&self) -> bool {
        let reply = lock(&self.reply);
        reply.seen && reply.prose.is_mid_line()
    }

    fn begin(&self, speaks: TextPurpose) {
        *lock(&self.texts) = match speaks {
            TextPurpose::Answer => answer_texts(self.format),
            TextPurpose::Draft => TextDestination::Held,
        };
    }

    /// Writes the answer and, for JSON output, the cost and usage of the run.
    pub(super) fn end(&self, finish: &RunFinish, summary: &RunSummary) -> ExitCode {
        // The answer was not streamed, so the status line is still in the row where the answer begins.
        terminal::clear_status_line();
        match self.format {
            OutputFormat::Text => self.end_text(finish),
            OutputFormat::Json => {
                let mut result = result(finish, summary);
                result["session"] = summary.session.to_string().into();
                terminal::answer(&format!("{result:#}"))
            }
            OutputFormat::StreamJson => {
                let (seq, run) = (self.next_seq(), summary.session.to_string());
                let event = result(finish, summary);
                terminal::answer(&json!({"seq": seq, "run": run, "event": event}).to_string())
            }
        }
    }

    fn end_text(&self, finish: &RunFinish) -> ExitCode {
        let mut reply = lock(&self.reply);
        if reply.seen {
            return terminal::written(reply.prose.end());
        }
        let Some(answer) = &finish.answer else { return ExitReason::Success.into() };
        let mut prose = prose_for(answer);
        terminal::written(prose.write(&answer.text()).and_then(|()| prose.end()))
    }

    fn next_seq(&self) -> u64 {
        let mut stream = lock(&self.stream);
        stream.seq += 1;
        stream.seq
    }

    /// Shows the text of the root run as it arrives. The text of sub-agents is not part of the answer.
    fn show(&self, place: RunPosition, event: &RunEvent) {
        match event {
            RunEvent::Model(event) if place.parent.is_none() => self.model_event(event),
            RunEvent::Model(_) | RunEvent::Finished { .. } => {}
            RunEvent::Began(RunStart { speaks, .. }) => {
                self.end_line();
                if place.parent.is_none() {
                    self.begin(*speaks);
                }
            }
            RunEvent::Asked | RunEvent::Called(_) | RunEvent::Answered(_) | RunEvent::Noted(_) => {
                self.end_line();
            }
        }
    }

    fn model_event(&self, event: &ModelEvent) {
        let mut reply = lock(&self.reply);
        match event {
            ModelEvent::Started { .. } => *reply = ArrivingReply::default(),
            ModelEvent::PartStarted { part, .. } => {
                reply.texts.push(matches!(part, PartStart::Text | PartStart::Refusal));
            }
            ModelEvent::PartDelta { index, delta: PartDelta::Text(text) } => {
                if reply.texts.get(*index) == Some(&true) && self.texts() == TextDestination::Streamed {
                    // Clear this row first: it still contains the status line of the wait for the model.
                    terminal::clear_status_line();
                    let _ = reply.prose.write(text);
                    reply.seen |= !text.is_empty();
                }
            }
            ModelEvent::PartDelta {
                delta: PartDelta::Annotation(_) | PartDelta::Summary(_) | PartDelta::SummaryBreak,
                ..
            }
            | ModelEvent::PartFinished { .. }
            | ModelEvent::Usage(_)
            | ModelEvent::Noted(_)
            | ModelEvent::Finished { .. } => {}
        }
    }

    /// Ends a line of streamed text, so that the next output begins on a new line.
    fn end_line(&self) {
        let mut reply = lock(&self.reply);
        if reply.seen {
            let _ = reply.prose.end();
        }
    }

    /// Writes an event for programs. Omits times, operation numbers and the accounts of calls: a recording does not
    /// contain them, and a replay must write the same bytes.
    fn stream(&self, event: &Event) {
        let mut stream = lock(&self.stream);
        let Some((place, kind)) = stream.reader.read(event) else { return };
        if let LogEvent::ToolStarted { .. } | LogEvent::ToolFinished { .. } = kind {
            return;
        }
        stream.seq += 1;
        let envelope = EventEnvelope { parent: None, ..EventEnvelope::new(stream.seq, None, place, kind) };
        write_line(&envelope);
    }
}

impl EventSink for RunOutput {
    fn emit(&self, event: Event) {
        match self.format {
            OutputFormat::StreamJson => self.stream(&event),
            OutputFormat::Text => {
                if let Event::Run { place, event } = &event {
                    self.show(*place, event);
                }
            }
            OutputFormat::Json => {}
        }
    }
}

/// Returns the writer for an answer that was not streamed.
fn prose_for(answer: &RunAnswer) -> AnswerWriter {
    match answer {
        RunAnswer::Text(_) => AnswerWriter::default(),
        RunAnswer::Report(report) => match report.format {
            ReportFormat::Markdown | ReportFormat::SubAgent => AnswerWriter::default(),
            ReportFormat::Json | ReportFormat::SlackBlockKit | ReportFormat::Pipe | ReportFormat::Text => {
                AnswerWriter::plain()
            }
            // The escape sequences were checked when the report was accepted.
            ReportFormat::Tty => AnswerWriter::coloured(),
        },
    }
}

/// Returns the destination of text that belongs to the answer.
fn answer_texts(format: OutputFormat) -> TextDestination {
    let streams = format == OutputFormat::Text && std::io::stdout().is_terminal();
    if streams { TextDestination::Streamed } else { TextDestination::Held }
}

fn result(finish: &RunFinish, summary: &RunSummary) -> Value {
    let report = match &finish.answer {
        Some(RunAnswer::Report(report)) => Some(report),
        Some(RunAnswer::Text(_)) | None => None,
    };
    let structured = report.and_then(|report| match &report.content {
        ReportContent::Json(value) => Some(value.clone()),
        ReportContent::Text(_) => None,
    });
    json!({
        "type": "result",
        "finish": finish.reason.name(),
        "is_error": summary.exit != ExitReason::Success,
        "exit_code": summary.exit.code(),
        "answer": finish.answer.as_ref().map(RunAnswer::text),
        "answer_json": structured,
        "status": report.map(|report| report.status.name()),
        "metadata": report.map(|report| &report.metadata),
        "ts": finish.ended_ms,
        "error": complaint(finish, summary.exit).map(|error| error.to_string()),
        "turns": summary.turns,
        "tool_calls": summary.bill.calls,
        "requests": summary.bill.requests,
        "usage": LogUsage::from(summary.bill.usage),
        "cost_nano_usd": summary.bill.cost.nano_usd,
        "unpriced_requests": summary.bill.unpriced,
        "duration_ms": millis(summary.took),
    })
}

/// Returns the result of a run that could not start, for programs; `None` for an output format that users read.
pub(super) fn not_started(format: OutputFormat, exit: ExitReason, message: &str) -> Option<String> {
    let result = json!({
        "type": "result", "finish": null, "is_error": true, "exit_code": exit.code(), "answer": null,
        "error": message,
    });
    match format {
        OutputFormat::Text => None,
        OutputFormat::Json => Some(format!("{result:#}")),
        OutputFormat::StreamJson => Some(json!({"seq": 1, "run": null, "event": result}).to_string()),
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Writes one line. Ignores an error, because a closed pipe is detected elsewhere and ends the run.
fn write_line(envelope: &EventEnvelope) {
    let mut out = std::io::stdout().lock();
    let written = serde_json::to_writer(&mut out, envelope).map_err(std::io::Error::from);
    let _ = written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
