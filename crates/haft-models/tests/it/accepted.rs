use std::sync::Arc;

use haft_core::conversation::{Message, MessagePart, ModelApiFormat, PartBody, ToolReply};
use haft_core::model_request::{ModelRequest, OutputShape, ReasoningEffort};
use haft_core::output::OutputContent;
use haft_models::openai_chat::{Dialect, OpenaiChat};
use haft_models::{DecodeContext, WireFormat};
use serde_json::{Value, json};

use crate::fixture::{body, call, calls, request, wire};

fn dialect(name: &str) -> OpenaiChat {
    OpenaiChat(Dialect::named(name).unwrap())
}

fn at<'a>(body: &'a Value, pointer: &str) -> &'a Value {
    body.pointer(pointer).unwrap_or(&Value::Null)
}

#[test]
fn reasoning_effort_is_encoded_for_each_model_family() {
    let check = |format: ModelApiFormat, model: &str, effort: ReasoningEffort, expected: &[(&str, Value)]| {
        let asked =
            ModelRequest { reasoning: Some(effort), model: model.into(), ..request([Message::user("?")]) };
        let body = body(wire(format), &asked);
        for (pointer, value) in expected {
            assert_eq!(at(&body, pointer), value, "{model} {effort:?} {pointer}");
        }
    };
    let budget = |tokens: u32| json!({"type": "enabled", "budget_tokens": tokens});
    for model in ["claude-sonnet-4-5", "claude-haiku-4-5-20251001", "claude-opus-4-20250514"] {
        let expected = [
            ("/thinking", budget(16_384)),
            ("/max_tokens", json!(8192 + 16_384)),
            ("/output_config", Value::Null),
        ];
        check(ModelApiFormat::Anthropic, model, ReasoningEffort::High, &expected);
        check(
            ModelApiFormat::Anthropic,
            model,
            ReasoningEffort::Off,
            &[("/thinking", json!({"type": "disabled"}))],
        );
    }
    for model in ["claude-sonnet-4-6", "claude-opus-5"] {
        let expected = [("/thinking", json!({"type": "adaptive"})), ("/output_config/effort", json!("high"))];
        check(ModelApiFormat::Anthropic, model, ReasoningEffort::High, &expected);
    }
    let (level, tokens) =
        ("/generationConfig/thinkingConfig/thinkingLevel", "/generationConfig/thinkingConfig/thinkingBudget");
    check(
        ModelApiFormat::Gemini,
        "gemini-3-flash",
        ReasoningEffort::High,
        &[(level, json!("HIGH")), (tokens, Value::Null)],
    );
    check(
        ModelApiFormat::Gemini,
        "gemini-2.5-flash",
        ReasoningEffort::High,
        &[(level, Value::Null), (tokens, json!(16_384))],
    );
    check(ModelApiFormat::Gemini, "gemini-2.5-flash", ReasoningEffort::Off, &[(tokens, json!(0))]);
    check(ModelApiFormat::Gemini, "gemini-2.5-pro", ReasoningEffort::Off, &[(tokens, json!(128))]);
    check(ModelApiFormat::Ollama, "gpt-oss:20b", ReasoningEffort::High, &[("/think", json!("high"))]);
    check(ModelApiFormat::Ollama, "qwen3", ReasoningEffort::High, &[("/think", json!(true))]);
    check(ModelApiFormat::Ollama, "qwen3", ReasoningEffort::Off, &[("/think", json!(false))]);
}

#[test]
fn encrypted_reasoning_is_requested_only_from_reasoning_models() {
    let asked_for = |model: &str| {
        let asked = ModelRequest { model: model.into(), ..request([Message::user("?")]) };
        body(wire(ModelApiFormat::OpenaiResponses), &asked).get("include").is_some()
    };
    for (model, expected) in [
        ("gpt-4o", false),
        ("openai/gpt-4.1-mini", false),
        ("gpt-5-chat-latest", false),
        ("gpt-5", true),
        ("o4-mini", true),
        ("openai/gpt-oss-120b", true),
    ] {
        assert_eq!(asked_for(model), expected, "{model}");
    }
}

#[test]
fn thinking_budget_leaves_tokens_for_the_answer() {
    let check = |tokens_max: u32, expected: Value| {
        let mut asked = request([Message::user("?")]);
        asked.model = "claude-sonnet-4-5".into();
        asked.reasoning = Some(ReasoningEffort::High);
        asked.output_tokens_max = Some(tokens_max);
        let body = body(wire(ModelApiFormat::Anthropic), &asked);
        assert_eq!(
            (at(&body, "/max_tokens"), at(&body, "/thinking/budget_tokens")),
            (&json!(tokens_max), &expected)
        );
    };
    check(64_000, json!(16_384));
    check(4096, json!(2048));
    check(1500, json!(1024));
    check(1024, Value::Null);
}

/// Gemini includes thinking in the output limit, and rejects a budget above this limit.
#[test]
fn gemini_thinking_budget_is_at_most_half_of_the_output_limit() {
    let check = |model: &str, effort: ReasoningEffort, tokens_max: u32, expected: Value| {
        let mut asked = request([Message::user("?")]);
        asked.model = model.into();
        asked.reasoning = Some(effort);
        asked.output_tokens_max = Some(tokens_max);
        let body = body(wire(ModelApiFormat::Gemini), &asked);
        let found = at(&body, "/generationConfig/thinkingConfig/thinkingBudget");
        assert_eq!(found, &expected, "{model} {effort:?} {tokens_max}");
    };
    check("gemini-2.5-flash", ReasoningEffort::High, 4096, json!(2048));
    check("gemini-2.5-flash", ReasoningEffort::High, 65_536, json!(16_384));
    check("gemini-2.5-pro", ReasoningEffort::Off, 4096, json!(128));
    check("gemini-2.5-pro", ReasoningEffort::Low, 200, Value::Null);
    check("gemini-2.5-flash-lite", ReasoningEffort::Minimal, 4096, json!(512));
    check("gemini-2.5-flash-lite", ReasoningEffort::Off, 100, json!(0));
}

/// Anthropic's models write blank text blocks, but its API rejects them in a request.
#[test]
fn blank_text_blocks_are_not_sent_to_anthropic() {
    let call = call("a", "{}");
    let said =
        Message::assistant(vec![MessagePart::text("\n\n"), MessagePart::new(PartBody::Call(call.clone()))]);
    let mut reply = ToolReply::text(&call, " ");
    reply
        .content
        .push(OutputContent::Image { media_type: "image/png".into(), bytes: b"png".as_slice().into() });
    let mut asked = request([Message::user("?"), said, Message::tool(vec![reply])]);
    asked.system = " \n".into();
    let body = body(wire(ModelApiFormat::Anthropic), &asked);
    let kinds = |pointer: &str| -> Vec<&str> {
        at(&body, pointer).as_array().unwrap().iter().map(|block| block["type"].as_str().unwrap()).collect()
    };
    assert_eq!(kinds("/messages/1/content"), ["tool_use"]);
    assert_eq!(kinds("/messages/2/content/0/content"), ["image"]);
    assert_eq!(body.get("system"), None);
}

#[test]
fn mistral_gets_its_own_field_names() {
    let refused = Message::assistant(vec![MessagePart::new(PartBody::Refusal("I will not.".into()))]);
    let mut asked = request([Message::user("?"), refused, Message::user("Why?")]);
    asked.sampling.seed = Some(7);
    let mistral = body(&dialect("mistral"), &asked);
    assert_eq!((at(&mistral, "/random_seed"), mistral.get("seed")), (&json!(7), None));
    assert_eq!(mistral["messages"][1], json!({"role": "assistant", "content": "I will not."}));
    let openai = body(&dialect("openai"), &asked);
    assert_eq!(
        (at(&openai, "/seed"), at(&openai, "/messages/1/refusal")),
        (&json!(7), &json!("I will not."))
    );
}

/// Gemini signs its calls when it is used through an OpenAI-compatible API, and rejects them without the signature.
#[test]
fn extra_content_of_calls_is_sent_back_only_to_compatible_servers() {
    let extras = json!({"google": {"thought_signature": "SIGNATURE"}});
    let function = json!({"name": "read", "arguments": "{}"});
    let call = json!({"id": "a", "type": "function", "function": function, "extra_content": extras});
    let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
    let reply = json!({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).to_string();
    let compatible = dialect("compatible");
    let reply = compatible.decode(reply.as_bytes(), &DecodeContext::default()).unwrap().into_message();
    let answered = crate::fixture::answers(&reply, "done");
    let asked = request([Message::user("?"), reply, answered]);
    let signed =
        |name: &str| at(&body(&dialect(name), &asked), "/messages/1/tool_calls/0/extra_content").clone();
    assert_eq!((signed("compatible"), signed("vllm")), (extras.clone(), extras));
    for name in ["openai", "groq", "mistral", "deepseek", "xai", "together"] {
        assert_eq!(signed(name), Value::Null, "{name}");
    }
}

/// After tool results, Mistral accepts only an assistant message: no user or system message, and no message with an
/// image.
#[test]
fn mistral_gets_an_assistant_message_after_tool_results() {
    let call = call("a", "{}");
    let mut shown = ToolReply::text(&call, "see");
    shown
        .content
        .push(OutputContent::Image { media_type: "image/png".into(), bytes: b"png".as_slice().into() });
    let plain = ToolReply::text(&call, "done");
    let (calls, answer) = (calls(&[call]), Message::assistant(vec![MessagePart::text("Ah.")]));
    let roles = |wire: &OpenaiChat, rest: Vec<Message>| -> String {
        let asked = request([Message::user("?"), calls.clone()].into_iter().chain(rest));
        let body = body(wire, &asked);
        let roles: Vec<&str> =
            body["messages"].as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
        roles.join(" ")
    };
    let replied = |reply: &ToolReply| Message::tool(vec![reply.clone()]);
    let (mistral, openai) = (dialect("mistral"), dialect("openai"));
    let said = vec![replied(&plain), Message::user("And?")];
    assert_eq!(roles(&mistral, said.clone()), "user assistant tool assistant user");
    assert_eq!(roles(&openai, said), "user assistant tool user");
    assert_eq!(
        roles(&mistral, vec![replied(&plain), Message::system("Last turn.")]),
        "user assistant tool assistant system"
    );
    assert_eq!(roles(&mistral, vec![replied(&shown)]), "user assistant tool assistant user");
    assert_eq!(
        roles(&mistral, vec![replied(&plain), answer, Message::user("And?")]),
        "user assistant tool assistant user"
    );
}

#[test]
fn output_schema_is_sent_as_text_to_servers_without_schema_support() {
    let schema = Arc::new(json!({"type": "object", "properties": {"city": {"type": "string"}}}));
    let output = OutputShape::Schema { name: "place".into(), schema };
    let mut asked = ModelRequest { output, ..request([Message::user("Where?")]) };
    let wire = dialect("deepseek");
    let said = body(&wire, &asked);
    assert_eq!(said["response_format"], json!({"type": "json_object"}));
    let told = at(&said, "/messages/0/content").as_str().unwrap();
    assert!(told.starts_with("Answer with nothing but JSON") && told.contains("\"city\""), "{told}");
    assert_eq!(said["messages"][1]["content"], "Where?");
    asked.system = "Be brief.".into();
    assert!(
        at(&body(&wire, &asked), "/messages/0/content").as_str().unwrap().starts_with("Be brief.\n\nAnswer")
    );
    assert!(wire.unsupported().iter().any(|row| row.feature.name() == "output by schema"));
}
