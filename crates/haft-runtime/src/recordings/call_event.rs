//! Call events in a recording: in the format of the event log, with additional details for a replay.

use std::sync::Arc;
use std::time::Duration;

use haft_core::digest::Digest;
use haft_core::event::{CallAccount, CallProgress, Event, ToolReference};
use haft_core::event_log::{EventEnvelope, EventReader, LogEvent};
use haft_core::position::{CallOperation, RunPosition};
use haft_core::provider::Principal;
use haft_core::result::ToolErrorKind;
use serde::{Deserialize, Serialize};

use super::line::{RecordedCallId, kind, micros};

/// A call event in a recording. Its number counts all events that watchers saw, including the events that the recording
/// does not store because a replay computes them again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CallEventLine {
    #[serde(flatten)]
    envelope: EventEnvelope,
    #[serde(default)]
    replay: ReplayDetails,
}

/// The details that only a replay needs: times in microseconds, the completed share of the work, and output separate
/// from messages.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct ReplayDetails {
    /// The time before the start, or the latency, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    progress: Option<RecordedProgress>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedProgress {
    Output,
    Message,
    /// The completed share of the work, from 0 to 1.
    Part(f64),
}

/// A line with a call event, in any version of the recording format.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum AnyCallEventLine {
    Current(Box<CallEventLine>),
    Old(OldCallEventLine),
}

/// A line with a call event, in version 2 or 3 of the recording format.
#[derive(Debug, Deserialize)]
pub(super) struct OldCallEventLine {
    #[serde(flatten)]
    which: RecordedCallId,
    what: RecordedCallEvent,
}

/// A call event, as a replay emits it. Versions 2 and 3 stored this type.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordedCallEvent {
    Started {
        tool: String,
        waited_us: u64,
    },
    Output(String),
    Message(String),
    Part {
        fraction: f64,
        message: Option<String>,
    },
    Finished {
        tool: String,
        failure: Option<String>,
        latency_us: u64,
        /// Older versions of the recording format do not contain this field.
        #[serde(default = "was_executed")]
        executed: bool,
        cached: bool,
        bytes_in: u64,
        bytes_out: u64,
    },
}

fn was_executed() -> bool {
    true
}

impl CallEventLine {
    /// Converts a call event; returns `None` for any other event.
    pub(super) fn of(seq: u64, event: &Event) -> Option<Self> {
        let replay = match event {
            Event::ToolStarted { waited: time, .. } | Event::ToolFinished { latency: time, .. } => {
                ReplayDetails { time_us: Some(micros(*time)), progress: None }
            }
            Event::ToolProgress { progress, .. } => {
                ReplayDetails { time_us: None, progress: Some(RecordedProgress::of(progress)) }
            }
            Event::ModelStarted { .. } | Event::ModelFinished { .. } | Event::Run { .. } => return None,
        };
        let (place, kind) = EventReader::default().read(event).or_else(|| part(event))?;
        Some(Self { envelope: EventEnvelope::new(seq, None, place, kind), replay })
    }

    fn into_event(self) -> Result<(RecordedCallId, RecordedCallEvent), String> {
        let Self { envelope: EventEnvelope { run, event, .. }, replay } = self;
        let time_us = |millis: u64| replay.time_us.unwrap_or(millis.saturating_mul(1_000));
        let (id, what) = match event.kind {
            LogEvent::ToolStarted { id, tool, waited_ms, .. } => {
                (id, RecordedCallEvent::Started { tool, waited_us: time_us(waited_ms) })
            }
            LogEvent::ToolProgress { id, text } => (id, replay.progress_event(text)),
            LogEvent::ToolFinished {
                id,
                tool,
                error_kind,
                latency_ms,
                executed,
                cached,
                bytes_in,
                bytes_out,
                ..
            } => {
                let (failure, latency_us) = (error_kind, time_us(latency_ms));
                let finished = RecordedCallEvent::Finished {
                    tool,
                    failure,
                    latency_us,
                    executed,
                    cached,
                    bytes_in,
                    bytes_out,
                };
                (id, finished)
            }
            other => {
                return Err(format!(
                    "expected a call event in the recording, such as `tool_started`; found {other:?}"
                ));
            }
        };
        Ok((RecordedCallId::new(run, event.turn, &id), what))
    }
}

impl ReplayDetails {
    fn progress_event(self, text: String) -> RecordedCallEvent {
        match self.progress {
            None | Some(RecordedProgress::Output) => RecordedCallEvent::Output(text),
            Some(RecordedProgress::Message) => RecordedCallEvent::Message(text),
            Some(RecordedProgress::Part(fraction)) => {
                RecordedCallEvent::Part { fraction, message: (!text.is_empty()).then_some(text) }
            }
        }
    }
}

impl RecordedProgress {
    fn of(progress: &CallProgress) -> Self {
        match progress {
            CallProgress::Output(_) => Self::Output,
            // A recording keeps the amount as the text of a message.
            CallProgress::Message(_) | CallProgress::Amount(_) => Self::Message,
            CallProgress::Part { fraction, .. } => Self::Part(*fraction),
        }
    }
}

/// Converts progress that is a fraction of the work. The event log does not contain such progress.
fn part(event: &Event) -> Option<(RunPosition, LogEvent)> {
    let Event::ToolProgress { operation, progress: CallProgress::Part { message, .. } } = event else {
        return None;
    };
    let (id, text) = (operation.call.0.clone(), message.clone().unwrap_or_default());
    Some((operation.place, LogEvent::ToolProgress { id, text }))
}

impl AnyCallEventLine {
    /// Returns the call and its event, or the reason why the line is not valid.
    pub(super) fn into_event(self) -> Result<(RecordedCallId, RecordedCallEvent), String> {
        match self {
            Self::Current(line) => line.into_event(),
            Self::Old(OldCallEventLine { which, what }) => Ok((which, what)),
        }
    }
}

impl RecordedCallEvent {
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::Finished { .. })
    }

    /// Returns the event that this line was recorded from.
    pub(super) fn event(&self, operation: &Arc<CallOperation>) -> Event {
        let operation = Arc::clone(operation);
        let progress = |progress| Event::ToolProgress { operation: Arc::clone(&operation), progress };
        match self {
            Self::Started { tool, waited_us } => {
                let (tool, waited) =
                    (ToolReference::Written(tool.clone()), Duration::from_micros(*waited_us));
                Event::ToolStarted { operation, tool, waited }
            }
            Self::Output(text) => progress(CallProgress::Output(text.clone())),
            Self::Message(text) => progress(CallProgress::Message(text.clone())),
            Self::Part { fraction, message } => {
                progress(CallProgress::Part { fraction: *fraction, message: message.clone() })
            }
            Self::Finished { tool, failure, latency_us, executed, cached, bytes_in, bytes_out } => {
                Event::ToolFinished {
                    operation,
                    tool: ToolReference::Written(tool.clone()),
                    failure: failure.as_deref().map(|name| kind(name).unwrap_or(ToolErrorKind::Failed)),
                    latency: Duration::from_micros(*latency_us),
                    account: account(*executed, *cached, (*bytes_in, *bytes_out)),
                    content: None,
                }
            }
        }
    }
}

/// Returns the account of a replayed call. The recording has neither the principal nor the decision about the call.
fn account(executed: bool, cached: bool, (bytes_in, bytes_out): (u64, u64)) -> CallAccount {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    CallAccount {
        principal: Principal::local(),
        executed,
        cached,
        untrusted: false,
        bytes_in: size(bytes_in),
        bytes_out: size(bytes_out),
        arguments: Digest::of_text(""),
        verdict: None,
        queue: None,
        handle: None,
    }
}

#[cfg(test)]
mod tests {
    use haft_core::position::{OperationId, SessionId};
    use haft_core::tool::CallId;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn operation() -> Arc<CallOperation> {
        let place = RunPosition { turn: 2, ..RunPosition::first(SessionId(7)) };
        Arc::new(CallOperation { id: OperationId(3), call: CallId("c".into()), place })
    }

    fn finished(failure: Option<ToolErrorKind>, latency: Duration, account: CallAccount) -> Event {
        let tool = ToolReference::Written("read".into());
        Event::ToolFinished { operation: operation(), tool, failure, latency, account, content: None }
    }

    fn progress(progress: CallProgress) -> Event {
        Event::ToolProgress { operation: operation(), progress }
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let time = || (0_u64..1 << 40).prop_map(Duration::from_micros);
        let started = time().prop_map(|waited| Event::ToolStarted {
            operation: operation(),
            tool: ToolReference::Written("read".into()),
            waited,
        });
        let kinds = prop::option::of(prop::sample::select(ToolErrorKind::ALL.to_vec()));
        let sizes = (any::<bool>(), any::<bool>(), (any::<u32>(), any::<u32>()));
        let finished = (kinds, time(), sizes).prop_map(|(failure, latency, (executed, cached, sizes))| {
            finished(failure, latency, account(executed, cached, (sizes.0.into(), sizes.1.into())))
        });
        let part = (0.0_f64..=1.0, prop::option::of(".+"));
        prop_oneof![
            started,
            ".*".prop_map(|text| progress(CallProgress::Output(text))),
            ".*".prop_map(|text| progress(CallProgress::Message(text))),
            part.prop_map(|(fraction, message)| progress(CallProgress::Part { fraction, message })),
            finished,
        ]
    }

    proptest! {
        #[test]
        fn recorded_call_event_is_restored_exactly(event in any_event()) {
            let text = serde_json::to_string(&CallEventLine::of(9, &event).unwrap()).unwrap();
            let line: AnyCallEventLine = serde_json::from_str(&text).unwrap();
            let (which, what) = line.into_event().unwrap();
            prop_assert_eq!(which, RecordedCallId::of(operation().place, &operation().call));
            prop_assert_eq!(what.event(&operation()), event);
        }
    }

    /// Other programs validate these lines with the schema of the event log.
    #[test]
    fn recorded_call_event_matches_the_schema_of_the_event_log() {
        let event = finished(None, Duration::from_micros(2_500), account(true, false, (3, 4)));
        let line = CallEventLine::of(9, &event).unwrap();
        let envelope: EventEnvelope = serde_json::from_value(serde_json::to_value(&line).unwrap()).unwrap();
        let (place, kind) = EventReader::default().read(&event).unwrap();
        assert_eq!(envelope, EventEnvelope::new(9, None, place, kind));
        assert_eq!(serde_json::to_value(&line).unwrap()["replay"], json!({"time_us": 2_500}));
    }

    #[test]
    fn call_events_of_older_recordings_are_read() {
        let check = |what: Value, expected: RecordedCallEvent| {
            let line = json!({"type": "event", "session": "s", "turn": 1, "call": "c", "what": what});
            let line: AnyCallEventLine = serde_json::from_value(line).unwrap();
            assert_eq!(line.into_event(), Ok((RecordedCallId::new("s".into(), 1, "c"), expected)));
        };
        check(json!({"output": "one\n"}), RecordedCallEvent::Output("one\n".into()));
        check(
            json!({"part": {"fraction": 0.5, "message": null}}),
            RecordedCallEvent::Part { fraction: 0.5, message: None },
        );
        let finished = json!({"tool": "t", "failure": null, "latency_us": 7, "cached": true, "bytes_in": 1, "bytes_out": 2});
        let (tool, failure) = ("t".into(), None);
        check(
            json!({"finished": finished}),
            RecordedCallEvent::Finished {
                tool,
                failure,
                latency_us: 7,
                executed: true,
                cached: true,
                bytes_in: 1,
                bytes_out: 2,
            },
        );
    }

    #[test]
    fn event_that_is_not_a_call_event_is_an_error() {
        let line =
            json!({"type": "event", "seq": 1, "run": "r", "event": {"turn": 1, "type": "turn_started"}});
        let line: AnyCallEventLine = serde_json::from_value(line).unwrap();
        assert!(line.into_event().unwrap_err().contains("expected a call event"));
    }
}
