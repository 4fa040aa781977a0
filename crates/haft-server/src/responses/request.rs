//! The body of `POST /v1/responses`, parsed and checked without IO.
//!
//! Every known field is used, echoed, or refused with its name. Fields that are unknown, or that change no answer, are
//! ignored, because newer clients send fields that this server does not support (see `ignored_fields`).

use std::sync::LazyLock;
use std::time::Duration;

use haft_core::trace_context::TraceContext;
use haft_core::validate::Schema;
use haft_runtime::models::RequestFeature;
use serde_json::{Map, Value, json};

use super::field::{RequestField, invalid, required};
use super::ignored_fields::IgnoredFields;
use super::items::InputItem;
use super::model_settings::ModelSetting;
use super::object::EventOptions;
use super::requested_servers;
use super::tool_choice::{self, RequestedChoice};
use super::tools::{self, RequestTools};
use crate::error::ApiError;

/// The maximum number of items in `input`.
const ITEMS_MAX: usize = 1000;

/// The maximum length of a string in `input`, in characters.
const TEXT_CHARS_MAX: usize = 10_485_760;

/// The default size above which a conversation is compacted, in tokens, if the request sets none.
const COMPACT_THRESHOLD_TOKENS: u32 = 100_000;

/// The maximum length of the name of an output format, in characters.
const FORMAT_NAME_CHARS_MAX: usize = 64;

/// The values of `include` that have no effect, because this server has no items with such content.
const INCLUDED_NEVER: [&str; 6] = [
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
];

/// The value of `include` that adds the warnings of the request to the output.
const INCLUDE_WARNINGS: &str = "haft.warnings";

/// The value of `include` that adds the encrypted turn to the output.
const INCLUDE_SEALED: &str = "reasoning.encrypted_content";

/// A request whose fields were checked.
#[derive(Debug, Clone)]
pub(crate) struct CreateRequest {
    pub(crate) model: Option<String>,
    pub(crate) input: Vec<InputItem>,
    /// The input items in their JSON form.
    pub(crate) input_items: Vec<Value>,
    pub(crate) previous_response_id: Option<String>,
    /// The id of the conversation that the response belongs to.
    pub(crate) conversation: Option<String>,
    pub(crate) instructions: Option<String>,
    pub(crate) tools: RequestTools,
    pub(crate) tool_choice: RequestedChoice,
    pub(crate) format: TextFormat,
    pub(crate) parameters: ModelFields,
    pub(crate) stream: bool,
    pub(crate) store: bool,
    pub(crate) background: bool,
    /// Fields that the response repeats.
    pub(crate) echo: Map<String, Value>,
    /// Warnings for the caller about parts of the request that have no effect.
    pub(crate) warnings: Vec<String>,
    /// The settings that have no effect with some models. They become warnings when the model is known.
    pub(crate) model_settings: Vec<ModelSetting>,
    /// The names of the fields that the server does not know.
    pub(crate) unknown_fields: Vec<String>,
    /// The span of the client, from the headers of the request.
    pub(crate) trace: Option<TraceContext>,
    /// The warnings that are also items of the output: either all warnings, or none.
    pub(crate) shown_warnings: Vec<String>,
    pub(crate) warning_items: WarningItems,
    pub(crate) padding: DeltaPadding,
    pub(crate) sealing: TurnSealing,
    /// The setting for a conversation that does not fit into the context window; `None` if the request does not set it.
    pub(crate) truncation: Option<Truncation>,
    /// The size above which the conversation is compacted before the response, in tokens; `None` for no compaction.
    pub(crate) compact_threshold: Option<u64>,
    /// Limits that only the native API can set.
    pub(crate) narrowing: RunNarrowing,
    /// The options from the HTTP headers. A WebSocket message has no fields for them.
    pub(crate) event_options: EventOptions,
    /// The digest of the request body. An idempotency key can be used again only with the same digest.
    pub(crate) digest: Option<String>,
}

/// Selects whether the output contains the encrypted turn, so that a client can continue a response that is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnSealing {
    Off,
    On,
}

/// Selects whether the warnings of a request are also items of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarningItems {
    Omitted,
    Included,
}

/// Selects whether deltas are padded, so that their lengths on the network reveal less about the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeltaPadding {
    Off,
    On,
}

/// Selects what happens to a conversation that does not fit into the model's context window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truncation {
    /// The server may summarize older parts of the conversation.
    Auto,
    /// The response fails if the conversation does not fit.
    Disabled,
}

/// The fields that affect the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ModelFields {
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) max_tool_calls: Option<u32>,
    pub(crate) parallel_tool_calls: Option<bool>,
    /// The reasoning effort, with the name that agent files use.
    pub(crate) effort: Option<&'static str>,
    /// The reasoning summary, with the name that agent files use.
    pub(crate) summary: Option<&'static str>,
    /// The verbosity, with the name that agent files use.
    pub(crate) verbosity: Option<&'static str>,
}

/// Limits of one run. Each can only lower the limit of its agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RunNarrowing {
    pub(crate) turns_max: Option<u32>,
    /// The maximum cost, in US dollars.
    pub(crate) usd_max: Option<f64>,
    pub(crate) timeout: Option<Duration>,
    /// The only tools of the agent that the model may call.
    pub(crate) allowed_tools: Option<Vec<String>>,
    /// The tools of the request that are known to be tools of HTTP APIs, which need no scope for built-in tools.
    pub(crate) http_tools: Vec<String>,
}

/// The required format of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TextFormat {
    Text,
    JsonObject,
    JsonSchema(Value),
}

/// Parses the body of a request.
pub(crate) fn parse(mut body: Map<String, Value>) -> Result<CreateRequest, ApiError> {
    let mut echo = defaults();
    let (mut warnings, mut settings) = (Vec::new(), Vec::new());
    let mut ignored = IgnoredFields::within(&body);
    let mut take = |name: &'static str| RequestField::new(name, body.remove(name));
    let (input, input_items) = input(take("input"))?;
    warnings.extend(input.iter().filter_map(InputItem::warning).map(str::to_owned));
    let previous_response_id = take("previous_response_id").text()?;
    let conversation = conversation(&take("conversation"), &mut echo)?;
    let instructions = take("instructions").text()?;
    let written_tools = take("tools");
    echo_tools(&written_tools, &mut echo);
    let tools = tools::parse(&written_tools, &mut warnings, &mut settings)?;
    let choice = (take("tool_choice"), take("allowed_tools"), take("forced_tool"));
    let tool_choice = tool_choice::parse(&choice.0, &choice.1, &choice.2, &mut warnings)?;
    echo.insert("tool_choice".into(), tool_choice.wire());
    let (format, verbosity) = text(&take("text"), &mut echo, &mut settings)?;
    let parameters = ModelFields { verbosity, ..parameters(&mut take, &mut echo, &mut settings)? };
    refuse_unsupported(&mut take, &mut echo)?;
    copied(&mut take, &mut echo)?;
    let truncation = truncation(&take("truncation"), &mut echo)?;
    let compact_threshold = context_management(&take("context_management"))?;
    let included = include(&take("include"), &mut warnings)?;
    let padding = stream_options(&take("stream_options"))?;
    service_tier(&take("service_tier"), &mut warnings)?;
    let model = take("model").text()?;
    let stream = take("stream").boolean()?.unwrap_or(false);
    let store = take("store").boolean()?.unwrap_or(true);
    let background = take("background").boolean()?.unwrap_or(false);
    for (name, value) in [("store", store), ("background", background)] {
        echo.insert(name.into(), value.into());
    }
    echo_value(&mut echo, "instructions", instructions.clone().map(Value::from).as_ref());
    echo_value(&mut echo, "previous_response_id", previous_response_id.clone().map(Value::from).as_ref());
    ignored.add_rest(&body);
    warnings.extend(ignored.warnings());
    let unknown_fields = ignored.unknown_names();
    if conversation.is_some() && previous_response_id.is_some() {
        let message = "`conversation` and `previous_response_id` cannot be used together";
        return Err(invalid("conversation", message));
    }
    if background && !store {
        let message = "`background: true` needs `store: true`, so that the result can be read";
        return Err(invalid("background", message));
    }
    let shown_warnings = match included.warnings {
        WarningItems::Included => warnings.clone(),
        WarningItems::Omitted => Vec::new(),
    };
    Ok(CreateRequest {
        model,
        input,
        input_items,
        previous_response_id,
        conversation,
        instructions,
        tools,
        tool_choice,
        format,
        parameters,
        stream,
        store,
        background,
        echo,
        warnings,
        model_settings: settings,
        unknown_fields,
        trace: None,
        shown_warnings,
        warning_items: included.warnings,
        padding,
        sealing: included.sealing,
        truncation,
        compact_threshold,
        narrowing: RunNarrowing::default(),
        event_options: EventOptions::default(),
        digest: None,
    })
}

/// Copies the tools into the response, without secrets and with the fields that the specification requires.
fn echo_tools(written: &RequestField, echo: &mut Map<String, Value>) {
    let mut shown = written.value().cloned();
    shown.iter_mut().for_each(requested_servers::without_secrets);
    shown.iter_mut().for_each(tools::complete);
    echo_value(echo, "tools", shown.as_ref());
}

fn truncation(field: &RequestField, echo: &mut Map<String, Value>) -> Result<Option<Truncation>, ApiError> {
    let word = field.word(&["auto", "disabled"])?;
    echo_value(echo, "truncation", word.map(Value::from).as_ref());
    Ok(word.map(|word| if word == "auto" { Truncation::Auto } else { Truncation::Disabled }))
}

/// Reads `context_management`: at most one entry of type `compaction`, with a threshold in tokens.
fn context_management(field: &RequestField) -> Result<Option<u64>, ApiError> {
    let mut threshold = None;
    for (at, value) in field.array()?.into_iter().flatten().enumerate() {
        let path = format!("context_management[{at}]");
        let Value::Object(entry) = value else {
            return Err(invalid(path.clone(), format!("`{path}` must be an object")));
        };
        let kind = RequestField::new(format!("{path}.type"), entry.get("type").cloned());
        if kind.word(&["compaction"])?.is_none() {
            return Err(kind.wrong("compaction"));
        }
        let tokens =
            RequestField::new(format!("{path}.compact_threshold"), entry.get("compact_threshold").cloned());
        let tokens = tokens.count(1)?.unwrap_or(COMPACT_THRESHOLD_TOKENS);
        if threshold.replace(u64::from(tokens)).is_some() {
            return Err(invalid(path, "`context_management` has two entries of the same type"));
        }
    }
    Ok(threshold)
}

/// The optional parts of the output that a request asks for.
struct IncludedParts {
    warnings: WarningItems,
    sealing: TurnSealing,
}

fn include(field: &RequestField, warnings: &mut Vec<String>) -> Result<IncludedParts, ApiError> {
    let mut included = IncludedParts { warnings: WarningItems::Omitted, sealing: TurnSealing::Off };
    for (at, value) in field.array()?.into_iter().flatten().enumerate() {
        let param = format!("include[{at}]");
        match value.as_str() {
            Some(INCLUDE_WARNINGS) => included.warnings = WarningItems::Included,
            Some(INCLUDE_SEALED) => included.sealing = TurnSealing::On,
            Some("message.output_text.logprobs") => {
                return Err(invalid(param, "this server does not support log probabilities"));
            }
            Some(known) if INCLUDED_NEVER.contains(&known) => {
                warnings.push(format!("the value `{known}` of `include` has no effect"));
            }
            _ => return Err(invalid(param, format!("`include` does not accept the value {value}"))),
        }
    }
    Ok(included)
}

fn stream_options(field: &RequestField) -> Result<DeltaPadding, ApiError> {
    let Some(options) = field.object()? else { return Ok(DeltaPadding::Off) };
    let name = "stream_options.include_obfuscation";
    let pads = RequestField::new(name, options.get("include_obfuscation").cloned()).boolean()?;
    Ok(if pads == Some(true) { DeltaPadding::On } else { DeltaPadding::Off })
}

/// Checks `service_tier`. The server has only one tier, and the response names this tier even if the request asked for
/// another.
fn service_tier(field: &RequestField, warnings: &mut Vec<String>) -> Result<(), ApiError> {
    match field.word(&["auto", "default", "flex", "priority", "scale"])? {
        None | Some("auto" | "default") => {}
        Some(tier) => warnings.push(format!("this server has no service tier `{tier}` and used `default`")),
    }
    Ok(())
}

/// Returns all required fields of a response, with the values for a request that does not set them.
pub(super) fn defaults() -> Map<String, Value> {
    // Every request needs this map, and copying it is cheaper than building it.
    static DEFAULTS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
        let value = json!({
            "previous_response_id": null, "instructions": null, "tools": [], "tool_choice": "auto",
            "truncation": "disabled", "parallel_tool_calls": true, "text": {"format": {"type": "text"}},
            "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_logprobs": 0,
            "temperature": 1.0, "reasoning": null, "max_output_tokens": null, "max_tool_calls": null,
            "store": true, "background": false, "service_tier": "default", "metadata": {},
            "safety_identifier": null, "prompt_cache_key": null,
        });
        match value {
            Value::Object(map) => map,
            _ => Map::new(),
        }
    });
    DEFAULTS.clone()
}

fn echo_value(echo: &mut Map<String, Value>, name: &str, value: Option<&Value>) {
    if let Some(value) = value {
        echo.insert(name.to_owned(), value.clone());
    }
}

/// Parses `input`, and returns its items twice: parsed, and as JSON.
pub(super) fn input(field: RequestField) -> Result<(Vec<InputItem>, Vec<Value>), ApiError> {
    let Some(value) = field.into_value() else { return Ok((Vec::new(), Vec::new())) };
    let items = match value {
        Value::String(text) => {
            if text.chars().count() > TEXT_CHARS_MAX {
                return Err(invalid("input", format!("`input` has more than {TEXT_CHARS_MAX} characters")));
            }
            vec![
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
            ]
        }
        Value::Array(items) if items.len() > ITEMS_MAX => {
            let found = items.len();
            return Err(invalid("input", format!("`input` has {found} items; the limit is {ITEMS_MAX}")));
        }
        Value::Array(items) => items,
        _ => return Err(invalid("input", "`input` must be a string or an array of items")),
    };
    let read = |(at, item): (usize, &Value)| InputItem::parse(&format!("input[{at}]"), item);
    let parsed = items.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok((parsed, items))
}

/// Reads a conversation id, or an object with the id.
fn conversation(field: &RequestField, echo: &mut Map<String, Value>) -> Result<Option<String>, ApiError> {
    let id = match field.value() {
        None => return Ok(None),
        Some(Value::String(id)) => id.clone(),
        Some(Value::Object(object)) => required("conversation", object, "id")?,
        Some(_) => return Err(field.wrong("an id or an object with an id")),
    };
    echo.insert("conversation".into(), json!({"id": id}));
    Ok(Some(id))
}

/// Checks that the output schema compiles. Without this check, the server would accept the request and the run would
/// fail later.
fn usable(schema: &Value) -> Result<Value, ApiError> {
    match Schema::compile(schema) {
        Schema::Checked(_) => Ok(schema.clone()),
        Schema::Unchecked { reason } => Err(invalid(
            "text.format.schema",
            format!("the server cannot use `text.format.schema`: {reason}"),
        )),
    }
}

/// Adds the fields that the specification requires of a `json_schema` format in a response.
fn complete_format(format: &mut Value) {
    if format["type"] != "json_schema" {
        return;
    }
    if format.get("description").is_none() {
        format["description"] = Value::Null;
    }
    if format.get("strict").is_none_or(Value::is_null) {
        format["strict"] = false.into();
    }
}

fn text(
    field: &RequestField,
    echo: &mut Map<String, Value>,
    settings: &mut Vec<ModelSetting>,
) -> Result<(TextFormat, Option<&'static str>), ApiError> {
    let Some(object) = field.object()? else { return Ok((TextFormat::Text, None)) };
    let verbosity = RequestField::new("text.verbosity", object.get("verbosity").cloned());
    let verbosity = verbosity.word(&["low", "medium", "high"])?;
    // `medium` is the default of every model that has this setting.
    if let Some(word @ ("low" | "high")) = verbosity {
        let warning = format!("`text.verbosity` has no effect; the server ignored the value `{word}`");
        settings.push(ModelSetting { feature: RequestFeature::Verbosity, warning });
    }
    let mut shown = object.clone();
    shown.entry("format").or_insert_with(|| json!({"type": "text"}));
    if shown["format"].is_null() {
        shown.insert("format".into(), json!({"type": "text"}));
    }
    if shown.get("verbosity").is_some_and(Value::is_null) {
        shown.remove("verbosity");
    }
    let format = RequestField::new("text.format", object.get("format").cloned());
    let parsed = match format.object()? {
        None => TextFormat::Text,
        Some(format) => match format.get("type").and_then(Value::as_str) {
            Some("text") => TextFormat::Text,
            Some("json_object") => TextFormat::JsonObject,
            Some("json_schema") => json_schema(format)?,
            _ => {
                let message = "`text.format.type` must be one of text, json_object, json_schema";
                return Err(invalid("text.format.type", message));
            }
        },
    };
    complete_format(&mut shown["format"]);
    echo.insert("text".into(), Value::Object(shown));
    Ok((parsed, verbosity))
}

/// Reads a format of type `json_schema`, with the limits of OpenAI's API.
fn json_schema(format: &Map<String, Value>) -> Result<TextFormat, ApiError> {
    let field = |name: &str| RequestField::new(format!("text.format.{name}"), format.get(name).cloned());
    let name = required("text.format", format, "name")?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > FORMAT_NAME_CHARS_MAX || !name.bytes().all(is_plain) {
        let message = format!(
            "`text.format.name` must have 1 to {FORMAT_NAME_CHARS_MAX} characters of a-z, A-Z, 0-9, _ and -"
        );
        return Err(invalid("text.format.name", message));
    }
    field("description").text()?;
    field("strict").boolean()?;
    match format.get("schema") {
        Some(schema @ Value::Object(_)) => Ok(TextFormat::JsonSchema(usable(schema)?)),
        _ => Err(invalid("text.format.schema", "`text.format.schema` must be a JSON Schema")),
    }
}

fn parameters(
    take: &mut dyn FnMut(&'static str) -> RequestField,
    echo: &mut Map<String, Value>,
    settings: &mut Vec<ModelSetting>,
) -> Result<ModelFields, ApiError> {
    let temperature = take("temperature").number(0.0, 2.0)?;
    let top_p = take("top_p").number(0.0, 1.0)?;
    let max_output_tokens = take("max_output_tokens").count(16)?;
    let max_tool_calls = take("max_tool_calls").count(1)?;
    let parallel_tool_calls = take("parallel_tool_calls").boolean()?;
    let reasoning = take("reasoning");
    let (effort, summary) = match reasoning.object()? {
        None => (None, None),
        Some(object) => {
            let (effort, summary) = (object.get("effort"), object.get("summary"));
            echo.insert("reasoning".into(), json!({"effort": effort, "summary": summary}));
            let effort = RequestField::new("reasoning.effort", effort.cloned());
            let effort = effort.word(&["none", "minimal", "low", "medium", "high", "xhigh", "max"])?;
            (effort, reasoning_summary(summary, settings)?)
        }
    };
    let shown = [
        ("temperature", temperature.map(Value::from)),
        ("top_p", top_p.map(Value::from)),
        ("max_output_tokens", max_output_tokens.map(Value::from)),
        ("max_tool_calls", max_tool_calls.map(Value::from)),
        ("parallel_tool_calls", parallel_tool_calls.map(Value::from)),
    ];
    for (name, value) in shown {
        echo_value(echo, name, value.as_ref());
    }
    let effort = effort.map(|word| match word {
        "none" => "off",
        "xhigh" | "max" => "highest",
        other => other,
    });
    Ok(ModelFields {
        temperature,
        top_p,
        max_output_tokens,
        max_tool_calls,
        parallel_tool_calls,
        effort,
        summary,
        verbosity: None,
    })
}

fn reasoning_summary(
    written: Option<&Value>,
    settings: &mut Vec<ModelSetting>,
) -> Result<Option<&'static str>, ApiError> {
    let summary = RequestField::new("reasoning.summary", written.cloned());
    let summary = summary.word(&["concise", "detailed", "auto"])?;
    // haft asks a model that has summaries for `auto`.
    if let Some(word @ ("concise" | "detailed")) = summary {
        let warning = format!("`reasoning.summary` has no effect; the server ignored the value `{word}`");
        settings.push(ModelSetting { feature: RequestFeature::ReasoningSummary, warning });
    }
    Ok(summary)
}

/// Refuses fields that would change the answer and that haft cannot pass on to the model. If haft ignored them, the
/// client would get a wrong answer without an error.
fn refuse_unsupported(
    take: &mut dyn FnMut(&'static str) -> RequestField,
    echo: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    for name in ["presence_penalty", "frequency_penalty"] {
        if take(name).number(-2.0, 2.0)?.is_some_and(|number| number != 0.0) {
            return Err(invalid(
                name,
                format!("this server does not support `{name}`; leave the field out or send 0"),
            ));
        }
    }
    if take("top_logprobs").count(0)?.is_some_and(|count| count > 0) {
        return Err(invalid(
            "top_logprobs",
            "this server does not support `top_logprobs`; leave the field out or send 0",
        ));
    }
    if take("prompt").value().is_some() {
        return Err(invalid(
            "prompt",
            "this server does not support `prompt`; put the text of the prompt into `instructions`",
        ));
    }
    let _ = echo;
    Ok(())
}

/// Checks the fields that the response copies unchanged.
fn copied(
    take: &mut dyn FnMut(&'static str) -> RequestField,
    echo: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    for name in ["safety_identifier", "prompt_cache_key"] {
        let text = take(name).text()?;
        if text.as_ref().is_some_and(|text| text.chars().count() > 64) {
            return Err(invalid(name, format!("the field `{name}` has more than 64 characters")));
        }
        echo_value(echo, name, text.map(Value::from).as_ref());
    }
    let metadata = take("metadata");
    if let Some(pairs) = metadata.object()? {
        check_metadata(pairs)?;
        echo.insert("metadata".into(), Value::Object(pairs.clone()));
    }
    Ok(())
}

pub(crate) fn check_metadata(pairs: &Map<String, Value>) -> Result<(), ApiError> {
    if pairs.len() > 16 {
        return Err(invalid("metadata", format!("`metadata` has {} pairs; the limit is 16", pairs.len())));
    }
    for (key, value) in pairs {
        let fits = value.as_str().is_some_and(|value| value.chars().count() <= 512);
        if key.chars().count() > 64 || !fits {
            let message = "keys of `metadata` can have at most 64 characters, and values must be strings of at most \
                 512 characters";
            return Err(invalid(format!("metadata.{key}"), message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_value(body: Value) -> Result<CreateRequest, ApiError> {
        match body {
            Value::Object(map) => parse(map),
            _ => panic!("not an object"),
        }
    }

    #[test]
    fn error_names_the_invalid_field() {
        let check = |body: Value, param: &str| {
            let error = parse_value(body.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
        };
        let tool = json!({"type": "function", "name": "f"});
        check(json!({"input": 1}), "input");
        check(json!({"input": vec![json!({"role": "user", "content": "x"}); 1001]}), "input");
        check(json!({"input": [{"role": "robot", "content": "x"}]}), "input[0].role");
        check(json!({"input": [{"type": "teapot"}]}), "input[0].type");
        check(
            json!({"input": [{"role": "user", "content": [{"type": "input_video"}]}]}),
            "input[0].content[0].type",
        );
        let output = |part: Value| json!({"input": [{"type": "function_call_output", "call_id": "c", "output": [part]}]});
        check(output(json!({"type": "input_video"})), "input[0].output[0].type");
        check(output(json!({"type": "input_file", "file_id": "f"})), "input[0].output[0].file_id");
        check(output(json!({"type": "input_image", "file_id": "f"})), "input[0].output[0].image_url");
        let text = json!({"type": "input_image", "image_url": "data:text/plain;base64,eA=="});
        check(output(text), "input[0].output[0].image_url");
        check(json!({"input": "x", "tools": vec![tool.clone(); 129]}), "tools");
        check(json!({"input": "x", "tools": [{"type": "function", "name": "a b"}]}), "tools[0].name");
        check(json!({"input": "x", "tools": [tool.clone(), tool]}), "tools[1].name");
        check(json!({"input": "x", "tools": [{"type": "teapot"}]}), "tools[0].type");
        check(json!({"input": "x", "tool_choice": "sometimes"}), "tool_choice");
        check(json!({"input": "x", "tool_choice": {"type": "function"}}), "tool_choice.name");
        check(json!({"input": "x", "temperature": 3}), "temperature");
        check(json!({"input": "x", "temperature": "hot"}), "temperature");
        check(json!({"input": "x", "max_output_tokens": 15}), "max_output_tokens");
        check(json!({"input": "x", "max_tool_calls": 0}), "max_tool_calls");
        check(json!({"input": "x", "stream": "yes"}), "stream");
        check(json!({"input": "x", "metadata": {"a": 1}}), "metadata.a");
        check(json!({"input": "x", "reasoning": {"effort": "huge"}}), "reasoning.effort");
        check(json!({"input": "x", "text": {"format": {"type": "xml"}}}), "text.format.type");
        let bad = json!({"type": "json_schema", "name": "n", "schema": {"type": 12}});
        check(json!({"input": "x", "text": {"format": bad}}), "text.format.schema");
        check(json!({"input": "x", "truncation": "some"}), "truncation");
        check(json!({"input": "x", "include": "x"}), "include");
        check(json!({"input": "x", "include": ["haft.warnings", "teapot"]}), "include[1]");
        check(json!({"input": "x", "include": [1]}), "include[0]");
        check(json!({"input": "x", "include": ["message.output_text.logprobs"]}), "include[0]");
        check(json!({"input": "x", "stream_options": 1}), "stream_options");
        let padded = json!({"include_obfuscation": "yes"});
        check(json!({"input": "x", "stream_options": padded}), "stream_options.include_obfuscation");
        check(json!({"input": "x", "service_tier": "gold"}), "service_tier");
        check(json!({"input": "x", "service_tier": 1}), "service_tier");
        check(json!({"input": [{"type": "item_reference"}]}), "input[0].id");
        check(
            json!({"input": [{"type": "mcp_approval_response", "approve": true}]}),
            "input[0].approval_request_id",
        );
        let answer = json!({"type": "mcp_approval_response", "approval_request_id": "a", "approve": "yes"});
        check(json!({"input": [answer]}), "input[0].approve");
        let mcp = |field: &str, value: Value| {
            let mut tool = json!({"type": "mcp", "server_label": "s"});
            tool[field] = value;
            json!({"input": "x", "tools": [tool]})
        };
        check(mcp("require_approval", json!("sometimes")), "tools[0].require_approval");
        check(mcp("require_approval", json!({"maybe": {}})), "tools[0].require_approval.maybe");
        check(mcp("require_approval", json!({"always": 1})), "tools[0].require_approval.always");
        let names = json!({"never": {"tool_names": "x"}});
        check(mcp("require_approval", names), "tools[0].require_approval.never.tool_names");
        let filter = json!({"always": {"read_only": 1}});
        check(mcp("require_approval", filter), "tools[0].require_approval.always.read_only");
        check(mcp("allowed_tools", json!({"read_only": "yes"})), "tools[0].allowed_tools.read_only");
        check(mcp("allowed_tools", json!({"tool_names": "x"})), "tools[0].allowed_tools.tool_names");
        check(mcp("server_url", json!(1)), "tools[0].server_url");
        check(json!({"input": "x", "top_logprobs": 2}), "top_logprobs");
        check(json!({"input": "x", "presence_penalty": 1}), "presence_penalty");
        check(json!({"input": "x", "prompt": {"id": "p"}}), "prompt");
        check(json!({"input": "x", "conversation": 1}), "conversation");
        let both = json!({"input": "x", "conversation": "conv_1", "previous_response_id": "resp_1"});
        check(both, "conversation");
        check(json!({"input": "x", "background": true, "store": false}), "background");
        check(json!({"input": "x", "prompt_cache_key": "k".repeat(65)}), "prompt_cache_key");
    }

    #[test]
    fn error_names_the_invalid_field_of_an_output_format_or_of_a_selection_of_tools() {
        let check = |body: Value, param: &str| {
            let error = parse_value(body.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
        };
        for (field, value) in [
            ("name", Value::Null),
            ("name", json!(1)),
            ("name", json!("")),
            ("name", json!("a b")),
            ("name", json!("n".repeat(65))),
            ("description", json!(1)),
            ("strict", json!("yes")),
            ("schema", json!("x")),
        ] {
            let mut format = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}});
            format[field] = value;
            check(json!({"input": "x", "text": {"format": format}}), &format!("text.format.{field}"));
        }
        let mcp = |field: &str, value: Value| {
            let mut tool = json!({"type": "mcp", "server_label": "s"});
            tool[field] = value;
            json!({"input": "x", "tools": [tool]})
        };
        let filter = |selection: Value| json!({"never": selection});
        check(
            mcp("require_approval", filter(json!({"names": ["x"]}))),
            "tools[0].require_approval.never.names",
        );
        check(mcp("require_approval", filter(json!({}))), "tools[0].require_approval.never");
        check(
            mcp("require_approval", filter(json!({"tool_names": null}))),
            "tools[0].require_approval.never",
        );
        check(mcp("allowed_tools", json!({"names": ["x"]})), "tools[0].allowed_tools.names");
        check(mcp("allowed_tools", json!({})), "tools[0].allowed_tools");
    }

    #[test]
    fn unknown_top_level_fields_are_ignored_with_a_warning() {
        let request = parse_value(json!({"input": "x", "shiny": 1, "user": "u"})).unwrap();
        assert_eq!(request.warnings, ["the server ignored the unknown field `shiny`"]);
    }

    #[test]
    fn fields_without_effect_cause_a_warning() {
        let check = |body: Value, expected: &str| {
            let request = parse_value(body.clone()).unwrap();
            assert!(request.warnings.iter().any(|warning| warning.contains(expected)), "{body}");
        };
        check(json!({"input": "x", "include": ["web_search_call.results"]}), "web_search_call.results");
        check(json!({"input": "x", "service_tier": "flex"}), "flex");
        let with_some_models = |body: Value, expected: &str| {
            let request = parse_value(body.clone()).unwrap();
            assert!(request.model_settings[0].warning.contains(expected), "{body}");
        };
        with_some_models(json!({"input": "x", "text": {"verbosity": "low"}}), "text.verbosity");
        with_some_models(json!({"input": "x", "reasoning": {"summary": "detailed"}}), "reasoning.summary");
        let strict = json!({"type": "function", "name": "f", "strict": true});
        with_some_models(json!({"input": "x", "tools": [strict]}), "tools[0].strict");
        let nested = json!({"type": "function", "function": {"name": "f", "strict": true}});
        with_some_models(json!({"input": "x", "tools": [nested]}), "tools[0].function.strict");
        let usual = json!({
            "input": "x", "text": {"verbosity": "medium"}, "reasoning": {"summary": "auto"},
            "tools": [{"type": "function", "name": "f", "strict": false}],
        });
        let usual = parse_value(usual).unwrap();
        assert_eq!((usual.warnings.len(), usual.model_settings.len()), (0, 0));
        let quiet =
            json!({"input": "x", "service_tier": "auto", "stream_options": {"include_obfuscation": true}});
        let request = parse_value(quiet).unwrap();
        assert_eq!((request.warnings.len(), request.padding), (0, DeltaPadding::On));
        let request = parse_value(json!({"input": "x", "include": ["reasoning.encrypted_content"]})).unwrap();
        assert_eq!((request.warnings.len(), request.sealing), (0, TurnSealing::On));
    }

    #[test]
    fn repeated_function_tool_has_all_required_fields() {
        let plain = json!({"type": "function", "name": "f", "defer_loading": true});
        let nested = json!({"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}});
        let request = parse_value(json!({"input": "x", "tools": [plain, nested]})).unwrap();
        let expected = json!([
            {"type": "function", "name": "f", "description": null, "parameters": null, "strict": null,
             "defer_loading": true},
            {"type": "function", "name": "g", "description": null, "parameters": {"type": "object"},
             "strict": null},
        ]);
        assert_eq!(request.echo["tools"], expected);
    }

    #[test]
    fn null_field_is_treated_like_a_missing_field() {
        let names =
            ["model", "tools", "tool_choice", "text", "temperature", "reasoning", "metadata", "instructions"];
        let mut body = json!({"input": "x"});
        for name in names {
            body[name] = Value::Null;
        }
        let request = parse_value(body).unwrap();
        assert_eq!(request.echo, defaults());
    }

    #[test]
    fn response_copies_the_fields_of_its_request() {
        let body = json!({
            "input": "x", "temperature": 0.5, "metadata": {"a": "b"}, "tool_choice": "required",
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
            "reasoning": {"effort": "xhigh"}, "max_tool_calls": 3, "store": false,
        });
        let request = parse_value(body.clone()).unwrap();
        for name in ["temperature", "metadata", "tool_choice", "max_tool_calls", "store"] {
            assert_eq!(request.echo[name], body[name], "{name}");
        }
        let mut format = body["text"]["format"].clone();
        format["description"] = Value::Null;
        format["strict"] = false.into();
        assert_eq!(request.echo["text"], json!({"format": format}));
        assert_eq!(request.echo["reasoning"], json!({"effort": "xhigh", "summary": null}));
        assert_eq!(request.parameters.effort, Some("highest"));
    }
}
