use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::conversation::{
    Annotation, Conversation, Media, MediaSource, Message, ModelApiFormat, UrlCitation, WireIdentity,
};
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_event::{ModelEvent, PartDelta, PartStart};
use crate::model_reply::{ReplyNote, StopReason, TokenUsage};
use crate::model_request::{
    ModelRequest, ModelTool, MustCall, OutputShape, ParallelCalls, ReasoningEffort, ReasoningSummary,
    SamplingParameters, ToolChoice, Verbosity,
};
use crate::tool::CallId;

fn conversation(texts: &[&str]) -> Arc<Conversation> {
    let mut conversation = Conversation::default();
    for text in texts {
        conversation.push(Message::user(*text)).unwrap();
    }
    Arc::new(conversation)
}

/// Returns a request that uses most features.
fn everything(texts: &[&str]) -> ModelRequest {
    let schema = Arc::new(json!({"type": "object"}));
    let tool = ModelTool {
        name: "t".into(),
        description: "d".into(),
        input_schema: Arc::clone(&schema),
        strict: true,
    };
    ModelRequest {
        system: "be brief".into(),
        tools: [tool].into(),
        tool_choice: ToolChoice::Allowed { names: vec!["t".into()], must_call: MustCall::Yes },
        parallel_calls: ParallelCalls::OneAtATime,
        output: OutputShape::Schema { name: "s".into(), schema },
        sampling: SamplingParameters {
            temperature: Some(0.5),
            top_k: Some(3),
            seed: Some(u64::MAX),
            stop: vec!["x".into()],
            ..SamplingParameters::default()
        },
        reasoning: Some(ReasoningEffort::Highest),
        reasoning_summary: Some(ReasoningSummary::Detailed),
        verbosity: Some(Verbosity::High),
        output_tokens_max: Some(7),
        context_tokens: Some(9),
        ..ModelRequest::new("m", conversation(texts))
    }
}

fn through_text(stored: &StoredRequest) -> StoredRequest {
    serde_json::from_str(&serde_json::to_string(stored).unwrap()).unwrap()
}

#[test]
fn stored_request_round_trips() {
    for request in [everything(&["a", "b"]), ModelRequest::new("m", conversation(&[]))] {
        let back = through_text(&StoredRequest::of(&request)).into_request(None).unwrap();
        assert_eq!(format!("{request:?}"), format!("{back:?}"));
    }
}

#[test]
fn follow_up_request_stores_only_the_new_messages() {
    let before = everything(&["a", "b"]);
    let tools = Arc::clone(&before.tools);
    let after = ModelRequest { tools, ..everything(&["a", "b", "c"]) };
    let stored = StoredRequest::after(&after, Some(&before), 2);
    let text = serde_json::to_string(&stored).unwrap();
    assert!(
        !text.contains("be brief") && !text.contains("input_schema") && !text.contains("\"b\""),
        "{text}"
    );
    let back = through_text(&stored).into_request(Some((&before, 2))).unwrap();
    assert_eq!(format!("{after:?}"), format!("{back:?}"));
    assert!(matches!(stored.clone().into_request(None), Err(StoredError::Broken { .. })));
    assert!(matches!(stored.into_request(Some((&before, 3))), Err(StoredError::Broken { .. })));
}

/// Returns a citation with all fields, and one with the required field only.
fn citations() -> Vec<UrlCitation> {
    let url = || "https://example.org".to_owned();
    vec![
        UrlCitation { url: url(), title: Some("t".into()), range: Some(1..4) },
        UrlCitation { url: url(), title: None, range: None },
    ]
}

#[test]
fn citation_of_an_older_version_keeps_its_url() {
    let stored =
        json!({"annotation": {"index": 1, "more": {"format": "anthropic", "json": "{ }", "url": "u"}}});
    let event = serde_json::from_value::<StoredEvent>(stored).unwrap().into_event().unwrap();
    let citations = vec![UrlCitation { url: "u".into(), title: None, range: None }];
    let annotation = Annotation { format: ModelApiFormat::Anthropic, json: "{ }".into(), citations };
    assert_eq!(event, ModelEvent::PartDelta { index: 1, delta: PartDelta::Annotation(annotation) });
}

#[test]
fn every_stored_event_round_trips() {
    let mark =
        Some(WireIdentity { format: ModelApiFormat::Gemini, id: Some("i".into()), state: Some("s".into()) });
    let media = Media { media_type: "image/png".into(), source: MediaSource::Bytes([0, 255][..].into()) };
    let link =
        Media { media_type: "image/png".into(), source: MediaSource::Url("https://example.org".into()) };
    let annotation =
        Annotation { format: ModelApiFormat::Anthropic, json: "{ }".into(), citations: citations() };
    let starts = [
        PartStart::Text,
        PartStart::Refusal,
        PartStart::Reasoning,
        PartStart::Call { id: CallId("c".into()), name: "read".into() },
        PartStart::Image(media.clone()),
        PartStart::Audio(link.clone()),
        PartStart::File { name: Some("f".into()), media },
        PartStart::Opaque,
    ];
    let notes = [
        ReplyNote::CallIdGiven { id: "c".into() },
        ReplyNote::UnknownStopReason { reason: "r".into() },
        ReplyNote::UnknownPart { kind: "k".into() },
        ReplyNote::NoEnd,
        ReplyNote::Empty,
        ReplyNote::PromptCut { read_tokens: 1, sent_tokens_min: 2 },
        ReplyNote::FeatureDropped { what: "w".into(), instead: "i".into() },
        ReplyNote::EventSkipped { reason: "r".into() },
    ];
    let stops = [
        StopReason::EndOfTurn,
        StopReason::ToolCalls,
        StopReason::Length,
        StopReason::StopSequence,
        StopReason::Refusal,
        StopReason::Filtered,
        StopReason::Paused,
        StopReason::CutOff,
        StopReason::Other("o".into()),
    ];
    let usage = TokenUsage { input: 1, output: 2, cache_read: 3, cache_write: 4, reasoning: 5 };
    let mut events = vec![
        ModelEvent::Started { id: Some("i".into()), model: None },
        ModelEvent::PartDelta { index: 1, delta: PartDelta::Text("\u{1}é\n".into()) },
        ModelEvent::PartDelta { index: 1, delta: PartDelta::Annotation(annotation) },
        ModelEvent::PartDelta { index: 3, delta: PartDelta::Summary("s".into()) },
        ModelEvent::PartDelta { index: 3, delta: PartDelta::SummaryBreak },
        ModelEvent::PartFinished { index: 2, mark: mark.clone() },
        ModelEvent::Usage(usage),
        ModelEvent::Usage(TokenUsage::default()),
    ];
    let started = |part| ModelEvent::PartStarted { index: 0, part, mark: mark.clone() };
    events.extend(starts.into_iter().map(started));
    events.extend(notes.into_iter().map(ModelEvent::Noted));
    events.extend(stops.into_iter().map(|stop| ModelEvent::Finished { stop }));
    for event in events {
        let text = serde_json::to_string(&StoredEvent::of(&event)).unwrap();
        let back: StoredEvent = serde_json::from_str(&text).unwrap();
        assert_eq!(back.into_event().unwrap(), event, "{text}");
    }
}

#[test]
fn every_stored_model_error_round_trips() {
    for kind in ModelErrorKind::ALL {
        let error = ModelError { kind, message: "m".into(), retry_after: Some(Duration::from_millis(1500)) };
        assert_eq!(StoredModelError::of(&error).into_error().unwrap(), error);
    }
    let unknown: StoredModelError = serde_json::from_str(r#"{"kind": "boredom", "message": ""}"#).unwrap();
    assert!(unknown.into_error().unwrap_err().to_string().contains("`boredom`"));
}

#[test]
fn every_output_round_trips_except_one_with_a_handle() {
    use crate::output::{OutputContent, RawResult, ResourceLink, ToolOutput};
    use crate::output_store::{Handle, OutputPreview, StoreEntry, StoreReason, StoredOutput};

    let bytes: Arc<[u8]> = [0, 159, 255][..].into();
    let media = || (Some("a/b".to_owned()), Arc::clone(&bytes));
    let content = vec![
        OutputContent::Text("caf\u{e9}\u{0}\n".into()),
        OutputContent::Image { media_type: "image/png".into(), bytes: media().1 },
        OutputContent::Audio { media_type: "audio/wav".into(), bytes: media().1 },
        OutputContent::Resource { uri: "a:b".into(), media_type: media().0, text: Some("t".into()) },
        OutputContent::Resource { uri: "a:b".into(), media_type: None, text: None },
        OutputContent::Link(Box::new(ResourceLink { uri: "a:b".into(), ..ResourceLink::default() })),
        OutputContent::Link(Box::new(ResourceLink {
            uri: "a:b".into(),
            media_type: media().0,
            name: Some("n".into()),
            title: Some("t".into()),
            description: Some("d".into()),
        })),
        OutputContent::Binary { uri: Some("a:b".into()), media_type: media().0, bytes: media().1 },
        OutputContent::Binary { uri: None, media_type: None, bytes: media().1 },
    ];
    let structured = Some(json!({"z": [1, -2, u64::MAX, 0.5, null, true], "a": {"b": "c"}}));
    // The text of a server is restored byte for byte.
    let sent = serde_json::value::RawValue::from_string(r#"{ "v": 1.0, "a": "\u00e9" }"#.into()).unwrap();
    let raw = Some(RawResult(sent.into()));
    for output in [ToolOutput::default(), ToolOutput { content, structured, raw }] {
        let text = serde_json::to_string(&StoredToolOutput::of(&output).unwrap()).unwrap();
        let back: StoredToolOutput = serde_json::from_str(&text).unwrap();
        assert_eq!(back.into_output().unwrap(), output);
    }
    let older = r#"{"content":[{"resource":{"uri":"a:b","media_type":null,"text":"n: d"}}]}"#;
    let older: StoredToolOutput = serde_json::from_str(older).unwrap();
    let link = OutputContent::Resource { uri: "a:b".into(), media_type: None, text: Some("n: d".into()) };
    assert_eq!(older.into_output().unwrap(), ToolOutput { content: vec![link], ..ToolOutput::default() });
    let name = "0a1b2c3d-0000-4000-8000-000000000000";
    let stored = StoreEntry { handle: Handle::new(name, name).unwrap(), bytes: 1, lines: 1, complete: true };
    let glimpse =
        OutputPreview::Media { description: "d".into(), digest: crate::digest::Digest::of_bytes(b"x") };
    let output = ToolOutput::stored(StoredOutput { stored, reason: StoreReason::NotText, glimpse });
    assert_eq!(StoredToolOutput::of(&output), None);
}
