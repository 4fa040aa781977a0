use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::approval::{ApprovalAnswer as Approval, ApprovalId};
use crate::conversation::{Annotation, ModelApiFormat, UrlCitation};
use crate::digest::Digest;
use crate::event::{ApprovalOutcome, CapturedContent, KnownTool, PolicyDecision};
use crate::model_event::{PartDelta, PartStart};
use crate::model_provider::AttemptFollowUp;
use crate::name::{Namespace, QueueName, ToolName};
use crate::naming::ToolIdentity;
use crate::position::CallOperation;
use crate::principal::Principal;
use crate::provider::ProviderKind;
use crate::rules::PermissionDecision;
use crate::tool::CallId;

/// Returns one event of every kind.
fn samples() -> Vec<LogEvent> {
    let usage = LogUsage::from(TokenUsage { input: 1, output: 2, ..TokenUsage::default() });
    let text = || "x".to_owned();
    let place = RunPosition::first(SessionId(1));
    let request = ApprovalRequest {
        id: ApprovalId::of_call(place, &CallId("c".into())),
        place,
        tool: text(),
        arguments: serde_json::Map::new(),
        workspace: "/w".into(),
        digest: Digest::of_text(""),
        rules: Vec::new(),
        prefix: None,
        why: text(),
    };
    vec![
        LogEvent::RunStarted { agents: vec![text()], model: text(), tools: vec![] },
        LogEvent::TurnStarted,
        LogEvent::TextDelta { text: text() },
        LogEvent::ReasoningDelta { text: text() },
        LogEvent::ReasoningSummaryDelta { part: 0, text: text() },
        LogEvent::RefusalDelta { text: text() },
        LogEvent::Citations {
            citations: vec![LogCitation { url: text(), title: Some(text()), start: 0, end: 1 }],
        },
        LogEvent::ModelFinished {
            model: text(),
            attempt: 1,
            error_kind: None,
            latency_ms: 1,
            usage: Some(usage),
            cost_nano_usd: None,
            audit: None,
        },
        LogEvent::ToolCall { id: text(), tool: text(), arguments: text() },
        LogEvent::ToolStarted {
            id: text(),
            operation: 1,
            tool: text(),
            waited_ms: 0,
            source: ToolSource::default(),
        },
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
            audit: None,
            content: None,
        },
        LogEvent::approval_requested(&request),
        LogEvent::ApprovalDecided { approval: request.id.to_string(), allowed: true },
        LogEvent::Note {
            kind: text(),
            text: text(),
            status: Some(json!({})),
            reply: Some("continued".into()),
        },
        LogEvent::ContextCompacted {
            before_tokens: 2,
            after_tokens: 1,
            scope: "turns".into(),
            items: 3,
            summary: Some(text()),
        },
        LogEvent::RunFinished { finish: text(), answer: None },
    ]
}

fn envelope(seq: u64, kind: LogEvent) -> EventEnvelope {
    EventEnvelope::new(seq, Some(7), RunPosition::first(SessionId(1)), kind)
}

#[test]
fn every_event_kind_matches_the_schema_and_round_trips() {
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
fn schema_lists_exactly_the_event_kinds() {
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
fn event_without_turn_fails_the_schema() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for kind in samples() {
        let mut value = serde_json::to_value(envelope(1, kind)).unwrap();
        value["event"].as_object_mut().unwrap().remove("turn");
        assert!(!validator.is_valid(&value), "{value}");
    }
}

#[test]
fn delta_event_has_the_kind_of_its_part_even_if_sessions_interleave() {
    let mut reader = EventReader::default();
    let (one, other) = (RunPosition::first(SessionId(1)), RunPosition::first(SessionId(2)));
    let mut read = |place: RunPosition, event: ModelEvent| {
        reader.read(&Event::Run { place, event: Arc::new(RunEvent::Model(event)) }).map(|(_, kind)| kind)
    };
    let start = |index, part| ModelEvent::PartStarted { index, part, mark: None };
    let delta = |index| ModelEvent::PartDelta { index, delta: PartDelta::Text("t".into()) };
    assert_eq!(read(one, start(0, PartStart::Reasoning)), None);
    assert_eq!(read(one, start(1, PartStart::Text)), None);
    assert_eq!(read(other, start(0, PartStart::Text)), None);
    assert_eq!(read(one, delta(0)), Some(LogEvent::ReasoningDelta { text: "t".into() }));
    assert_eq!(read(one, delta(1)), Some(LogEvent::TextDelta { text: "t".into() }));
    assert_eq!(read(other, delta(0)), Some(LogEvent::TextDelta { text: "t".into() }));
    assert_eq!(read(other, delta(1)), None, "a delta of a part without a start is dropped");
}

/// Reads the events of one reply.
fn read_reply(events: impl IntoIterator<Item = ModelEvent>) -> Vec<LogEvent> {
    let (mut reader, place) = (EventReader::default(), RunPosition::first(SessionId(1)));
    let read = |event| reader.read(&Event::Run { place, event: Arc::new(RunEvent::Model(event)) });
    events.into_iter().filter_map(read).map(|(_, kind)| kind).collect()
}

fn start(index: usize, part: PartStart) -> ModelEvent {
    ModelEvent::PartStarted { index, part, mark: None }
}

fn delta(index: usize, delta: PartDelta) -> ModelEvent {
    ModelEvent::PartDelta { index, delta }
}

fn end(index: usize) -> ModelEvent {
    ModelEvent::PartFinished { index, mark: None }
}

#[test]
fn refusals_and_summary_paragraphs_have_events_of_their_own() {
    let found = read_reply([
        start(0, PartStart::Reasoning),
        delta(0, PartDelta::Summary("a".into())),
        delta(0, PartDelta::Summary("b".into())),
        delta(0, PartDelta::SummaryBreak),
        delta(0, PartDelta::Summary("c".into())),
        end(0),
        start(1, PartStart::Reasoning),
        delta(1, PartDelta::Summary("d".into())),
        delta(1, PartDelta::Text("raw".into())),
        start(2, PartStart::Refusal),
        delta(2, PartDelta::Text("No.".into())),
    ]);
    let summary = |part, text: &str| LogEvent::ReasoningSummaryDelta { part, text: text.into() };
    let expected = [
        summary(0, "a"),
        summary(0, "b"),
        summary(1, "c"),
        summary(2, "d"),
        LogEvent::ReasoningDelta { text: "raw".into() },
        LogEvent::RefusalDelta { text: "No.".into() },
    ];
    assert_eq!(found, expected);
}

#[test]
fn citations_follow_their_text_and_count_the_characters_of_the_whole_reply() {
    let cited = |url: &str, range| {
        let citations = vec![UrlCitation { url: url.into(), title: None, range }];
        PartDelta::Annotation(Annotation { format: ModelApiFormat::Anthropic, json: "{}".into(), citations })
    };
    let found = read_reply([
        start(0, PartStart::Text),
        delta(0, PartDelta::Text("Grüße ".into())),
        end(0),
        start(1, PartStart::Text),
        delta(1, cited("whole", None)),
        delta(1, cited("part", Some(1..3))),
        delta(1, cited("outside", Some(90..99))),
        delta(1, PartDelta::Text("für".into())),
        end(1),
        delta(1, cited("late", None)),
    ]);
    let texts = found.iter().filter(|event| matches!(event, LogEvent::TextDelta { .. })).count();
    let citation = |url: &str, start, end| LogCitation { url: url.into(), title: None, start, end };
    let expected = [
        LogEvent::Citations {
            citations: vec![citation("whole", 6, 9), citation("part", 7, 9), citation("outside", 9, 9)],
        },
        LogEvent::Citations { citations: vec![citation("late", 6, 9)] },
    ];
    assert_eq!((texts, &found[2..]), (2, &expected[..]));
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

/// Returns events with every optional field: a sub-agent's call that needed approval, with its content, and a failed
/// attempt.
fn audited_events() -> [Event; 3] {
    let place = RunPosition::first(SessionId(1)).below(SessionId(2), OperationId(3));
    let operation = Arc::new(CallOperation { id: OperationId(4), call: CallId("c".into()), place });
    let identity = ToolIdentity {
        kind: ProviderKind::Builtin,
        namespace: Namespace::new("builtin").unwrap(),
        tool: ToolName::new("bash").unwrap(),
    };
    let known = KnownTool { exposed: ToolName::new("bash").unwrap(), identity, description: "".into() };
    let tool = ToolReference::Known(Arc::new(known));
    let consent = Some(ApprovalOutcome::Answered { approver: "terminal", answer: Approval::AllowOnce });
    let account = CallAccount {
        principal: Principal::local(),
        executed: true,
        cached: false,
        untrusted: false,
        bytes_in: 1,
        bytes_out: 2,
        arguments: Digest::of_text("{}"),
        verdict: Some(PolicyDecision {
            decision: PermissionDecision::Ask,
            rule: Some("ask bash".into()),
            consent,
        }),
        queue: Some(QueueName::new("slow").unwrap()),
        handle: Some("session-1/2".into()),
    };
    let said = CapturedContent { arguments: "canary in".into(), result: "canary out".into() };
    let model = ModelAccount {
        failure: Some(ModelErrorKind::Overloaded),
        latency: Duration::from_millis(9),
        first_event: Some(Duration::from_millis(5)),
        usage: None,
        cost: None,
        next: AttemptFollowUp::Retry { after: Duration::from_millis(7) },
    };
    [
        Event::ToolStarted { operation: Arc::clone(&operation), tool: tool.clone(), waited: Duration::ZERO },
        Event::ToolFinished {
            operation,
            tool,
            failure: None,
            latency: Duration::from_millis(1),
            account,
            content: Some(Arc::new(said)),
        },
        Event::ModelFinished {
            id: "r".into(),
            place,
            attempt: ModelAttempt { provider: "p".into(), model: "m".into(), number: 1 },
            principal: Principal::local(),
            account: model,
        },
    ]
}

/// Returns the field names of an event, in order.
fn fields(kind: &LogEvent) -> Vec<String> {
    let Value::Object(fields) = serde_json::to_value(kind).unwrap() else {
        panic!("{kind:?} is not an object")
    };
    fields.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn only_an_event_reader_with_audit_fills_the_audit_fields() {
    let (mut plain, mut audited) = (EventReader::default(), EventReader::with_audit());
    let events = audited_events();
    let audit = [
        vec!["provider_kind", "namespace"],
        vec![
            "principal",
            "arguments_digest",
            "provider_kind",
            "namespace",
            "origin",
            "decision",
            "rule",
            "approver",
            "answer",
            "queue",
            "handle",
            "arguments",
            "result",
        ],
        vec!["principal", "request_id", "first_event_ms", "retry_after_ms"],
    ];
    for (event, audit) in events.iter().zip(audit) {
        let (all, (_, few)) = (audited.read(event).unwrap().1, plain.read(event).unwrap());
        let added: Vec<String> =
            fields(&all).into_iter().filter(|name| !fields(&few).contains(name)).collect();
        let mut expected: Vec<&str> = audit;
        let mut added: Vec<&str> = added.iter().map(String::as_str).collect();
        expected.sort_unstable();
        added.sort_unstable();
        assert_eq!(added, expected, "{all:?}");
    }
}

#[test]
fn events_with_audit_fields_match_the_schema_and_round_trip() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let mut reader = EventReader::with_audit();
    for event in &audited_events() {
        let (place, kind) = reader.read(event).unwrap();
        let envelope = EventEnvelope::new(1, Some(7), place, kind);
        let value = serde_json::to_value(&envelope).unwrap();
        assert!(validator.is_valid(&value), "{value}");
        assert_eq!(serde_json::from_value::<EventEnvelope>(value).unwrap(), envelope);
    }
}

#[test]
fn event_schema_describes_every_field() {
    let kinds = schema()["properties"]["event"]["oneOf"].clone();
    let mut reader = EventReader::with_audit();
    let audited = audited_events().into_iter().filter_map(|event| Some(reader.read(&event)?.1));
    for written in samples().into_iter().chain(audited) {
        let name = serde_json::to_value(&written).unwrap()["type"].clone();
        let mut described = kinds.as_array().unwrap().iter().map(|kind| &kind["properties"]);
        let described = described.find(|kind| kind["type"]["const"] == name).unwrap();
        for field in fields(&written) {
            assert!(described.get(&field).is_some(), "{name}: {field}");
        }
    }
}

#[test]
fn event_without_content_has_no_captured_arguments_or_results() {
    let mut reader = EventReader::with_audit();
    for event in &audited_events() {
        let (_, kind) = reader.read(event).unwrap();
        let text = serde_json::to_string(&kind.without_content().unwrap()).unwrap();
        assert!(!text.contains("canary"), "{text}");
    }
}
