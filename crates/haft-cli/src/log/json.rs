//! Log lines for programs: events with the schema of `haft dev events --schema`, one per line.

use haft_core::event::Event;
use haft_core::event_log::{EventEnvelope, EventReader};

/// Selects whether log lines include the content of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogContent {
    /// Log lines contain only sizes, digests and decisions.
    Removed,
    /// Log lines also contain the texts of models, and the arguments and results of calls: the operator enabled content
    /// capture.
    Captured,
}

/// Converts events to log lines, and numbers the lines.
#[derive(Debug)]
pub(super) struct JsonLines {
    content: LogContent,
    reader: EventReader,
    seq: u64,
}

impl JsonLines {
    pub(super) fn new(content: LogContent) -> Self {
        Self { content, reader: EventReader::with_audit(), seq: 0 }
    }

    /// Returns the line of an event. Returns `None` for an event that programs do not see, and, without content
    /// capture, for an event that consists only of content.
    pub(super) fn line(&mut self, event: &Event, now_ms: u64) -> Option<String> {
        let (place, kind) = self.reader.read(event)?;
        let kind = match self.content {
            LogContent::Removed => kind.without_content()?,
            LogContent::Captured => kind,
        };
        let envelope = EventEnvelope::new(self.seq + 1, Some(now_ms), place, kind);
        let line = serde_json::to_string(&envelope).ok()?;
        self.seq += 1;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use haft_core::position::RunPosition;
    use haft_core::run::RunNote;
    use haft_core::run::event::RunEvent;
    use serde_json::{Value, json};

    use super::*;

    fn lines(content: LogContent) -> Vec<Value> {
        let note = RunNote::Refused { tool: "canary".into(), why: "canary".into() };
        let events = [RunEvent::Asked, RunEvent::Noted(note), RunEvent::Asked];
        let mut lines = JsonLines::new(content);
        let read =
            |event| lines.line(&Event::Run { place: RunPosition::default(), event: Arc::new(event) }, 5);
        events.into_iter().filter_map(read).map(|line| serde_json::from_str(&line).unwrap()).collect()
    }

    #[test]
    fn json_log_lines_have_sequence_number_and_time() {
        let lines = lines(LogContent::Removed);
        let types: Vec<&Value> = lines.iter().map(|line| &line["event"]["type"]).collect();
        assert_eq!(types, ["turn_started", "note", "turn_started"]);
        let numbers: Vec<(&Value, &Value)> = lines.iter().map(|line| (&line["seq"], &line["at"])).collect();
        assert_eq!(numbers, [(&json!(1), &json!(5)), (&json!(2), &json!(5)), (&json!(3), &json!(5))]);
    }

    #[test]
    fn json_log_omits_content_unless_captured() {
        let has_canary = |content| lines(content).iter().any(|line| line.to_string().contains("canary"));
        assert!(!has_canary(LogContent::Removed));
        assert!(has_canary(LogContent::Captured));
    }
}
