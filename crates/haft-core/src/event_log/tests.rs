use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::approval::ApprovalId;
use crate::digest::Digest;
use crate::tool::CallId;

/// One event of every kind.
fn samples() -> Vec<LogEvent> {
    let usage = LogUsage::from(Usage { input: 1, output: 2, ..Usage::default() });
    let text = || "x".to_owned();
    let place = Place::first(SessionId(1));
    let request = ApprovalRequest {
        id: ApprovalId::of_call(place, &CallId("c".into())),
        place,
        tool: text(),
        arguments: serde_json::Map::new(),
        workspace: "/w".into(),
        digest: Digest::of_text(""),
        rules: Vec::new(),
        why: text(),
    };
    vec![
        LogEvent::RunStarted { agents: vec![text()], model: text(), tools: vec![] },
        LogEvent::TurnStarted,
        LogEvent::TextDelta { text: text() },
        LogEvent::ReasoningDelta { text: text() },
        LogEvent::ModelFinished {
            model: text(),
            attempt: 1,
            error_kind: None,
            latency_ms: 1,
            usage: Some(usage),
            cost_nano_usd: None,
        },
        LogEvent::ToolCall { id: text(), tool: text(), arguments: text() },
        LogEvent::ToolStarted { id: text(), operation: 1, tool: text(), waited_ms: 0 },
        LogEvent::ToolProgress { id: text(), text: text() },
        LogEvent::ToolResult {
            id: text(),
            tool: text(),
            is_error: true,
            error_kind: Some(text()),
            text: text(),
            latency_ms: 1,
        },
        LogEvent::ToolFinished {
            id: text(),
            operation: 1,
            tool: text(),
            error_kind: None,
            latency_ms: 1,
            executed: true,
            cached: false,
            bytes_in: 1,
            bytes_out: 2,
        },
        LogEvent::approval_requested(&request),
        LogEvent::ApprovalDecided { approval: request.id.to_string(), allowed: true },
        LogEvent::Note { kind: text(), text: text(), status: Some(json!({})) },
        LogEvent::RunFinished { finish: text(), answer: None },
    ]
}

fn envelope(seq: u64, kind: LogEvent) -> EventEnvelope {
    EventEnvelope::new(seq, Some(7), Place::first(SessionId(1)), kind)
}

#[test]
fn every_kind_of_event_fits_the_schema_and_survives_json() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for (at, kind) in samples().into_iter().enumerate() {
        let envelope = envelope(at as u64 + 1, kind);
        let value = serde_json::to_value(&envelope).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{value}: {errors:?}");
        assert_eq!(serde_json::from_value::<EventEnvelope>(value).unwrap(), envelope);
    }
}

#[test]
fn the_schema_names_every_kind_and_no_other() {
    let names: Vec<String> = schema()["properties"]["event"]["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kind| kind["properties"]["type"]["const"].as_str().unwrap().to_owned())
        .collect();
    let written: Vec<String> = samples()
        .into_iter()
        .map(|kind| serde_json::to_value(kind).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, written);
}

#[test]
fn an_event_without_a_field_does_not_fit_the_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for kind in samples() {
        let mut value = serde_json::to_value(envelope(1, kind)).unwrap();
        value["event"].as_object_mut().unwrap().remove("turn");
        assert!(!validator.is_valid(&value), "{value}");
    }
}

#[test]
fn deltas_are_read_by_the_kind_of_their_part_and_session() {
    let mut reader = EventReader::default();
    let (one, other) = (Place::first(SessionId(1)), Place::first(SessionId(2)));
    let mut read = |place: Place, event: ModelEvent| {
        reader.read(&Event::Run { place, event: Arc::new(RunEvent::Said(event)) }).map(|(_, kind)| kind)
    };
    let start = |index, part| ModelEvent::PartStarted { index, part, mark: None };
    let delta = |index| ModelEvent::PartDelta { index, delta: Delta::Text("t".into()) };
    assert_eq!(read(one, start(0, PartStart::Reasoning)), None);
    assert_eq!(read(one, start(1, PartStart::Text)), None);
    assert_eq!(read(other, start(0, PartStart::Text)), None);
    assert_eq!(read(one, delta(0)), Some(LogEvent::ReasoningDelta { text: "t".into() }));
    assert_eq!(read(one, delta(1)), Some(LogEvent::TextDelta { text: "t".into() }));
    assert_eq!(read(other, delta(0)), Some(LogEvent::TextDelta { text: "t".into() }));
    assert_eq!(read(other, delta(1)), None, "a part that never started");
}

#[test]
fn events_without_content_keep_no_text_of_models_tools_or_people() {
    for kind in samples() {
        let Some(kept) = kind.without_content() else { continue };
        let text = serde_json::to_string(&kept).unwrap();
        assert!(!matches!(kept, LogEvent::TextDelta { .. } | LogEvent::ToolResult { .. }), "{text}");
        if let LogEvent::Note { text, status, .. } = kept {
            assert!(text.is_empty() && status.is_none());
        }
    }
}
