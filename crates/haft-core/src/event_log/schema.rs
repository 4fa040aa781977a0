//! The JSON Schema of the event log, for `haft dev events --schema`.

use serde_json::{Map, Value, json};

/// The fields of one kind of event, each with its schema. All fields except the last `optional` ones are required.
struct EventKindSchema {
    name: &'static str,
    about: &'static str,
    fields: Vec<(&'static str, Value)>,
    optional: usize,
}

/// Returns the schema of one [`EventEnvelope`](super::EventEnvelope).
pub fn schema() -> Value {
    let events: Vec<Value> = kinds().into_iter().map(event).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "haft event",
        "description": "One event of a run. Later versions may add kinds and fields, but do not change these.",
        "type": "object",
        "properties": {
            "seq": {"type": "integer", "minimum": 1, "description": "sequence number, counted per root run including its sub-runs, or per process in log lines and accounting; never reused"},
            "at": {"type": "integer", "minimum": 0, "description": "milliseconds since 1970; absent in stream-json, so that a replay is identical byte for byte"},
            "run": {"type": "string", "description": "the session of the run"},
            "parent": {"type": "integer", "description": "the operation that started this run; absent for a root run"},
            "event": {"oneOf": events},
        },
        "required": ["seq", "run", "event"],
    })
}

fn event(kind: EventKindSchema) -> Value {
    let EventKindSchema { name, about, fields, optional } = kind;
    let mut required = vec![json!("type"), json!("turn")];
    required.extend(fields.iter().take(fields.len() - optional).map(|(field, _)| json!(field)));
    let mut properties = Map::new();
    properties.insert("type".into(), json!({"const": name}));
    properties.insert("turn".into(), json!({"type": "integer", "minimum": 0}));
    properties.extend(fields.into_iter().map(|(field, schema)| (field.to_owned(), schema)));
    json!({"type": "object", "description": about, "properties": properties, "required": required})
}

fn kinds() -> Vec<EventKindSchema> {
    [start_kinds(), model_kinds(), tool_kinds(), decision_kinds()].into_iter().flatten().collect()
}

/// Returns the schemas of events at the start of a run and of its turns.
fn start_kinds() -> Vec<EventKindSchema> {
    vec![
        kind(
            "run_started",
            "a run begins or continues",
            vec![("agents", words()), ("model", text()), ("tools", words())],
            0,
        ),
        kind("turn_started", "haft asks the model for a reply", vec![], 0),
    ]
}

/// Returns the schemas of events about model replies.
fn model_kinds() -> Vec<EventKindSchema> {
    vec![
        kind("text_delta", "the next part of the model's text", vec![("text", text())], 0),
        kind("reasoning_delta", "the next part of the model's reasoning", vec![("text", text())], 0),
        kind(
            "reasoning_summary_delta",
            "the next part of a summary of the model's reasoning",
            vec![("part", count()), ("text", text())],
            0,
        ),
        kind("refusal_delta", "the next part of the model's refusal", vec![("text", text())], 0),
        kind(
            "citations",
            "the web pages that the model's text cites",
            vec![("citations", json!({"type": "array", "items": citation()}))],
            0,
        ),
        kind(
            "model_finished",
            "one attempt to get a reply from a model has ended",
            vec![
                ("model", text()),
                ("attempt", count()),
                ("latency_ms", count()),
                ("error_kind", maybe(&text())),
                ("usage", maybe(&usage())),
                ("cost_nano_usd", maybe(&count())),
                ("principal", about("`local`, or TENANT/SUBJECT; only in log lines and accounting")),
                ("request_id", about("the id of the request; only in log lines and accounting")),
                ("first_event_ms", count()),
                ("retry_after_ms", count()),
            ],
            4,
        ),
    ]
}

/// Returns the schemas of events about tool calls.
fn tool_kinds() -> Vec<EventKindSchema> {
    vec![
        kind(
            "tool_call",
            "the model requests a tool call",
            vec![("id", text()), ("tool", text()), ("arguments", text())],
            0,
        ),
        kind(
            "tool_started",
            "a tool call reached its tool",
            vec![
                ("id", text()),
                ("operation", count()),
                ("tool", text()),
                ("waited_ms", count()),
                ("provider_kind", about("builtin, mcp, rest, agent or client; only in log lines")),
                ("namespace", about("the provider of the tool; only in log lines")),
            ],
            2,
        ),
        kind("tool_progress", "a tool reports progress", vec![("id", text()), ("text", text())], 0),
        kind(
            "tool_result",
            "the result that the model gets",
            vec![
                ("id", text()),
                ("tool", text()),
                ("is_error", flag()),
                ("error_kind", maybe(&text())),
                ("text", text()),
                ("latency_ms", count()),
            ],
            0,
        ),
        tool_finished(),
    ]
}

fn tool_finished() -> EventKindSchema {
    let fields = vec![
        ("id", text()),
        ("operation", count()),
        ("tool", text()),
        ("error_kind", maybe(&text())),
        ("latency_ms", count()),
        ("executed", flag()),
        ("cached", flag()),
        ("bytes_in", count()),
        ("bytes_out", count()),
    ];
    // The fields that only log lines and accounting have.
    let audit = vec![
        ("principal", about("`local`, or TENANT/SUBJECT; only in log lines and accounting")),
        ("arguments_digest", about("SHA-256 of the arguments as they were written")),
        ("provider_kind", about("builtin, mcp, rest, agent or client; absent for an unknown tool")),
        ("namespace", about("the provider of the tool")),
        ("origin", about("the session of the original request; absent if it is the session of the run")),
        ("decision", about("allow, ask or deny; absent if the call ended before the decision")),
        ("rule", about("the rule that decided; absent for the default")),
        ("approver", about("the approver, such as terminal or caller; remembered for a stored grant")),
        (
            "answer",
            about(
                "allow_once, allow_exact, allow_prefix, allow_rule, deny, unanswered, later or no_approver",
            ),
        ),
        ("queue", about("the queue in which the call had a slot; absent for a call without a queue")),
        ("handle", about("the handle under which the output was stored; absent if it was not stored")),
        ("arguments", about("only in log lines with content capture")),
        ("result", about("only in log lines with content capture")),
    ];
    let optional = audit.len();
    let fields = [fields, audit].concat();
    kind("tool_finished", "the summary of a finished call: sizes and decisions", fields, optional)
}

/// Returns the schemas of events about approvals, decisions and the end of a run.
fn decision_kinds() -> Vec<EventKindSchema> {
    vec![
        kind(
            "approval_requested",
            "the run waits for a decision about a call",
            vec![
                ("approval", text()),
                ("tool", text()),
                ("arguments", json!({"type": "object"})),
                ("why", text()),
            ],
            0,
        ),
        kind("approval_decided", "the approval decision", vec![("approval", text()), ("allowed", flag())], 0),
        kind(
            "note",
            "a notice of the run, as text for users",
            vec![
                ("kind", text()),
                ("text", text()),
                ("status", json!({"type": "object"})),
                ("reply", json!({"enum": ["continued", "replaced", "unused"]})),
            ],
            2,
        ),
        kind(
            "context_compacted",
            "the run made its conversation smaller",
            vec![
                ("before_tokens", count()),
                ("after_tokens", count()),
                ("scope", json!({"enum": ["outputs", "turns"]})),
                ("items", count()),
                ("summary", maybe(&text())),
            ],
            0,
        ),
        kind("run_finished", "a run has ended", vec![("finish", text()), ("answer", text())], 1),
    ]
}

fn kind(
    name: &'static str,
    about: &'static str,
    fields: Vec<(&'static str, Value)>,
    optional: usize,
) -> EventKindSchema {
    EventKindSchema { name, about, fields, optional }
}

fn text() -> Value {
    json!({"type": "string"})
}

fn about(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

fn words() -> Value {
    json!({"type": "array", "items": {"type": "string"}})
}

fn count() -> Value {
    json!({"type": "integer", "minimum": 0})
}

fn flag() -> Value {
    json!({"type": "boolean"})
}

fn maybe(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn citation() -> Value {
    json!({
        "type": "object",
        "properties": {"url": text(), "title": text(), "start": count(), "end": count()},
        "required": ["url", "start", "end"],
    })
}

fn usage() -> Value {
    json!({
        "type": "object",
        "properties": {
            "input_tokens": count(), "output_tokens": count(), "cache_read_tokens": count(),
            "cache_write_tokens": count(), "reasoning_tokens": count(),
        },
        "required": ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens"],
    })
}
