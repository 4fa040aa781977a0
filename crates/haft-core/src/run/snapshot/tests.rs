use serde_json::{Value, json};

use super::*;
use crate::arguments::RawArguments;
use crate::conversation::{
    Annotation, Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, ToolReply, UrlCitation,
    WireIdentity,
};
use crate::internal_tools::final_report::ReportShape;
use crate::output::OutputContent;
use crate::run::RunPlan;
use crate::run::budget::SpendLimit;
use crate::run::final_report::FinalReport;
use crate::run::limits::{RunContextLimit, RunLimits};
use crate::tool::{CallId, ToolCall};

fn run(messages: Vec<Message>, plan: RunPlan) -> AgentRun {
    let mut conversation = Conversation::default();
    for message in messages {
        conversation.push(message).unwrap();
    }
    AgentRun::new(ModelRequest::new("m", Arc::new(conversation)), plan)
}

fn stored(run: &AgentRun) -> Value {
    serde_json::from_str(&run.snapshot().to_json().unwrap()).unwrap()
}

fn resume(value: &Value) -> Result<AgentRun, SnapshotError> {
    RunSnapshot::from_json(&value.to_string())?.resume(ModelRequest::new("m", Arc::default()))
}

/// Returns a message of each role, with every kind of part.
fn everything() -> Vec<Message> {
    let media = Media { media_type: "image/png".into(), source: MediaSource::Bytes([0, 255, 7][..].into()) };
    let link = Media {
        media_type: "image/png".into(),
        source: MediaSource::Url("https://example.org/a.png".into()),
    };
    let mark = WireIdentity {
        format: ModelApiFormat::Anthropic,
        id: Some("i".into()),
        state: Some("signature".into()),
    };
    let citations = vec![UrlCitation { url: "u".into(), title: Some("t".into()), range: Some(0..1) }];
    let annotation = Annotation { format: ModelApiFormat::Gemini, json: "{ }".into(), citations };
    let call = ToolCall {
        id: CallId("c".into()),
        name: "read".into(),
        arguments: RawArguments::from_text("{ \"a\":1 "),
    };
    let user = vec![
        MessagePart::text("hi"),
        MessagePart::new(PartBody::Image(link)),
        MessagePart::new(PartBody::File { name: None, media: media.clone() }),
    ];
    let assistant = vec![
        MessagePart::new(PartBody::Text { text: "t".into(), annotations: vec![annotation] }),
        MessagePart::new(PartBody::Reasoning("hm".into())).marked(mark),
        MessagePart::new(PartBody::Refusal("no".into())),
        MessagePart::new(PartBody::Audio(media)),
        MessagePart::new(PartBody::Opaque),
        MessagePart::new(PartBody::Call(call.clone())),
    ];
    let bytes: Arc<[u8]> = [1, 2][..].into();
    let content = vec![
        OutputContent::Text("x".into()),
        OutputContent::Image { media_type: "image/png".into(), bytes: Arc::clone(&bytes) },
        OutputContent::Audio { media_type: "audio/wav".into(), bytes },
        OutputContent::Resource { uri: "file:a".into(), media_type: None, text: Some("t".into()) },
    ];
    let reply = ToolReply { content, is_error: true, ..ToolReply::text(&call, "") };
    vec![
        Message::system("s"),
        Message { role: crate::conversation::Role::User, parts: user },
        Message::assistant(assistant),
        Message::tool(vec![reply]),
    ]
}

#[test]
fn snapshot_restores_every_message_exactly() {
    let before = run(everything(), RunPlan::default());
    let after = resume(&stored(&before)).unwrap();
    assert_eq!(before.conversation().messages(), after.conversation().messages());
}

#[test]
fn snapshot_restores_the_run_plan() {
    let context = Some(RunContextLimit { window_tokens: 1, output_tokens: 2, buffer_tokens: 3 });
    let shape = ReportShape::json(Arc::new(json!({"type": "object"}))).unwrap();
    let plan = RunPlan {
        limits: RunLimits {
            turns_max: 7,
            tool_calls_max: Some(8),
            tool_calls_per_turn_max: 9,
            attempts_max: 2,
            continuations_max: 4,
            context,
        },
        budget: SpendLimit {
            usd: Some(0.1),
            tokens: Some(1),
            calls: Some(2),
            time: Some(std::time::Duration::from_millis(1500)),
        },
        allowed_tools: Some(Vec::new()),
        report: FinalReport::Xml { shape, nonce: "n".into() },
        compaction: Some(crate::compaction::CompactionRules {
            at_percent: 70,
            keep_turns: 3,
            model: Some("m".into()),
            request_tokens_max: Some(9),
        }),
        ..RunPlan::default()
    };
    let before = run(vec![Message::user("hi")], plan);
    let after = resume(&stored(&before)).unwrap();
    assert_eq!(format!("{:?}", before.plan()), format!("{:?}", after.plan()));
}

#[test]
fn damaged_or_unknown_snapshot_is_rejected() {
    let whole = stored(&run(vec![Message::user("hi")], RunPlan::default()));
    let check = |pointer: &str, value: Value, expected: &str| {
        let mut changed = whole.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        let error = resume(&changed).unwrap_err().to_string();
        assert!(error.contains(expected), "{pointer}: {error}");
    };
    check("/version", json!(2), "has version 2; this version of haft reads 1");
    check("/state/forced", json!("boredom"), "`boredom`");
    check("/state/repeats", json!({"zz": 1}), "digest");
    check("/plan/budget", json!({"seconds": -1.0}), "not a valid duration");
    check(
        "/state/phase",
        json!({"ended": {"reason": {"plain": "x"}, "answer": null, "detail": "", "ended_ms": null}}),
        "finish reason",
    );
    check("/conversation/0/role", json!("tool"), "damaged");
    let call = json!({"call": {"id": "a", "name": "b", "arguments": ""}, "batch": null, "state": "running"});
    check("/state/phase", json!({"calls": [call]}), "not the open calls");
    assert!(matches!(RunSnapshot::from_json("{"), Err(SnapshotError::NotJson { .. })));
    assert!(matches!(
        RunSnapshot::from_json(r#"{"version": 9}"#),
        Err(SnapshotError::UnknownVersion { found: 9 })
    ));
}
