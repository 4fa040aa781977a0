use haft_core::conversation::{Message, ModelApiFormat};

use crate::fixture::{OPENROUTER, answers, decode, encode, request, wire};

const REASONING: &str = "I should look at the file first.";

/// Returns a conversation in one format with reasoning and a call, then two parallel calls.
fn story(from: ModelApiFormat) -> Vec<Message> {
    let first = decode("reasoning", from).into_message();
    let mut second = decode("parallel", from).into_message();
    for (number, part) in second.parts.iter_mut().enumerate() {
        if let haft_core::conversation::PartBody::Call(call) = &mut part.body {
            call.id.0 = format!("{}-{number}", call.id.0);
        }
    }
    let (first_answers, second_answers) =
        (answers(&first, "first answer"), answers(&second, "second answer"));
    vec![Message::user("Look."), first, first_answers, second, second_answers, Message::user("And now?")]
}

#[test]
fn any_conversation_can_continue_in_any_format() {
    for from in ModelApiFormat::ALL {
        for to in ModelApiFormat::ALL {
            let encoded = encode(wire(to), &request(story(from)));
            let text = String::from_utf8(encoded.body).unwrap();
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{from:?} to {to:?}: {text}");
            for said in ["Look.", "Both.", "first answer", "second answer", "And now?", "/räksmörgås"] {
                assert!(text.contains(said), "{from:?} to {to:?}: `{said}` is not in {text}");
            }
            if from != to {
                assert!(!text.contains("SIGNATURE"), "{from:?} to {to:?}: {text}");
                assert!(!text.contains(REASONING), "{from:?} to {to:?}: {text}");
            }
        }
    }
}

#[test]
fn signatures_and_ids_are_sent_back_to_their_own_format() {
    for (format, states) in [
        (ModelApiFormat::OpenaiChat, vec!["SIGNATURE-chat"]),
        (ModelApiFormat::OpenaiResponses, vec!["SIGNATURE-responses", "rs_1", "fc_1"]),
        (ModelApiFormat::Anthropic, vec!["SIGNATURE-anthropic", "SIGNATURE-redacted", REASONING]),
        (ModelApiFormat::Gemini, vec!["SIGNATURE-gemini", "g-1"]),
        (ModelApiFormat::Ollama, vec![REASONING]),
    ] {
        let wire = if format == ModelApiFormat::OpenaiChat { &OPENROUTER } else { wire(format) };
        let text = String::from_utf8(encode(wire, &request(story(format))).body).unwrap();
        for state in states {
            assert!(text.contains(state), "{format:?}: `{state}` is not in {text}");
        }
    }
}

#[test]
fn rewritten_call_id_is_the_same_in_call_and_reply() {
    let mistral = haft_models::openai_chat::OpenaiChat(&haft_models::openai_chat::dialect::MISTRAL);
    let body = crate::fixture::body(&mistral, &request(story(ModelApiFormat::Anthropic)));
    let messages = body["messages"].as_array().unwrap();
    let asked: Vec<_> =
        messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten().collect();
    let answered: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
    assert_eq!((asked.len(), answered.len()), (3, 3));
    for (call, reply) in asked.iter().zip(&answered) {
        assert_eq!(call["id"], reply["tool_call_id"]);
        assert_eq!(call["id"].as_str().unwrap().len(), 9);
    }
}
