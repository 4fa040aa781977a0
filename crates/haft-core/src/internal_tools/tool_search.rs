//! Two tools for access to tools that are not listed in the request: `tool_search` finds them, and `tool_call` calls
//! them.
//!
//! The run replaces a `tool_call` by the call inside it before any other step. Rules, approvals, queues, events and the
//! journal therefore see the inner tool.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::arguments::{ArgumentLimits, RawArguments};
use crate::model_request::ModelTool;
use crate::tool::ToolCall;

/// The name of the tool that searches for tools.
pub const TOOL_SEARCH: &str = "tool_search";

/// The name of the tool that calls a tool which is not listed in the request.
pub const TOOL_CALL: &str = "tool_call";

/// The maximum number of tools that one search returns.
pub const SEARCH_HITS_MAX: usize = 20;

/// The maximum depth of nested `tool_call`s that are unwrapped. A deeper nesting is a mistake of the model.
const WRAPPERS_MAX: usize = 4;

/// The arguments of a search.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ToolSearchQuery {
    /// Search words, or `select:` followed by exact names.
    #[serde(default)]
    pub query: String,
    /// The maximum number of tools to return; `None` for [`SEARCH_HITS_MAX`].
    #[serde(default)]
    pub limit: Option<u64>,
}

impl ToolSearchQuery {
    /// Parses the arguments. The error text is for the model.
    pub fn read(arguments: &RawArguments) -> Result<Self, String> {
        super::read(arguments)
    }

    /// Returns the maximum number of tools to return, from 1 to [`SEARCH_HITS_MAX`].
    pub fn hits_max(&self) -> usize {
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        limit.unwrap_or(SEARCH_HITS_MAX).clamp(1, SEARCH_HITS_MAX)
    }
}

/// Returns the definition of the search tool. `roster` lists the sources of the tools; it never changes during a run.
pub fn search_tool(roster: &str) -> ModelTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What the tool should do, in a few words, or `select:NAME,NAME`."},
            "limit": {"type": "integer", "minimum": 1, "maximum": SEARCH_HITS_MAX},
        },
        "required": ["query"],
    });
    let description = format!(
        "Finds more tools. Search before you say that something is impossible. The answer defines the best matches and names \
         others; call them with `{TOOL_CALL}`, or directly if they are among your tools.\n{roster}"
    );
    ModelTool { name: TOOL_SEARCH.into(), description, input_schema: Arc::new(schema), strict: false }
}

/// Returns the definition of the tool that calls a found tool.
pub fn call_tool() -> ModelTool {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The exact name of the tool."},
            "arguments": {"type": "object", "description": "The arguments of that tool."},
        },
        "required": ["name", "arguments"],
    });
    let description = format!("Calls a tool that `{TOOL_SEARCH}` found.");
    ModelTool { name: TOOL_CALL.into(), description, input_schema: Arc::new(schema), strict: false }
}

/// Returns the call inside a `tool_call`, with the id of the outer call. The error text is for the model.
pub fn unwrap(call: &ToolCall) -> Result<ToolCall, String> {
    let mut call = call.clone();
    for _ in 0..WRAPPERS_MAX {
        if call.name != TOOL_CALL {
            return Ok(call);
        }
        call = inner(&call)?;
    }
    Err(format!("`{TOOL_CALL}` is nested too deeply; put the name of the tool itself into `name`"))
}

fn inner(call: &ToolCall) -> Result<ToolCall, String> {
    let parsed = call.arguments.parse(&ArgumentLimits::default()).map_err(|error| error.to_string())?;
    if parsed.cut_off() {
        return Err("the arguments are cut off; send shorter arguments".into());
    }
    let mut written = parsed.object().clone();
    let Some(Value::String(name)) = written.remove("name") else {
        return Err("`name` must be the name of a tool, as text".into());
    };
    let arguments = match written.remove("arguments") {
        Some(Value::Object(arguments)) => RawArguments::from_value(&Value::Object(arguments)),
        // Some models write the object as JSON text. The parse stage repairs it by the same rules as all arguments.
        Some(Value::String(text)) => RawArguments::from_text(text),
        // Some models write the arguments next to the name instead of inside `arguments`.
        None | Some(Value::Null) => RawArguments::from_value(&Value::Object(written)),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => {
            return Err("`arguments` must be an object with the arguments of the tool".into());
        }
    };
    Ok(ToolCall { id: call.id.clone(), name: name.trim().to_owned(), arguments })
}

/// Returns the definition of a tool as compact text of about `bytes_max` bytes at most: a signature with types, then
/// the descriptions. Descriptions are shortened first; parameters are left out only beyond `PARAMETERS_MAX`
/// or `SIGNATURE_BYTES_MAX`.
pub fn compact_definition(tool: &ModelTool, bytes_max: usize) -> String {
    let properties = tool.input_schema.get("properties").and_then(Value::as_object);
    let parameters = signature(&tool.input_schema, SIGNATURE_DEPTH_MAX);
    let cut = if parameters.len() > SIGNATURE_BYTES_MAX { "…" } else { "" };
    let mut text = format!("{}({}{cut})", tool.name, shortened(&parameters, SIGNATURE_BYTES_MAX));
    let left = |text: &str| bytes_max.saturating_sub(text.len());
    let description = one_line(&tool.description);
    if !description.is_empty() {
        let room = left(&text).max(DESCRIPTION_BYTES_MIN);
        text.push_str("\n  ");
        text.push_str(shortened(&description, room));
    }
    for (name, schema) in properties.into_iter().flatten() {
        let Some(description) = schema.get("description").and_then(Value::as_str) else { continue };
        let description = one_line(description);
        if description.is_empty() || left(&text) < name.len() + PARAMETER_TEXT_BYTES_MIN {
            continue;
        }
        let room = (left(&text) - name.len()).min(PARAMETER_TEXT_BYTES_MAX);
        let _ = write!(text, "\n  {name}: {}", shortened(&description, room));
    }
    text
}

/// The minimum number of bytes kept from a tool's description, even if the signature has used up `bytes_max`.
const DESCRIPTION_BYTES_MIN: usize = 80;
/// The minimum number of bytes that must be left to describe a parameter.
const PARAMETER_TEXT_BYTES_MIN: usize = 24;
const PARAMETER_TEXT_BYTES_MAX: usize = 100;
/// The maximum length of the parameter list, in bytes. Required parameters come first, so optional ones are cut off
/// first.
const SIGNATURE_BYTES_MAX: usize = 1_200;
/// The depth to which nested objects are written out.
const SIGNATURE_DEPTH_MAX: usize = 3;
/// The maximum number of enum values that a signature lists.
const ENUM_VALUES_MAX: usize = 12;
/// The maximum number of parameters per object that a signature lists; required ones are always listed. The error for
/// wrong arguments shows the whole schema.
const PARAMETERS_MAX: usize = 40;

/// Writes the parameters as `name: type`, the required ones first. A `?` marks an optional parameter.
fn signature(schema: &Value, depth: usize) -> String {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return String::new() };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let (first, rest): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(name, _)| required.contains(&name.as_str()));
    let needed = first.len();
    let written = first.into_iter().chain(rest).enumerate().map(|(at, (name, schema))| {
        let mark = if at < needed { "" } else { "?" };
        format!("{name}{mark}: {}", type_text(schema, depth))
    });
    let mut parts: Vec<String> = written.take(needed.max(PARAMETERS_MAX)).collect();
    if properties.len() > parts.len() {
        parts.push("…".into());
    }
    parts.join(", ")
}

fn type_text(schema: &Value, depth: usize) -> String {
    let Some(object) = schema.as_object() else { return "any".into() };
    if let Some(Value::Array(values)) = object.get("enum") {
        let mut shown: Vec<String> = values.iter().take(ENUM_VALUES_MAX).map(ToString::to_string).collect();
        if values.len() > ENUM_VALUES_MAX {
            shown.push("…".into());
        }
        return shown.join("|");
    }
    if let Some(value) = object.get("const") {
        return value.to_string();
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(options)) = object.get(key) {
            let shown: Vec<String> =
                options.iter().take(4).map(|option| type_text(option, depth.saturating_sub(1))).collect();
            return shown.join("|");
        }
    }
    match object.get("type") {
        Some(Value::String(kind)) => named_type(kind, object, depth),
        Some(Value::Array(kinds)) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            kinds.map(|kind| named_type(kind, object, depth)).collect::<Vec<_>>().join("|")
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => "any".into(),
    }
}

fn named_type(kind: &str, schema: &Map<String, Value>, depth: usize) -> String {
    match kind {
        "array" => match schema.get("items") {
            Some(items) if depth > 0 => format!("[{}]", type_text(items, depth - 1)),
            Some(_) | None => "[any]".into(),
        },
        "object" if depth > 0 && schema.get("properties").is_some() => {
            format!("{{{}}}", signature(&Value::Object(schema.clone()), depth - 1))
        }
        other => other.into(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn shortened(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::CallId;

    fn call(arguments: &Value) -> ToolCall {
        ToolCall {
            id: CallId("1".into()),
            name: TOOL_CALL.into(),
            arguments: RawArguments::from_value(arguments),
        }
    }

    fn check(arguments: &Value, expected: Result<(&str, &str), &str>) {
        match (unwrap(&call(arguments)), expected) {
            (Ok(found), Ok((name, text))) => {
                assert_eq!((found.name.as_str(), found.arguments.as_text()), (name, text), "{arguments}");
                assert_eq!(found.id.0, "1");
            }
            (Err(found), Err(part)) => assert!(found.contains(part), "{arguments}: {found}"),
            (found, expected) => panic!("{arguments}: expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn inner_call_is_found_in_every_shape_that_models_write() {
        check(&json!({"name": "a__b", "arguments": {"x": 1}}), Ok(("a__b", r#"{"x":1}"#)));
        check(&json!({"name": " a__b ", "arguments": "{\"x\": 1}"}), Ok(("a__b", "{\"x\": 1}")));
        check(&json!({"name": "a__b", "x": 1}), Ok(("a__b", r#"{"x":1}"#)));
        check(&json!({"name": "a__b"}), Ok(("a__b", "{}")));
        check(
            &json!({"name": TOOL_CALL, "arguments": {"name": "a__b", "arguments": {"x": 1}}}),
            Ok(("a__b", r#"{"x":1}"#)),
        );
    }

    #[test]
    fn tool_call_without_an_inner_tool_is_refused_with_the_reason() {
        check(&json!({}), Err("`name` must be"));
        check(&json!({"name": 7}), Err("`name` must be"));
        check(&json!({"name": "a", "arguments": [1]}), Err("must be an object"));
        let mut deep = json!({"name": "a", "arguments": {}});
        for _ in 0..WRAPPERS_MAX {
            deep = json!({"name": TOOL_CALL, "arguments": deep});
        }
        check(&deep, Err("nested too deeply"));
    }

    #[test]
    fn requested_limit_of_a_tool_search_is_bounded() {
        let check = |text: &str, expected: usize| {
            let query = ToolSearchQuery::read(&RawArguments::from_text(text)).unwrap();
            assert_eq!(query.hits_max(), expected, "{text}");
        };
        check(r#"{"query": "x"}"#, SEARCH_HITS_MAX);
        check(r#"{"query": "x", "limit": 3}"#, 3);
        check(r#"{"query": "x", "limit": 0}"#, 1);
        check(r#"{"query": "x", "limit": 100000}"#, SEARCH_HITS_MAX);
        check("{}", SEARCH_HITS_MAX);
    }

    #[test]
    fn compact_definition_lists_every_required_parameter_within_its_limit() {
        let schema = json!({"type": "object", "required": ["title", "labels"], "properties": {
            "body": {"type": "string", "description": "The text of the issue.\nMarkdown."},
            "labels": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "state": {"enum": ["open", "closed"]},
            "title": {"type": ["string", "integer"], "description": "x".repeat(500)},
        }});
        let tool = ModelTool {
            name: "git__create".into(),
            description: "Creates an issue.\n\nIn a repository.".into(),
            input_schema: Arc::new(schema),
            strict: false,
        };
        let text = compact_definition(&tool, 400);
        let expected = "git__create(labels: [{name?: string}], title: string|integer, body?: string, \
                        state?: \"open\"|\"closed\")\n  Creates an issue. In a repository.\n  body: The text of the \
                        issue. Markdown.\n  title: xxx";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.len() <= 400, "{}", text.len());
        let short = compact_definition(&tool, 10);
        assert!(short.contains("state?") && short.contains("Creates an issue"), "{short}");
    }
}
