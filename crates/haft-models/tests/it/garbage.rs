use std::collections::HashSet;

use haft_core::conversation::{Conversation, Message, ModelApiFormat};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_reply::{ModelReply, ReplyNote, StopReason};
use haft_models::{DecodeContext, ErrorHead};
use proptest::prelude::*;

use crate::fixture::{answers, body, fold, grid, request, streamed, whole, wire};

fn decode(format: ModelApiFormat, body: &[u8]) -> Result<ModelReply, ModelError> {
    wire(format).decode(body, &DecodeContext::default())
}

fn read(format: ModelApiFormat, body: &[u8]) -> Result<ModelReply, ModelError> {
    let mut decoder = wire(format).stream_decoder(&DecodeContext::default());
    let mut events = Vec::new();
    decoder.push(body, &mut events)?;
    decoder.finish(&mut events)?;
    Ok(fold(events))
}

/// Returns all events of a stream that arrives in chunks, and its error.
fn told(format: ModelApiFormat, pieces: &[&[u8]]) -> String {
    let mut decoder = wire(format).stream_decoder(&DecodeContext::default());
    let mut events = Vec::new();
    let pushed = pieces.iter().try_for_each(|piece| decoder.push(piece, &mut events));
    let ended = pushed.and_then(|()| decoder.finish(&mut events));
    format!("{events:?} {ended:?}")
}

/// Checks that every decoded reply can be sent back.
fn check_usable(reply: Result<ModelReply, ModelError>) {
    match reply {
        Ok(reply) => assert!(Conversation::default().push(reply.into_message()).is_ok()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

#[test]
fn truncated_body_is_a_malformed_error() {
    for (scenario, format) in grid() {
        let body = whole(scenario, format);
        let end = body.iter().rposition(|byte| *byte == b'}').unwrap();
        for at in (0..end).step_by(7) {
            let error = decode(format, &body[..at]).unwrap_err();
            assert_eq!(error.kind, ModelErrorKind::Malformed, "{scenario} in {format:?} at {at}");
        }
    }
}

#[test]
fn body_that_is_not_a_reply_is_a_malformed_error() {
    for format in ModelApiFormat::ALL {
        let deep = "[".repeat(1_000_000);
        for body in ["", "null", "[]", "{}", "42", "<html>", "\u{FEFF}{}", "{\"choices\":[]}", deep.as_str()]
        {
            assert_eq!(
                decode(format, body.as_bytes()).unwrap_err().kind,
                ModelErrorKind::Malformed,
                "{format:?}: {}",
                &body[..body.len().min(20)]
            );
        }
        let large = vec![b' '; 65 * 1024 * 1024];
        assert_eq!(decode(format, &large).unwrap_err().kind, ModelErrorKind::ReplyTooLarge, "{format:?}");
    }
}

#[test]
fn wrong_json_type_in_any_field_is_an_error_or_a_usable_reply() {
    let junk = [
        serde_json::json!(null),
        serde_json::json!(7),
        serde_json::json!("x"),
        serde_json::json!([[]]),
        serde_json::json!({"a": {}}),
    ];
    for (scenario, format) in grid() {
        let body: serde_json::Value = serde_json::from_slice(&whole(scenario, format)).unwrap();
        for pointer in pointers(&body) {
            for value in &junk {
                let mut changed = body.clone();
                *changed.pointer_mut(&pointer).unwrap() = value.clone();
                check_usable(decode(format, changed.to_string().as_bytes()));
            }
        }
    }
}

/// Returns a pointer to every value in a document.
fn pointers(value: &serde_json::Value) -> Vec<String> {
    let below = |step: String, value: &serde_json::Value| {
        let step = format!("/{step}");
        pointers(value).into_iter().map(move |rest| format!("{step}{rest}")).collect::<Vec<_>>()
    };
    let mut all = vec![String::new()];
    match value {
        serde_json::Value::Object(object) => {
            object.iter().for_each(|(key, value)| all.extend(below(key.clone(), value)));
        }
        serde_json::Value::Array(array) => {
            array.iter().enumerate().for_each(|(at, value)| all.extend(below(at.to_string(), value)));
        }
        _ => {}
    }
    all
}

/// Returns a reply with two calls that have the same id and arguments. Ollama's calls have no id.
fn two_calls(format: ModelApiFormat, id: &str, arguments: &str) -> String {
    let text = serde_json::json!(arguments);
    match format {
        ModelApiFormat::OpenaiChat => {
            let call = format!(r#"{{"id":"{id}","function":{{"name":"x","arguments":{text}}}}}"#);
            format!(
                r#"{{"choices":[{{"message":{{"tool_calls":[{call},{call}]}},"finish_reason":"tool_calls"}}]}}"#
            )
        }
        ModelApiFormat::OpenaiResponses => {
            let call = format!(
                r#"{{"type":"function_call","id":"{id}","call_id":"{id}","name":"x","arguments":{text}}}"#
            );
            format!(r#"{{"status":"completed","output":[{call},{call}]}}"#)
        }
        ModelApiFormat::Anthropic => {
            let call = format!(r#"{{"type":"tool_use","id":"{id}","name":"x","input":{text}}}"#);
            format!(r#"{{"content":[{call},{call}],"stop_reason":"tool_use"}}"#)
        }
        ModelApiFormat::Gemini => {
            let call = format!(r#"{{"functionCall":{{"id":"{id}","name":"x","args":{text}}}}}"#);
            format!(r#"{{"candidates":[{{"content":{{"parts":[{call},{call}]}},"finishReason":"STOP"}}]}}"#)
        }
        ModelApiFormat::Ollama => {
            let call = format!(r#"{{"function":{{"name":"x","arguments":{text}}}}}"#);
            format!(r#"{{"message":{{"tool_calls":[{call},{call}]}},"done":true,"done_reason":"stop"}}"#)
        }
    }
}

/// Both calls have the same id and arguments that are not JSON, and the tool `x` was not offered. The run must get both
/// calls as written, and every format must be able to send their results.
#[test]
fn calls_with_duplicate_ids_and_invalid_arguments_can_be_answered() {
    for format in ModelApiFormat::ALL {
        let reply = decode(format, two_calls(format, "a", "not json").as_bytes()).unwrap();
        let ids: HashSet<_> = reply.calls().map(|call| call.id.0.clone()).collect();
        assert_eq!((ids.len(), &reply.stop), (2, &StopReason::ToolCalls), "{format:?}");
        let written: Vec<_> = reply.calls().map(|call| call.arguments.as_text().to_owned()).collect();
        assert!(written.iter().all(|text| text.trim_matches('"') == "not json"), "{format:?}: {written:?}");
        let message = reply.into_message();
        let answers = answers(&message, "there is no such tool");
        for other in ModelApiFormat::ALL {
            let asked = request([Message::user("hi"), message.clone(), answers.clone()]);
            let sent = body(wire(other), &asked);
            assert!(sent.to_string().contains("there is no such tool"), "{format:?} {other:?}");
        }
    }
}

/// Returns one frame of a stream.
fn framed(format: ModelApiFormat, json: &[u8]) -> Vec<u8> {
    match format {
        ModelApiFormat::Ollama => [json, b"\n"].concat(),
        ModelApiFormat::OpenaiChat
        | ModelApiFormat::OpenaiResponses
        | ModelApiFormat::Anthropic
        | ModelApiFormat::Gemini => [b"data: ", json, b"\n\n"].concat(),
    }
}

#[test]
fn deeply_nested_json_anywhere_in_a_reply_is_malformed() {
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    for format in ModelApiFormat::ALL {
        let inside = two_calls(format, "a", "DEEP").replace("\"DEEP\"", &deep);
        for body in [deep.as_bytes(), inside.as_bytes()] {
            assert_eq!(decode(format, body).unwrap_err().kind, ModelErrorKind::Malformed, "{format:?}");
            let streamed = read(format, &framed(format, body));
            assert!(streamed.is_err_and(|error| error.kind == ModelErrorKind::Malformed), "{format:?}");
            assert!(!wire(format).decode_error(&ErrorHead::of_status(500), body).message.is_empty());
        }
    }
}

type DecodeFunction = fn(ModelApiFormat, &[u8]) -> Result<ModelReply, ModelError>;

#[test]
fn invalid_utf8_in_a_reply_is_rejected_or_replaced() {
    for (scenario, format) in grid() {
        let whole = (whole(scenario, format), decode as DecodeFunction);
        for (bytes, read) in [whole, (streamed(scenario, format), read as DecodeFunction)] {
            for at in (0..bytes.len()).step_by(3) {
                let mut changed = bytes.clone();
                changed[at] = 0xFF;
                match read(format, &changed) {
                    Err(error) => {
                        assert_eq!(error.kind, ModelErrorKind::Malformed, "{scenario} {format:?} {at}");
                    }
                    reply @ Ok(_) => check_usable(reply),
                }
            }
        }
    }
}

#[test]
fn calls_with_duplicate_or_missing_ids_get_unique_ids() {
    let body = br#"{"choices":[{"message":{"tool_calls":[
        {"id":"a","function":{"name":"x","arguments":"{}"}},
        {"id":"a","function":{"name":"y","arguments":"not json"}},
        {"function":{"name":"z","arguments":null}}]},"finish_reason":"tool_calls"}]}"#;
    let reply = decode(ModelApiFormat::OpenaiChat, body).unwrap();
    let ids: Vec<_> = reply.calls().map(|call| call.id.0.as_str()).collect();
    assert_eq!(ids, ["a", "call_haft_0_1", "call_haft_0_2"]);
    assert_eq!(reply.notes.len(), 2);
    check_usable(Ok(reply));
}

#[test]
fn unknown_stop_reason_is_kept_and_noted() {
    for (format, body) in [
        (ModelApiFormat::OpenaiChat, r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"moon"}]}"#),
        (ModelApiFormat::OpenaiResponses, r#"{"status":"moon","output":[]}"#),
        (ModelApiFormat::Anthropic, r#"{"content":[],"stop_reason":"moon"}"#),
        (ModelApiFormat::Gemini, r#"{"candidates":[{"finishReason":"moon"}]}"#),
        (ModelApiFormat::Ollama, r#"{"message":{"content":""},"done":true,"done_reason":"moon"}"#),
    ] {
        let reply = decode(format, body.as_bytes()).unwrap();
        assert_eq!(reply.stop, StopReason::Other("moon".into()), "{format:?}");
        assert!(reply.notes.contains(&ReplyNote::UnknownStopReason { reason: "moon".into() }), "{format:?}");
    }
}

#[test]
fn empty_reply_is_noted_as_empty() {
    for (format, body) in [
        (ModelApiFormat::OpenaiChat, r#"{"choices":[{"message":{"content":null},"finish_reason":"stop"}]}"#),
        (ModelApiFormat::OpenaiResponses, r#"{"status":"completed","output":[]}"#),
        (ModelApiFormat::Anthropic, r#"{"content":[],"stop_reason":"end_turn"}"#),
        (ModelApiFormat::Gemini, r#"{"candidates":[{"finishReason":"STOP"}]}"#),
        (ModelApiFormat::Ollama, r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#),
    ] {
        assert_eq!(decode(format, body.as_bytes()).unwrap().notes, [ReplyNote::Empty], "{format:?}");
    }
}

#[test]
fn reply_to_a_blocked_prompt_has_the_stop_reason_filtered() {
    let reply = decode(ModelApiFormat::Gemini, br#"{"promptFeedback":{"blockReason":"SAFETY"}}"#).unwrap();
    assert_eq!(reply.stop, StopReason::Filtered);
}

#[test]
fn oversized_stream_is_a_reply_too_large_error() {
    for format in ModelApiFormat::ALL {
        let mut decoder = wire(format).stream_decoder(&DecodeContext::default());
        let piece = vec![b'x'; 1024 * 1024];
        let error = (0..100).find_map(|_| decoder.push(&piece, &mut Vec::new()).err());
        assert_eq!(error.unwrap().kind, ModelErrorKind::ReplyTooLarge, "{format:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn decoding_any_bytes_gives_a_usable_reply_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for format in ModelApiFormat::ALL {
            check_usable(decode(format, &bytes));
            check_usable(read(format, &bytes));
            wire(format).decode_error(&ErrorHead::of_status(500), &bytes);
        }
    }

    /// Uses recorded streams with bytes changed, removed and repeated.
    #[test]
    fn decoding_a_mangled_stream_gives_a_usable_reply_or_an_error(
        cell in 0..28_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..40_usize, 0..3_u8), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let (scenario, format) = grid().nth(cell).unwrap();
        let mut bytes = streamed(scenario, format);
        for (at, byte, length, kind) in changes {
            let at = at.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => { bytes.drain(at..end); }
                _ => { let piece = bytes[at..end].to_vec(); bytes.splice(at..at, piece); }
            }
            if bytes.is_empty() { break; }
        }
        check_usable(read(format, &bytes));
        let (first, rest) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(told(format, &[&bytes]), told(format, &[first, rest]));
    }

    /// Uses recorded whole replies with bytes changed, removed and repeated.
    #[test]
    fn decoding_a_mangled_reply_gives_a_usable_reply_or_an_error(cell in 0..28_usize, at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let (scenario, format) = grid().nth(cell).unwrap();
        let mut bytes = whole(scenario, format);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        check_usable(decode(format, &bytes));
    }
}
