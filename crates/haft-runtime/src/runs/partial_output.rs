//! The output that interrupted calls had written, from the event log of their run.

use std::collections::HashMap;

use haft_core::event_log::{EventEnvelope, LogEvent};
use haft_core::position::SessionId;
use haft_core::tool::CallId;

/// The most bytes of a call's output that the model gets; the end of an output says more than its beginning.
const OUTPUT_BYTES_MAX: usize = 8 << 10;

/// The unfinished output of calls, by the ids in the event log, which may be prefixes of the model's ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartialOutputs(HashMap<String, String>);

impl PartialOutputs {
    /// Collects the output of the calls of one run that have no result among the events.
    pub fn of(events: &[EventEnvelope], run: SessionId) -> Self {
        let run = run.to_string();
        let mut outputs = HashMap::new();
        for EventEnvelope { event, .. } in events.iter().filter(|event| event.run == run) {
            match &event.kind {
                LogEvent::ToolProgress { id, text } => {
                    let output: &mut String = outputs.entry(id.clone()).or_default();
                    output.push_str(text);
                    keep_end(output);
                }
                // A model may use the same id again in a later turn.
                LogEvent::ToolStarted { id, .. } | LogEvent::ToolResult { id, .. } => {
                    outputs.remove(id);
                }
                LogEvent::RunStarted { .. }
                | LogEvent::TurnStarted
                | LogEvent::TextDelta { .. }
                | LogEvent::ReasoningDelta { .. }
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
        Self(outputs)
    }

    /// Returns the output of a call; `None` if it wrote nothing.
    pub fn of_call(&self, call: &CallId) -> Option<&str> {
        let found =
            self.0.iter().find(|(id, text)| call.0.starts_with(id.as_str()) && !text.trim().is_empty());
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
    fn only_output_of_unfinished_calls_of_the_run_is_found() {
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
        let found = PartialOutputs::of(&events, RUN);
        assert_eq!(found.of_call(&CallId("again-with-a-long-id".into())), Some("one\ntwo"));
        assert_eq!(found.of_call(&CallId("done".into())), None);
        assert_eq!(found.of_call(&CallId("other".into())), None);
    }

    #[test]
    fn long_output_keeps_its_end() {
        let events =
            [event(RUN, progress("c", &"ä".repeat(OUTPUT_BYTES_MAX))), event(RUN, progress("c", "end"))];
        let found = PartialOutputs::of(&events, RUN);
        let text = found.of_call(&CallId("c".into())).unwrap();
        assert!(text.ends_with("äend") && text.len() <= OUTPUT_BYTES_MAX, "{}", text.len());
    }
}
