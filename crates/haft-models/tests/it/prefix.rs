use std::sync::Arc;

use haft_core::conversation::{Conversation, Message, ModelApiFormat};
use haft_core::model_request::ModelRequest;
use haft_models::{EncodeCounters, EncodeMemo, ReplyDelivery, WireFormat};

use crate::fixture::{OPENROUTER, answers, decode, encode, messages_key, tools, wire};

const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// Returns the encoded message list without its closing brackets and cache markers.
fn message_list(format: ModelApiFormat, body: &[u8]) -> String {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let key = format!("\"{}\":", messages_key(format));
    let start = text.find(&key).unwrap() + key.len();
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<serde_json::Value>();
    values.next().unwrap().unwrap();
    let list = &text[start..start + values.byte_offset()];
    let list = list.replace(MARKER, "");
    list.trim_end_matches([']', '}']).to_owned()
}

fn turns(format: ModelApiFormat) -> Vec<Message> {
    let mut messages = Vec::new();
    for turn in 0..4 {
        messages.push(Message::user(format!("Question {turn}")));
        for scenario in ["reasoning", "parallel"] {
            let mut reply = decode(scenario, format).into_message();
            for part in &mut reply.parts {
                if let haft_core::conversation::PartBody::Call(call) = &mut part.body {
                    call.id.0 = format!("{}_{scenario}_{turn}", call.id.0);
                }
            }
            let answers = answers(&reply, "an answer");
            messages.extend([reply, answers]);
        }
        messages.push(Message::user("Go on."));
        messages.push(decode("text", format).into_message());
    }
    messages
}

fn check(wire: &dyn WireFormat) {
    let format = wire.format();
    let (mut memo, mut conversation, mut before) =
        (EncodeMemo::default(), Conversation::default(), String::new());
    let tools = tools();
    for message in turns(format) {
        conversation.push(message).unwrap();
        let mut request = ModelRequest::new("m-1", Arc::new(conversation.clone()));
        request.system = "Be brief.".into();
        request.tools = tools.clone();
        let kept = wire.encode(&request, ReplyDelivery::Streamed, &mut memo);
        let fresh = wire.encode(&request, ReplyDelivery::Streamed, &mut EncodeMemo::default());
        assert_eq!(kept, fresh, "{format:?}: the memo changed the encoded request");
        let list = message_list(format, &kept.body);
        assert!(list.starts_with(&before), "{format:?}: the list\n{list}\ndoes not start with\n{before}");
        before = list;
    }
    assert!(before.len() > 1000, "{format:?}: {before}");
}

#[test]
fn next_request_starts_with_the_bytes_of_the_previous_messages() {
    ModelApiFormat::ALL.map(wire).into_iter().for_each(check);
    check(&OPENROUTER);
}

fn check_once(wire: &dyn WireFormat) {
    let (mut memo, mut conversation, tools) = (EncodeMemo::default(), Conversation::default(), tools());
    let mut request = ModelRequest::new("m-1", Arc::default());
    (request.system, request.tools) = ("Be brief.".into(), tools);
    for message in turns(wire.format()) {
        conversation.push(message).unwrap();
        request.conversation = Arc::new(conversation.clone());
        wire.encode(&request, ReplyDelivery::Streamed, &mut memo);
        let messages = conversation.messages().len();
        assert_eq!(
            memo.encoded(),
            EncodeCounters { messages, systems: 1, tool_lists: 1 },
            "{:?}",
            wire.format()
        );
    }
    let messages = conversation.messages().len();
    // Only the new tool list is encoded again.
    request.tools = request.tools.iter().take(1).cloned().collect();
    wire.encode(&request, ReplyDelivery::Streamed, &mut memo);
    assert_eq!(memo.encoded(), EncodeCounters { messages, systems: 1, tool_lists: 2 }, "{:?}", wire.format());
    // Everything is encoded for a new conversation.
    request.conversation = crate::fixture::conversation([Message::user("hi")]);
    wire.encode(&request, ReplyDelivery::Streamed, &mut memo);
    assert_eq!(memo.encoded(), EncodeCounters { messages: messages + 1, systems: 2, tool_lists: 3 });
}

#[test]
fn encode_memo_encodes_each_message_once() {
    ModelApiFormat::ALL.map(wire).into_iter().for_each(check_once);
    check_once(&OPENROUTER);
}

#[test]
fn encode_memo_is_reset_for_another_conversation_or_format() {
    let mut memo = EncodeMemo::default();
    let story = |format| crate::fixture::request(turns(format));
    for format in ModelApiFormat::ALL {
        for request in
            [story(format), story(ModelApiFormat::Anthropic), crate::fixture::request([Message::user("hi")])]
        {
            let kept = wire(format).encode(&request, ReplyDelivery::Whole, &mut memo);
            assert_eq!(kept, encode(wire(format), &request), "{format:?}");
        }
    }
}

#[test]
fn encode_memo_is_reset_for_changed_tools_or_system_text() {
    for format in ModelApiFormat::ALL {
        let mut memo = EncodeMemo::default();
        let mut request = crate::fixture::request([Message::user("hi")]);
        request.tools = tools();
        request.system = "Be brief.".into();
        wire(format).encode(&request, ReplyDelivery::Whole, &mut memo);
        request.tools = request.tools.iter().take(1).cloned().collect();
        request.system = "Be long.".into();
        assert_eq!(
            wire(format).encode(&request, ReplyDelivery::Whole, &mut memo),
            encode(wire(format), &request)
        );
    }
}
