//! The model lists, in the format of each provider.

use serde_json::{Value, json};

use crate::script::Script;
use crate::wire::{ApiFormat, CREATED};

/// Returns the model list that clients of a format request.
pub(crate) fn list(format: ApiFormat, script: &Script) -> Value {
    let names = names(script);
    match format {
        ApiFormat::OpenAiChat | ApiFormat::OpenAiResponses => openai(&names),
        ApiFormat::Anthropic => anthropic(&names),
        ApiFormat::Gemini => gemini(&names),
        ApiFormat::Ollama => ollama(&names),
    }
}

fn names(script: &Script) -> Vec<String> {
    match script.models.as_slice() {
        [] => vec!["scripted".to_owned()],
        models => models.to_vec(),
    }
}

fn openai(names: &[String]) -> Value {
    let models: Vec<Value> = names
        .iter()
        .map(|name| json!({ "id": name, "object": "model", "created": CREATED, "owned_by": "script" }))
        .collect();
    json!({ "object": "list", "data": models })
}

fn anthropic(names: &[String]) -> Value {
    let model = |name: &String| {
        json!({
            "type": "model", "id": name, "display_name": name, "created_at": "2023-11-14T22:13:20Z",
            "lifecycle": "active", "max_input_tokens": 200_000, "max_tokens": 64_000,
        })
    };
    let models: Vec<Value> = names.iter().map(model).collect();
    json!({ "data": models, "has_more": false, "first_id": names.first(), "last_id": names.last() })
}

fn gemini(names: &[String]) -> Value {
    let model = |name: &String| {
        json!({
            "name": format!("models/{name}"), "displayName": name, "version": "1", "inputTokenLimit": 1_048_576,
            "outputTokenLimit": 65_536, "supportedGenerationMethods": ["generateContent", "countTokens"],
        })
    };
    json!({ "models": names.iter().map(model).collect::<Vec<Value>>() })
}

fn ollama(names: &[String]) -> Value {
    let model = |name: &String| {
        json!({
            "name": name, "model": name, "modified_at": "2023-11-14T22:13:20Z", "size": 1, "digest": "0",
            "details": { "format": "gguf", "family": "script", "parameter_size": "0B", "quantization_level": "Q4_0" },
        })
    };
    json!({ "models": names.iter().map(model).collect::<Vec<Value>>() })
}
