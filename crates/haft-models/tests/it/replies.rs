use haft_core::conversation::{ModelApiFormat, PartBody};
use haft_core::model_event::{ModelEvent, PartDelta};
use haft_core::model_reply::{ModelReply, ReplyNote, StopReason, TokenUsage};
use haft_models::DecodeContext;
use haft_testkit::checks;

use crate::fixture::{decode, fold, grid, read_stream, streamed, whole, wire};

const TEXT: &str = "Grüße: the file has \"two\" lines.\n";
const FIRST: &str = r#"{"path": "/src/lib.rs", "limit": 1.0}"#;
const SECOND: &str = r#"{"path":"/räksmörgås"}"#;

/// Returns the text, the calls and the stop reason of a reply, independent of its format.
fn said(reply: &ModelReply) -> (String, Vec<String>, StopReason) {
    let calls = reply.calls().map(|call| format!("{} {}", call.name, call.arguments.as_text())).collect();
    let refusal = reply.parts.iter().filter_map(|part| match &part.body {
        PartBody::Refusal(text) => Some(text.as_str()),
        _ => None,
    });
    (reply.text() + &refusal.collect::<String>(), calls, reply.stop.clone())
}

fn expected(scenario: &str) -> (String, Vec<String>, StopReason) {
    let (text, arguments, stop): (_, &[&str], _) = match scenario {
        "text" => (TEXT, &[], StopReason::EndOfTurn),
        "call" | "reasoning" => ("", &[FIRST], StopReason::ToolCalls),
        "parallel" => ("Both.", &[FIRST, SECOND], StopReason::ToolCalls),
        "refusal" => ("I cannot do that.", &[], StopReason::Refusal),
        "length" => ("Once upon", &[], StopReason::Length),
        other => panic!("no such scenario: {other}"),
    };
    (text.into(), arguments.iter().map(|text| format!("read {text}")).collect(), stop)
}

/// Returns the expected usage. Counts that a format does not report are zero.
fn expected_usage(format: ModelApiFormat) -> TokenUsage {
    match format {
        ModelApiFormat::Ollama => TokenUsage { input: 120, output: 30, ..TokenUsage::default() },
        ModelApiFormat::OpenaiChat
        | ModelApiFormat::OpenaiResponses
        | ModelApiFormat::Anthropic
        | ModelApiFormat::Gemini => {
            TokenUsage { input: 120, output: 30, cache_read: 100, cache_write: 0, reasoning: 8 }
        }
    }
}

#[test]
fn every_scenario_decodes_alike_in_every_format() {
    for (scenario, format) in grid() {
        let reply = decode(scenario, format);
        assert_eq!(said(&reply), expected(scenario), "{scenario} in {format:?}");
        assert_eq!(reply.usage, Some(expected_usage(format)), "{scenario} in {format:?}");
        assert_eq!(reply.model.as_deref(), Some("m-1"), "{scenario} in {format:?}");
        assert_eq!(reply.notes, [], "{scenario} in {format:?}");
    }
}

#[test]
fn streamed_reply_equals_the_whole_reply() {
    for (scenario, format) in grid() {
        let stream = streamed(scenario, format);
        let reply = fold(read_stream(wire(format), [stream.as_slice()]));
        let mut whole = decode(scenario, format);
        if (scenario, format) == ("reasoning", ModelApiFormat::OpenaiChat) {
            // The streamed state is reassembled from deltas, so only the order of its keys differs.
            let state = |reply: &ModelReply| {
                let state = reply.parts.last().unwrap().mark.as_ref().unwrap().state.clone().unwrap();
                serde_json::from_str::<serde_json::Value>(&state).unwrap()
            };
            assert_eq!(state(&reply), state(&whole));
            whole.parts.last_mut().unwrap().mark.clone_from(&reply.parts.last().unwrap().mark);
        }
        assert_eq!(reply, whole, "{scenario} in {format:?}");
    }
}

/// Decodes every recorded stream of a format, split at each byte and byte by byte.
fn check_splits(format: ModelApiFormat) {
    for (scenario, format) in grid().filter(|cell| cell.1 == format) {
        let stream = streamed(scenario, format);
        let events = read_stream(wire(format), [stream.as_slice()]);
        for at in 1..stream.len() {
            let (left, right) = stream.split_at(at);
            assert_eq!(read_stream(wire(format), [left, right]), events, "{scenario} in {format:?} at {at}");
        }
        assert_eq!(
            read_stream(wire(format), stream.chunks(1)),
            events,
            "{scenario} in {format:?}, byte by byte"
        );
    }
}

checks!(check_splits {
    chat_streams_may_be_split_at_any_byte: ModelApiFormat::OpenaiChat;
    responses_streams_may_be_split_at_any_byte: ModelApiFormat::OpenaiResponses;
    anthropic_streams_may_be_split_at_any_byte: ModelApiFormat::Anthropic;
    gemini_streams_may_be_split_at_any_byte: ModelApiFormat::Gemini;
    ollama_streams_may_be_split_at_any_byte: ModelApiFormat::Ollama;
});

/// Some Responses API servers omit the delta events and send only whole items.
#[test]
fn responses_stream_without_deltas_decodes_to_the_same_reply() {
    let kept = |frame: &&str| {
        ["created", "output_item.done", "completed", "incomplete"]
            .iter()
            .any(|kind| frame.contains(&format!("\"type\":\"response.{kind}\"")))
    };
    for (scenario, format) in grid().filter(|(_, format)| *format == ModelApiFormat::OpenaiResponses) {
        let expected = decode(scenario, format);
        let stream = String::from_utf8(streamed(scenario, format)).unwrap().replace("\r\n", "\n");
        let items: String = stream.split_inclusive("\n\n").filter(kept).collect();
        assert!(items.len() < stream.len(), "{scenario}");
        assert_eq!(
            fold(read_stream(wire(format), [items.as_bytes()])),
            expected,
            "{scenario}: only finished items"
        );
        // A repeated item does not change the reply.
        let done = |frame: &&str| frame.contains("output_item.done");
        let doubled: String = items
            .split_inclusive("\n\n")
            .flat_map(|frame| if done(&frame) { vec![frame, frame] } else { vec![frame] })
            .collect();
        assert_eq!(
            fold(read_stream(wire(format), [doubled.as_bytes()])),
            expected,
            "{scenario}: each item twice"
        );
        let whole = String::from_utf8(whole(scenario, format)).unwrap().replace('\n', "");
        let last = format!("data: {{\"type\":\"response.completed\",\"response\":{whole}}}\n\n");
        assert_eq!(
            fold(read_stream(wire(format), [last.as_bytes()])).text(),
            expected.text(),
            "{scenario}: only the last event"
        );
    }
}

#[test]
fn each_part_is_started_filled_and_finished_in_order() {
    for (scenario, format) in grid() {
        let stream = streamed(scenario, format);
        let events = read_stream(wire(format), [stream.as_slice()]);
        assert!(matches!(events.first(), Some(ModelEvent::Started { .. })), "{scenario} in {format:?}");
        assert!(matches!(events.last(), Some(ModelEvent::Finished { .. })), "{scenario} in {format:?}");
        let mut finished: Vec<bool> = Vec::new();
        for event in &events {
            match event {
                ModelEvent::PartStarted { index, .. } => {
                    assert_eq!(*index, finished.len(), "{scenario} in {format:?}");
                    finished.push(false);
                }
                ModelEvent::PartDelta { index, delta: PartDelta::Text(_) } => {
                    assert!(!finished[*index], "{scenario} in {format:?}");
                }
                ModelEvent::PartFinished { index, .. } => {
                    assert!(!std::mem::replace(&mut finished[*index], true), "{scenario} in {format:?}");
                }
                _ => {}
            }
        }
        assert!(finished.iter().all(|done| *done), "{scenario} in {format:?}");
    }
}

#[test]
fn stream_that_ends_early_gives_a_cut_off_reply() {
    for format in ModelApiFormat::ALL {
        let stream = streamed("text", format);
        let half = &stream[..stream.len() / 2];
        let end = half.iter().rposition(|byte| *byte == b'\n').unwrap();
        let reply = fold(read_stream(wire(format), [&half[..=end]]));
        assert_eq!(reply.stop, StopReason::CutOff, "{format:?}");
        assert!(reply.notes.contains(&ReplyNote::NoEnd), "{format:?}");
        assert!(TEXT.starts_with(&reply.text()), "{format:?}: {}", reply.text());
    }
}

#[test]
fn error_inside_a_stream_comes_after_the_earlier_deltas() {
    let error = |format| match format {
        ModelApiFormat::OpenaiChat => {
            "data: {\"error\":{\"code\":502,\"message\":\"overloaded_error upstream\"}}\n\n"
        }
        ModelApiFormat::OpenaiResponses => {
            "event: error\ndata: {\"type\":\"error\",\"code\":\"overloaded_error\",\"message\":\"busy\"}\n\n"
        }
        ModelApiFormat::Anthropic => {
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n"
        }
        ModelApiFormat::Gemini => {
            "data: {\"error\":{\"code\":503,\"message\":\"overloaded_error\",\"status\":\"UNAVAILABLE\"}}\n\n"
        }
        ModelApiFormat::Ollama => "{\"error\":\"overloaded_error\"}\n",
    };
    for format in ModelApiFormat::ALL {
        let stream = streamed("text", format);
        let half = &stream[..stream.len() / 2];
        // Cut the stream after a whole event, not in the middle of one.
        let ends: &[u8] = if format == ModelApiFormat::Ollama { b"\n" } else { b"\n\n" };
        let text = String::from_utf8_lossy(half).replace("\r\n", "\n");
        let end = text.rfind(std::str::from_utf8(ends).unwrap()).unwrap() + ends.len();
        let bytes = [&text.as_bytes()[..end], error(format).as_bytes()].concat();
        let mut events = Vec::new();
        let mut decoder = wire(format).stream_decoder(&DecodeContext::default());
        let failed = decoder.push(&bytes, &mut events).unwrap_err();
        assert_eq!(failed.kind.name(), "overloaded", "{format:?}: {failed}");
        assert!(events.iter().any(|event| matches!(event, ModelEvent::PartDelta { .. })), "{format:?}");
    }
}

#[test]
fn prompt_truncated_by_ollama_is_noted_in_the_reply() {
    let body = whole("text", ModelApiFormat::Ollama);
    let asked = DecodeContext { turn: 1, text_bytes: 63_000, context_tokens: None };
    let reply = wire(ModelApiFormat::Ollama).decode(&body, &asked).unwrap();
    assert_eq!(reply.notes, [ReplyNote::PromptCut { read_tokens: 120, sent_tokens_min: 7875 }]);
}

#[test]
fn citations_are_kept_as_annotations() {
    for format in ModelApiFormat::ALL {
        let reply = decode("text", format);
        let annotations = reply.parts.iter().filter_map(|part| match &part.body {
            PartBody::Text { annotations, .. } => Some(annotations.len()),
            _ => None,
        });
        // Ollama has no citations.
        let count = usize::from(format != ModelApiFormat::Ollama);
        assert_eq!(annotations.sum::<usize>(), count, "{format:?}");
    }
}

/// Returns the content of a reply that is a summary; an empty line shows the start of the next paragraph.
fn summary(events: &[ModelEvent]) -> String {
    let text = |event: &ModelEvent| match event {
        ModelEvent::PartDelta { delta: PartDelta::Summary(text), .. } => text.clone(),
        ModelEvent::PartDelta { delta: PartDelta::SummaryBreak, .. } => "\n\n".to_owned(),
        _ => String::new(),
    };
    events.iter().map(text).collect()
}

#[test]
fn reasoning_summary_of_the_responses_api_is_told_apart_from_raw_reasoning() {
    let wire = wire(ModelApiFormat::OpenaiResponses);
    let item = |content: &str| {
        format!(
            r#"{{"type":"reasoning","id":"rs_1","summary":[{{"type":"summary_text","text":"One."}},{{"type":"summary_text","text":"Two."}}]{content}}}"#
        )
    };
    let raw = item(r#","content":[{"type":"reasoning_text","text":"Hm."}]"#);
    let check = |item: &str, deltas: &str, expected: (&str, &str)| {
        let response = format!(r#"{{"id":"resp_1","status":"completed","output":[{item}]}}"#);
        let added = r#"data: {"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","id":"rs_1","summary":[]}}"#;
        let done = format!(r#"data: {{"type":"response.output_item.done","output_index":0,"item":{item}}}"#);
        let end = format!(r#"data: {{"type":"response.completed","response":{response}}}"#);
        let stream = [added, deltas, &done, &end].join("\n\n") + "\n\n";
        let whole = wire.decode_events(response.as_bytes(), &DecodeContext::default()).unwrap();
        for events in [read_stream(wire, [stream.as_bytes()]), whole] {
            assert_eq!(summary(&events), expected.0, "{stream}");
            let reply = fold(events);
            assert_eq!(reply.parts[0].body, PartBody::Reasoning(expected.1.to_owned()), "{stream}");
            assert_eq!(reply.parts[0].state_for(ModelApiFormat::OpenaiResponses), Some(item), "{stream}");
        }
    };
    let delta = |number: u8, text: &str| {
        format!(
            r#"data: {{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":{number},"delta":"{text}"}}"#
        )
    };
    let deltas = [delta(0, "On"), delta(0, "e."), delta(1, "Two.")].join("\n\n");
    check(&item(""), &deltas, ("One.\n\nTwo.", "One.\n\nTwo."));
    check(&item(""), "", ("One.\n\nTwo.", "One.\n\nTwo."));
    let deltas =
        r#"data: {"type":"response.reasoning_text.delta","output_index":0,"content_index":0,"delta":"Hm."}"#;
    check(&raw, deltas, ("", "Hm."));
}

fn chat(chunks: &[&str]) -> ModelReply {
    let stream = format!("data: {}\n\n", chunks.join("\n\ndata: "));
    fold(read_stream(wire(ModelApiFormat::OpenaiChat), [stream.as_bytes()]))
}

/// Perplexity sends the whole text so far next to each delta.
#[test]
fn cumulative_message_next_to_a_delta_is_not_read_twice() {
    let reply = chat(&[
        r#"{"choices":[{"index":0,"delta":{"content":"Hel"},"message":{"content":"Hel"}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":"lo"},"message":{"content":"Hello"},"finish_reason":"stop"}]}"#,
        "[DONE]",
    ]);
    assert_eq!(reply.text(), "Hello");
    let whole =
        br#"{"choices":[{"delta":{"content":""},"message":{"content":"Hello"},"finish_reason":"stop"}]}"#;
    let reply = wire(ModelApiFormat::OpenaiChat).decode(whole, &DecodeContext::default()).unwrap();
    assert_eq!(reply.text(), "Hello");
}

/// Mistral sends its reasoning as a content list.
#[test]
fn content_list_may_contain_reasoning_and_unknown_parts() {
    let reply = chat(&[
        r#"{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"Hm."}]}]}}]}"#,
        r#"{"choices":[{"delta":{"content":[{"type":"text","text":"Yes."},{"type":"reference","reference_ids":[1]}]},"finish_reason":"stop"}]}"#,
    ]);
    let thoughts = reply.parts.iter().filter_map(|part| match &part.body {
        PartBody::Reasoning(text) => Some(text.as_str()),
        _ => None,
    });
    assert_eq!((thoughts.collect::<String>().as_str(), reply.text().as_str()), ("Hm.", "Yes."));
    assert_eq!(reply.notes, [ReplyNote::UnknownPart { kind: "reference".into() }]);
}

#[test]
fn parallel_calls_without_ids_get_unique_ids() {
    for format in [ModelApiFormat::Gemini, ModelApiFormat::Ollama] {
        let reply = decode("parallel", format);
        let ids: Vec<_> = reply.calls().map(|call| call.id.0.clone()).collect();
        assert_eq!(ids, ["call_haft_1_0", "call_haft_1_1"], "{format:?}");
    }
}
