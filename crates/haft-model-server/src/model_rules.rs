//! Rejects the request fields that the real models reject, by model name. The tables come from the providers'
//! documentation and error messages, not from the client that they check.

use serde_json::Value;

use crate::schema_check::{self, SchemaUse};
use crate::wire::{ApiFormat, ApiRequest};

/// Selects which requests to an OpenAI or xAI model may set a temperature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TemperatureRule {
    Always,
    Never,
    /// Only requests with the effort `none` may set a temperature.
    Off,
    /// Only requests with the effort `none` may set a temperature, and `none` is the default.
    OffOrUnset,
}

/// OpenAI and xAI models, by name prefix; the first match is used. Each list contains the effort levels that the models
/// accept.
const OPENAI: [(&str, &[&str], TemperatureRule); 30] = [
    ("gpt-5-chat", &[], TemperatureRule::Always),
    ("gpt-5.1-chat", &["medium"], TemperatureRule::Never),
    ("gpt-5.2-chat", &["medium"], TemperatureRule::Never),
    ("gpt-5.3-chat", &["medium"], TemperatureRule::Never),
    ("gpt-5-search", &[], TemperatureRule::Never),
    ("gpt-5-pro", &["high"], TemperatureRule::Never),
    ("gpt-5.2-pro", &["medium", "high", "xhigh"], TemperatureRule::Never),
    ("gpt-5.4-pro", &["medium", "high", "xhigh"], TemperatureRule::Never),
    ("gpt-5.5-pro", &["medium", "high", "xhigh"], TemperatureRule::Never),
    ("gpt-5-codex", &["low", "medium", "high"], TemperatureRule::Never),
    ("gpt-5.1-codex-max", &["low", "medium", "high", "xhigh"], TemperatureRule::Never),
    ("gpt-5.1-codex", &["low", "medium", "high"], TemperatureRule::Never),
    ("gpt-6-astra", &["low", "medium", "high", "xhigh", "max"], TemperatureRule::Never),
    ("gpt-6.1-sol", &["low", "medium", "high", "xhigh", "max"], TemperatureRule::Never),
    ("gpt-6", &["none", "low", "medium", "high", "xhigh", "max"], TemperatureRule::Off),
    ("gpt-5.6", &["none", "low", "medium", "high", "xhigh"], TemperatureRule::Never),
    ("gpt-5.5", &["none", "low", "medium", "high", "xhigh"], TemperatureRule::Off),
    ("gpt-5.1", &["none", "low", "medium", "high"], TemperatureRule::OffOrUnset),
    ("gpt-5.", &["none", "low", "medium", "high", "xhigh"], TemperatureRule::OffOrUnset),
    ("gpt-5", &["minimal", "low", "medium", "high"], TemperatureRule::Never),
    ("gpt-4", &[], TemperatureRule::Always),
    ("o1", &["low", "medium", "high"], TemperatureRule::Never),
    ("o3", &["low", "medium", "high"], TemperatureRule::Never),
    ("o4", &["low", "medium", "high"], TemperatureRule::Never),
    ("grok-3-mini", &["none", "low", "high"], TemperatureRule::Always),
    ("grok-4.5", &["low", "medium", "high"], TemperatureRule::Always),
    ("grok-4.6", &["low", "medium", "high"], TemperatureRule::Always),
    ("grok-4.3", &["none", "low", "medium", "high"], TemperatureRule::Always),
    ("grok-4-fast", &["none", "low", "medium", "high"], TemperatureRule::Always),
    ("grok-4.20", &[], TemperatureRule::Always),
];

/// Models for which the Chat Completions API accepts no tools while they reason. The flag states whether a model
/// reasons by default.
const CHAT_TOOLS: [(&str, bool); 4] =
    [("gpt-5.4", false), ("gpt-5.5", true), ("gpt-5.6", true), ("gpt-6", true)];

/// The name prefixes of models that reject stop sequences and penalties.
const NO_STOP: [&str; 6] = ["gpt-5.", "gpt-6", "o1", "o3", "o4", "grok-"];

/// Anthropic models that cannot turn thinking off, and Anthropic models that cannot be forced to call a tool.
const ALWAYS_THINK: [&str; 4] = ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-", "claude-mythos-"];
const NO_FORCED_CALL: [&str; 4] =
    ["claude-opus-5-5", "claude-sonnet-5-5", "claude-fable-5-1", "claude-mythos-5-1"];

/// Anthropic models that reject a temperature.
const NO_TEMPERATURE: [&str; 7] = [
    "claude-opus-4-7",
    "claude-opus-4-8",
    "claude-opus-5",
    "claude-sonnet-5",
    "claude-haiku-5",
    "claude-fable-",
    "claude-mythos-",
];

/// The thinking levels of Gemini models that do not accept all levels.
const GEMINI_LEVELS: [(&str, &[&str]); 5] = [
    ("gemini-3-pro", &["LOW", "HIGH"]),
    ("gemini-3.1-pro", &["LOW", "MEDIUM", "HIGH"]),
    ("gemini-3.7-flash", &["LOW", "MEDIUM", "HIGH"]),
    ("gemini-3.8-flash", &["LOW", "MEDIUM", "HIGH"]),
    ("gemini-4-argon", &["LOW", "MEDIUM", "HIGH"]),
];

/// Ollama models with the capability `thinking`. Their `-instruct` tags do not have it: Ollama parses the replies of
/// `qwen3-vl:8b` and of `qwen3-vl:8b-instruct` differently.
const OLLAMA_THINKING: [&str; 7] =
    ["qwen3:", "qwen3-vl", "deepseek-r1", "deepseek-v3", "gpt-oss", "magistral", "gemma4"];

/// The allowed thinking budgets of Gemini models. All other Gemini models reject a thinking budget.
const GEMINI_BUDGETS: [(&str, u64, u64); 4] = [
    ("gemini-2.5-computer-use", 128, 32_768),
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
        ApiFormat::OpenAiChat => {
            check_openai(model, body, &body["reasoning_effort"])?;
            check_chat_tools(model, body)?;
        }
        ApiFormat::OpenAiResponses => check_openai(model, body, &body["reasoning"]["effort"])?,
        ApiFormat::Anthropic => check_anthropic(model, body)?,
        ApiFormat::Gemini => check_gemini(model, &body["generationConfig"])?,
        ApiFormat::Ollama => check_ollama(model, body)?,
    }
    check_tools(format, body)
}

fn check_openai(model: &str, body: &Value, effort: &Value) -> Result<(), String> {
    let Some((_, efforts, rule)) = OPENAI.iter().find(|(start, ..)| model.starts_with(start)) else {
        return Ok(());
    };
    if let Some(effort) = effort.as_str()
        && !efforts.contains(&effort)
    {
        return Err(format!("Unsupported value: '{effort}' is not supported with the '{model}' model."));
    }
    let may_sample = match rule {
        TemperatureRule::Always => true,
        TemperatureRule::Never => false,
        TemperatureRule::Off => effort == "none",
        TemperatureRule::OffOrUnset => effort.is_null() || effort == "none",
    };
    let may_stop = !NO_STOP.iter().any(|start| model.starts_with(start));
    let sampled = [("temperature", may_sample), ("top_p", may_sample)];
    let stopped =
        ["presence_penalty", "frequency_penalty", "stop"].map(|field| (field, may_sample && may_stop));
    let refused = sampled.iter().chain(&stopped).find(|(field, may)| !may && body.get(*field).is_some());
    match refused.map(|(field, _)| field) {
        Some(field) => Err(format!("Unsupported parameter: '{field}' is not supported with this model.")),
        None => Ok(()),
    }
}

fn check_chat_tools(model: &str, body: &Value) -> Result<(), String> {
    let rule = CHAT_TOOLS.iter().find(|(start, _)| model.starts_with(start));
    let Some((_, reasons_by_default)) = rule.filter(|_| body["tools"].is_array()) else { return Ok(()) };
    let reasons = match body["reasoning_effort"].as_str() {
        Some(effort) => effort != "none",
        None => *reasons_by_default,
    };
    if reasons {
        return Err(format!(
            "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions."
        ));
    }
    Ok(())
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
    let is_one_of = |starts: &[&str]| starts.iter().any(|start| model.starts_with(start));
    if body["thinking"]["type"] == "disabled" && is_one_of(&ALWAYS_THINK) {
        return Err("thinking.type: `disabled` is not supported by this model".to_owned());
    }
    let is_forced = ["any", "tool"].iter().any(|kind| body["tool_choice"]["type"] == *kind);
    if is_forced && is_one_of(&NO_FORCED_CALL) {
        return Err("tool_choice: this model does not support a forced tool call".to_owned());
    }
    let is_new = is_one_of(&NO_TEMPERATURE);
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
    if thinking.is_null() || !model.contains("gemini-") && !model.contains("gemma-") {
        return Ok(());
    }
    if ["gemini-1", "gemini-2.0", "gemini-2.5-flash-image", "gemma-"].iter().any(|name| model.contains(name))
    {
        return Err("Unable to submit request because thinking is not supported by this model".to_owned());
    }
    let levels = GEMINI_LEVELS.iter().find(|(name, _)| model.contains(name));
    if let (Some(level), Some((_, levels))) = (thinking["thinkingLevel"].as_str(), levels)
        && !levels.contains(&level)
    {
        return Err(format!("Thinking level {level} is not supported for this model."));
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

/// Checks the schemas of all tools. One bad schema rejects the whole request.
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
