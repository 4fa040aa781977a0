//! Reads from the event log the output of interrupted calls of a run and its sub-agents.

use std::collections::HashMap;

use haft_core::event_log::{EventEnvelope, LogEvent};
use haft_core::position::SessionId;
use haft_core::tool::CallId;

/// The maximum number of bytes of a call's output that the model gets. The end of the output is kept, because it
/// usually tells more than the beginning.
const OUTPUT_BYTES_MAX: usize = 8 << 10;

/// The output of unfinished calls, by session and call id. The event log may store only a prefix of the model's call
/// id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartialOutputs(HashMap<String, HashMap<String, String>>);

impl PartialOutputs {
    /// Collects the partial output of calls that have no result event.
    pub fn of(events: &[EventEnvelope]) -> Self {
        let mut all: HashMap<String, HashMap<String, String>> = HashMap::new();
        for EventEnvelope { run, event, .. } in events {
            let outputs = all.entry(run.clone()).or_default();
            match &event.kind {
                LogEvent::ToolProgress { id, text } => {
                    let output = outputs.entry(id.clone()).or_default();
                    output.push_str(text);
                    keep_end(output);
                }
                // Drop the output with this id: the call has a result, or a new call in a later turn has the same id.
                LogEvent::ToolStarted { id, .. } | LogEvent::ToolResult { id, .. } => {
                    outputs.remove(id);
                }
                LogEvent::RunStarted { .. }
                | LogEvent::TurnStarted
                | LogEvent::TextDelta { .. }
                | LogEvent::ReasoningDelta { .. }
                | LogEvent::ReasoningSummaryDelta { .. }
                | LogEvent::RefusalDelta { .. }
                | LogEvent::Citations { .. }
                | LogEvent::ModelFinished { .. }
                | LogEvent::ToolCall { .. }
                | LogEvent::ToolFinished { .. }
                | LogEvent::ApprovalRequested { .. }
                | LogEvent::ApprovalDecided { .. }
                | LogEvent::Note { .. }
                | LogEvent::ContextCompacted { .. }
                | LogEvent::RunFinished { .. } => {}
            }
        }
        Self(all)
    }

    /// Returns the output of a call in a session; `None` if the call wrote nothing.
    pub fn of_call(&self, session: SessionId, call: &CallId) -> Option<&str> {
        let outputs = self.0.get(&session.to_string())?;
        let found =
            outputs.iter().find(|(id, text)| call.0.starts_with(id.as_str()) && !text.trim().is_empty());
        found.map(|(_, text)| text.trim_end())
    }
}

fn keep_end(output: &mut String) {
    let excess = output.len().saturating_sub(OUTPUT_BYTES_MAX);
    if excess > 0 {
        output.drain(..output.ceil_char_boundary(excess));
    }
}

#[cfg(test)]
mod tests {
    use haft_core::event_log::ToolSource;
    use haft_core::position::RunPosition;

    use super::*;

    const RUN: SessionId = SessionId(7);

    fn event(run: SessionId, kind: LogEvent) -> EventEnvelope {
        EventEnvelope::new(1, None, RunPosition::first(run), kind)
    }

    fn progress(id: &str, text: &str) -> LogEvent {
        LogEvent::ToolProgress { id: id.into(), text: text.into() }
    }

    fn started(id: &str) -> LogEvent {
        let source = ToolSource::default();
        LogEvent::ToolStarted { id: id.into(), operation: 1, tool: "bash".into(), waited_ms: 0, source }
    }

    #[test]
    fn partial_outputs_contain_only_unfinished_calls_of_the_session() {
        let result = LogEvent::ToolResult {
            id: "done".into(),
            tool: "bash".into(),
            is_error: false,
            error_kind: None,
            text: "x".into(),
            latency_ms: 1,
        };
        let events = [
            event(RUN, progress("done", "finished")),
            event(RUN, result),
            event(RUN, progress("again", "of an earlier turn")),
            event(RUN, started("again")),
            event(RUN, progress("again", "one\n")),
            event(SessionId(8), progress("again", "of another run")),
            event(RUN, progress("again", "two\n")),
        ];
        let found = PartialOutputs::of(&events);
        let of_call = |session: SessionId, id: &str| found.of_call(session, &CallId(id.into()));
        assert_eq!(of_call(RUN, "again-with-a-long-id"), Some("one\ntwo"));
        assert_eq!(of_call(RUN, "done"), None);
        assert_eq!(of_call(RUN, "other"), None);
        assert_eq!(of_call(SessionId(8), "again"), Some("of another run"));
        assert_eq!(of_call(SessionId(9), "again"), None);
    }

    #[test]
    fn partial_output_keeps_the_end_of_a_long_output() {
        let events =
            [event(RUN, progress("c", &"ä".repeat(OUTPUT_BYTES_MAX))), event(RUN, progress("c", "end"))];
        let found = PartialOutputs::of(&events);
        let text = found.of_call(RUN, &CallId("c".into())).unwrap();
        assert!(text.ends_with("äend") && text.len() <= OUTPUT_BYTES_MAX, "{}", text.len());
    }
}
