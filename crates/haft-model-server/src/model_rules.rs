//! Refuses the request fields that the real models refuse, by the name of the model. The tables come from the documents
//! of the providers and from their error messages, and not from the client that they check.

use serde_json::Value;

use crate::schema_check::{self, SchemaUse};
use crate::wire::{ApiFormat, ApiRequest};

/// Models of OpenAI that reason, by the beginning of their names; the first match counts. The lists are the accepted
/// levels of effort. The flag says if a temperature is accepted once the effort is `none`.
const OPENAI: [(&str, &[&str], bool); 9] = [
    ("gpt-5-chat", &[], true),
    ("gpt-5.6", &["none", "low", "medium", "high", "xhigh"], false),
    ("gpt-5.1", &["none", "low", "medium", "high"], true),
    ("gpt-5.", &["none", "low", "medium", "high", "xhigh"], true),
    ("gpt-5", &["minimal", "low", "medium", "high"], false),
    ("gpt-4", &[], true),
    ("o1", &["low", "medium", "high"], false),
    ("o3", &["low", "medium", "high"], false),
    ("o4", &["low", "medium", "high"], false),
];

/// Models of Ollama with the capability `thinking`. Their `-instruct` tags lack it: Ollama parses the replies of
/// `qwen3-vl:8b` and of `qwen3-vl:8b-instruct` differently.
const OLLAMA_THINKING: [&str; 6] =
    ["qwen3:", "qwen3-vl", "deepseek-r1", "deepseek-v3", "gpt-oss", "magistral"];

/// Ranges of the thinking budget of Gemini. Other models with a thinking budget are refused.
const GEMINI_BUDGETS: [(&str, u64, u64); 3] = [
    ("gemini-2.5-pro", 128, 32_768),
    ("gemini-2.5-flash-lite", 512, 24_576),
    ("gemini-2.5-flash", 0, 24_576),
];

pub(crate) fn check(format: ApiFormat, request: &ApiRequest) -> Result<(), String> {
    let body = &request.body;
    let model = match format {
        ApiFormat::Gemini => request.address.model.as_str(),
        ApiFormat::OpenAiChat | ApiFormat::OpenAiResponses | ApiFormat::Anthropic | ApiFormat::Ollama => {
            body["model"].as_str().unwrap_or_default()
        }
    };
    match format {
        ApiFormat::OpenAiChat => check_openai(model, body, &body["reasoning_effort"])?,
        ApiFormat::OpenAiResponses => check_openai(model, body, &body["reasoning"]["effort"])?,
        ApiFormat::Anthropic => check_anthropic(model, body)?,
        ApiFormat::Gemini => check_gemini(model, &body["generationConfig"])?,
        ApiFormat::Ollama => check_ollama(model, body)?,
    }
    check_tools(format, body)
}

fn check_openai(model: &str, body: &Value, effort: &Value) -> Result<(), String> {
    let Some((_, efforts, sampling_when_off)) = OPENAI.iter().find(|(start, ..)| model.starts_with(start))
    else {
        return Ok(());
    };
    if let Some(effort) = effort.as_str()
        && !efforts.contains(&effort)
    {
        return Err(format!("Unsupported value: '{effort}' is not supported with the '{model}' model."));
    }
    let is_off = efforts.is_empty() || effort == "none";
    let may_sample = *sampling_when_off && is_off;
    let sampled = ["temperature", "top_p", "presence_penalty", "frequency_penalty"];
    match sampled.iter().find(|field| !may_sample && body.get(**field).is_some()) {
        Some(field) => Err(format!("Unsupported parameter: '{field}' is not supported with this model.")),
        None => Ok(()),
    }
}

fn check_anthropic(model: &str, body: &Value) -> Result<(), String> {
    if !model.starts_with("claude-") {
        return Ok(());
    }
    let kind = body["thinking"]["type"].as_str().unwrap_or("disabled");
    let thinks = kind != "disabled";
    if thinks && (model.starts_with("claude-3-5") || model.starts_with("claude-3-haiku")) {
        return Err("thinking: this model does not support thinking".to_owned());
    }
    if kind == "enabled" && body["thinking"]["budget_tokens"].as_u64() >= body["max_tokens"].as_u64() {
        return Err("max_tokens must be greater than thinking.budget_tokens".to_owned());
    }
    let has = |field: &str| body.get(field).is_some();
    let samples = ["temperature", "top_p", "top_k"].into_iter().find(|field| has(field));
    let is_new = model.starts_with("claude-sonnet-5") || model.starts_with("claude-opus-5");
    if let Some(field) = samples.filter(|_| thinks || is_new) {
        return Err(format!("{field} may not be set when thinking is enabled or with this model"));
    }
    let one_only = ["-4-1", "-4-5", "-4-6"].iter().any(|version| model.contains(version));
    if one_only && has("temperature") && has("top_p") {
        return Err("`temperature` and `top_p` cannot both be specified for this model".to_owned());
    }
    Ok(())
}

fn check_gemini(model: &str, config: &Value) -> Result<(), String> {
    let thinking = &config["thinkingConfig"];
    if thinking.is_null() || !model.contains("gemini-") {
        return Ok(());
    }
    if model.contains("gemini-1") || model.contains("gemini-2.0") {
        return Err("Unable to submit request because thinking is not supported by this model".to_owned());
    }
    let Some(budget) = thinking["thinkingBudget"].as_u64() else { return Ok(()) };
    let range = GEMINI_BUDGETS.iter().find(|(name, ..)| model.contains(name));
    let Some((_, least, most)) = range else {
        return Err("thinking_budget is not supported by this model; use thinking_level".to_owned());
    };
    let may_be_off = !model.contains("pro");
    let is_accepted = (*least..=*most).contains(&budget) || budget == 0 && may_be_off;
    if !is_accepted {
        return Err(format!(
            "The thinking budget {budget} is invalid. Please choose a value between {least} and {most}."
        ));
    }
    if config["maxOutputTokens"].as_u64().is_some_and(|output| budget >= output) {
        return Err("The thinking budget must be below max_output_tokens".to_owned());
    }
    Ok(())
}

fn check_ollama(model: &str, body: &Value) -> Result<(), String> {
    let wants = !matches!(body["think"], Value::Null | Value::Bool(false));
    let thinks = OLLAMA_THINKING.iter().any(|start| model.starts_with(start)) && !model.contains("-instruct");
    let can = thinks || !model.contains(':');
    if wants && !can { Err(format!("\"{model}\" does not support thinking")) } else { Ok(()) }
}

/// Checks the schemas of all tools: one bad schema refuses the whole request.
fn check_tools(format: ApiFormat, body: &Value) -> Result<(), String> {
    let (grammar, schema): (SchemaUse, fn(&Value) -> &Value) = match format {
        ApiFormat::OpenAiChat => (SchemaUse::Tools, |tool| &tool["function"]["parameters"]),
        ApiFormat::OpenAiResponses => (SchemaUse::Tools, |tool| &tool["parameters"]),
        ApiFormat::Anthropic => (SchemaUse::AnthropicTools, |tool| &tool["input_schema"]),
        ApiFormat::Gemini | ApiFormat::Ollama => return Ok(()),
    };
    let tools = body["tools"].as_array().into_iter().flatten();
    for (at, schema) in tools.map(schema).enumerate().filter(|(_, schema)| !schema.is_null()) {
        schema_check::check_everywhere(grammar, schema)
            .map_err(|problem| format!("tools.{at}: invalid schema: {problem}"))?;
    }
    Ok(())
}
