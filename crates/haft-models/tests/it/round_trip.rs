//! Compares the message that a provider sent with the message that is sent back to it, field by field.

use haft_core::conversation::{Message, ModelApiFormat};
use haft_models::WireFormat;
use serde_json::{Value, json};

use crate::fixture::{OPENROUTER, answers, body, decode, grid, messages_key, request, streamed, whole, wire};

/// Returns the message in a provider's response, in the form in which it must be sent back.
fn sent(format: ModelApiFormat, body: &Value) -> Value {
    match format {
        ModelApiFormat::OpenaiChat => {
            let mut message = body["choices"][0]["message"].clone();
            let fields = message.as_object_mut().unwrap();
            // Only the reasoning details are sent back; the reasoning text is for display. No provider accepts
            // citations.
            fields.remove("reasoning");
            fields.remove("annotations");
            fields.retain(|key, value| key == "content" || !value.is_null());
            json!([message])
        }
        ModelApiFormat::OpenaiResponses => body["output"].clone(),
        ModelApiFormat::Anthropic => json!([{"role": "assistant", "content": body["content"]}]),
        ModelApiFormat::Gemini => {
            let mut content = body["candidates"][0]["content"].clone();
            let parts = content["parts"].as_array_mut().unwrap();
            // Thoughts without a signature are for display only, so haft does not send them back.
            parts.retain(|part| part.get("thought").is_none());
            let unsigned = parts.iter().all(|part| part.get("thoughtSignature").is_none());
            for part in parts.iter_mut().filter(|part| part.get("functionCall").is_some() && unsigned) {
                part["thoughtSignature"] = "skip_thought_signature_validator".into();
            }
            json!([content])
        }
        ModelApiFormat::Ollama => json!([body["message"]]),
    }
}

fn sent_back(wire: &dyn WireFormat, reply: Message) -> Value {
    let answers = answers(&reply, "two lines");
    let mut messages = vec![Message::user("What is in it?"), reply];
    let answered = messages[1].calls().count() > 0;
    messages.extend(answered.then_some(answers));
    let encoded = body(wire, &request(messages));
    let list = encoded[messages_key(wire.format())].as_array().unwrap();
    let after = usize::from(answered)
        * if wire.format() == ModelApiFormat::Gemini || wire.format() == ModelApiFormat::Anthropic {
            1
        } else {
            list_replies(list)
        };
    Value::Array(list[1..list.len() - after].to_vec())
}

fn list_replies(list: &[Value]) -> usize {
    list.iter().filter(|entry| entry["role"] == "tool" || entry["type"] == "function_call_output").count()
}

#[test]
fn decoded_replies_are_sent_back_without_loss() {
    for (scenario, format) in grid() {
        let wire: &dyn WireFormat =
            if format == ModelApiFormat::OpenaiChat { &OPENROUTER } else { wire(format) };
        let original: Value = serde_json::from_slice(&whole(scenario, format)).unwrap();
        let back = sent_back(wire, decode(scenario, format).into_message());
        assert_eq!(back, sent(format, &original), "{scenario} in {format:?}");
    }
}

#[test]
fn streamed_and_whole_replies_encode_to_the_same_request() {
    for (scenario, format) in grid() {
        let wire: &dyn WireFormat =
            if format == ModelApiFormat::OpenaiChat { &OPENROUTER } else { wire(format) };
        let stream = streamed(scenario, format);
        let reply = crate::fixture::fold(crate::fixture::read_stream(wire, [stream.as_slice()]));
        let back = sent_back(wire, reply.into_message());
        assert_eq!(
            back,
            sent_back(wire, decode(scenario, format).into_message()),
            "{scenario} in {format:?}"
        );
    }
}

#[test]
fn generated_image_is_sent_back_with_its_signature() {
    let parts = json!([
        {"text": "Here."},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}, "thoughtSignature": "SIGNATURE"},
    ]);
    let body =
        json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]});
    let wire = wire(ModelApiFormat::Gemini);
    let reply = wire.decode(body.to_string().as_bytes(), &haft_models::DecodeContext::default()).unwrap();
    assert_eq!(sent_back(wire, reply.into_message()), json!([{"role": "model", "parts": parts}]));
}

#[test]
fn call_arguments_are_sent_back_byte_for_byte() {
    for format in ModelApiFormat::ALL {
        let reply = decode("call", format).into_message();
        let answers = answers(&reply, "ok");
        let encoded = crate::fixture::encode(wire(format), &request([Message::user("?"), reply, answers]));
        let text = String::from_utf8(encoded.body).unwrap();
        let written = r#"{"path": "/src/lib.rs", "limit": 1.0}"#;
        let escaped = written.replace('"', "\\\"");
        assert!(text.contains(written) || text.contains(&escaped), "{format:?}: {text}");
    }
}
