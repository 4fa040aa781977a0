use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use haft_core::conversation::{
    Conversation, Message, MessagePart, ModelApiFormat, PartBody, ToolReply, WireIdentity,
};
use haft_core::model_request::{ModelRequest, ModelTool, ToolChoice};
use haft_core::tool::{CallId, ToolCall};
use serde_json::json;

use super::fingerprint::{FingerprintCache, RequestFingerprints};
use super::*;

fn request(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    let mut conversation = Conversation::default();
    for message in messages {
        conversation.push(message).unwrap();
    }
    ModelRequest::new("m", Arc::new(conversation))
}

fn prints(request: &ModelRequest) -> RequestFingerprints {
    FingerprintCache::default().prints(request)
}

fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall {
        id: CallId(id.into()),
        name: "read".into(),
        arguments: haft_core::arguments::RawArguments::from_text(arguments),
    }
}

fn called(id: &str, arguments: &str, output: &str) -> ModelRequest {
    let call = call(id, arguments);
    let mark = WireIdentity { format: ModelApiFormat::Gemini, id: Some(id.into()), state: Some(id.into()) };
    let parts = vec![
        MessagePart::new(PartBody::Reasoning(id.into())),
        MessagePart::new(PartBody::Call(call.clone())).marked(mark),
    ];
    let replies = Message::tool(vec![ToolReply::text(&call, output)]);
    request([Message::user("hi"), Message::assistant(parts), replies])
}

#[test]
fn match_digest_ignores_system_text_model_dates_paths_and_call_ids() {
    let check = |one: &ModelRequest, other: &ModelRequest| {
        assert_eq!(prints(one).digest, prints(other).digest);
        assert_ne!(prints(one).exact, prints(other).exact);
    };
    let plain = request([Message::user("hi")]);
    check(&plain, &ModelRequest { system: "be brief".into(), ..plain.clone() });
    check(&plain, &ModelRequest { model: "other".into(), ..plain.clone() });
    check(&plain, &request([Message::system("note"), Message::user("hi")]));
    let dated = |text: &str| request([Message::user(format!("today is {text}"))]);
    check(&dated("2026-11-16"), &dated("2031-01-02"));
    check(
        &called("a", r#"{"path":"/tmp/x"}"#, "at 02:01:31"),
        &called("b", r#"{"path":"/home/y"}"#, "at 11:45:00"),
    );
}

#[test]
fn match_digest_changes_with_messages_tools_and_options() {
    let plain = request([Message::user("hi")]);
    let tool = ModelTool {
        name: "t".into(),
        description: "d".into(),
        input_schema: Arc::new(json!({})),
        strict: false,
    };
    let others = [
        request([Message::user("ho")]),
        request([Message::user("hi"), Message::user("hi")]),
        ModelRequest { tools: [tool].into(), ..plain.clone() },
        ModelRequest { tool_choice: ToolChoice::Required, ..plain.clone() },
        ModelRequest { output_tokens_max: Some(1), ..plain.clone() },
        called("a", "{}", "x"),
        called("a", "{}", "y"),
    ];
    let mut digests: Vec<_> = others.iter().chain([&plain]).map(|one| prints(one).digest).collect();
    digests.sort();
    digests.dedup();
    assert_eq!(digests.len(), others.len() + 1);
}

#[test]
fn incremental_fingerprint_equals_the_full_fingerprint() {
    let whole = called("a", "{}", "x");
    let mut known = FingerprintCache::default();
    for messages in 0..=3 {
        let conversation = Arc::new(whole.conversation.beginning(messages).unwrap());
        let part = ModelRequest { conversation, ..whole.clone() };
        assert_eq!(known.prints(&part), prints(&part));
    }
    assert_eq!(prints(&whole).turn, 2);
    assert_eq!(prints(&whole).called, ["read"]);
}

fn read(text: &str) -> Result<Recording, RecordingError> {
    Recording::read_from(Path::new("r.jsonl"), Cursor::new(text))
}

const HEAD: &str = "{\"type\":\"recording\",\"version\":5}\n";

#[test]
fn reader_skips_unknown_line_types_and_a_truncated_last_line() {
    let recording = read(&format!("{HEAD}{{\"type\":\"clock\",\"now\":1}}\n{{\"type\":\"exch")).unwrap();
    assert_eq!((recording.lines().len(), recording.cut_off()), (1, true));
    let error = Replayer::new(&recording, MatchRule::Digest).unwrap_err().to_string();
    assert!(error.contains("r.jsonl: the recording contains no exchange with a model"), "{error}");
}

#[test]
fn lines_of_version_2_recordings_are_read_as_current_types() {
    let lines = "{\"kind\":\"recording\",\"version\":2}\n{\"kind\":\"step\"}\n{\"kind\":\"end\"}\n";
    let types = |recording: &Recording| -> Vec<String> {
        recording.lines().iter().map(|line| line.kind.clone()).collect()
    };
    assert_eq!(types(&read(lines).unwrap()), ["told", "end"]);
    // Version 2 used these words as line types; later versions do not.
    assert!(read(&format!("{HEAD}{{\"kind\":\"step\"}}\n")).is_err());
}

#[test]
fn journal_returns_only_lines_of_its_session() {
    let line =
        |session: &str, at: u64| format!("{{\"type\":\"note\",\"at_ms\":{at},\"journal\":\"{session}\"}}\n");
    let text = [HEAD, &line("a", 1), &line("b", 2), "{\"type\":\"end\"}\n", &line("a", 3)].concat();
    assert_eq!(read(&text).unwrap().journal("a"), [line("a", 1), line("a", 3)].concat());
    assert_eq!(read(text.trim_end()).unwrap().journal("a"), [line("a", 1), line("a", 3)].concat());
    assert_eq!(read(&text).unwrap().journal("c"), "");
}

#[test]
fn invalid_recording_is_rejected_with_the_file_and_reason() {
    let check = |text: &str, expected: &str| {
        let refused =
            read(text).and_then(|recording| Replayer::new(&recording, MatchRule::Digest).map(|_| ()));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("r.jsonl"), "{text}: {error}");
    };
    check("", "r.jsonl: the file is not a recording");
    check("hello\n", "r.jsonl: the file is not a recording");
    check(&"x".repeat(1 << 20), "r.jsonl: the file is not a recording");
    check("{\"type\":\"exchange\"}\n", "r.jsonl: the file is not a recording");
    check(
        "{\"type\":\"recording\",\"version\":9}\n",
        "has version 9, but this version of haft reads versions 2 to 5",
    );
    check(
        "{\"kind\":\"recording\",\"version\":1}\n",
        "has version 1, but this version of haft reads versions 2 to 5",
    );
    check(&format!("{HEAD}garbage\n{{}}\n"), "haft cannot read line 2");
    check(&format!("{HEAD}{{\"type\":7}}\n"), "haft cannot read line 2");
    check(&format!("{HEAD}{{\"type\":\"exchange\"}}\n"), "haft cannot read line 2: missing field");
    let deep = format!("{HEAD}{{\"type\":\"exchange\",\"request\":{}}}\n", "[".repeat(1_000_000));
    check(&deep, "haft cannot read line 2");
    let bytes = [HEAD.as_bytes(), b"\xff\xfe\n"].concat();
    let error = Recording::read_from(Path::new("r.jsonl"), Cursor::new(bytes)).unwrap_err().to_string();
    assert!(error.contains("haft cannot read line 2: the line is not UTF-8 text"), "{error}");
}

#[test]
fn directory_or_oversized_file_is_not_read_as_a_recording() {
    let directory = tempfile::tempdir().unwrap();
    let error = Recording::read(directory.path()).unwrap_err().to_string();
    assert!(error.contains("is not a file"), "{error}");
    let huge = directory.path().join("huge");
    std::fs::File::create(&huge).unwrap().set_len(RECORDING_BYTES_MAX + 1).unwrap();
    let error = Recording::read(&huge).unwrap_err().to_string();
    assert!(error.contains(&format!("more than {RECORDING_BYTES_MAX} bytes")), "{error}");
}

#[test]
fn recording_is_never_overwritten_and_has_mode_0600() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.jsonl");
    Tape::create(&path, []).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = Tape::create(&path, []).unwrap_err().to_string();
    assert!(error.contains("exists already"), "{error}");
}

#[test]
fn known_secrets_are_redacted_in_the_recording() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("r.jsonl");
    let secrets = ["canary-\"quoted\"", "canary-plain", "short"].map(secrecy::SecretString::from);
    let tape = Tape::create(&path, secrets).unwrap();
    tape.write("clock", &json!({"a": "x canary-plain y", "b": ["canary-\"quoted\"", "short"]}));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("canary") && text.contains("[redacted]") && text.contains("short"), "{text}");
}
