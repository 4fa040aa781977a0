//! Checks schemas against the rules of each provider, taken from its documentation and from observed rejections.

use serde_json::{Map, Value};

use crate::{gemini_schema, strict_schema};

/// The use of a schema, which determines its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaUse {
    /// OpenAI's tools: JSON Schema with restrictions only at the root.
    Tools,
    /// Anthropic's tools: like OpenAI's, but in the newest draft, and with plain property names.
    AnthropicTools,
    /// OpenAI's `strict: true`.
    OpenaiStrict,
    /// Anthropic's structured output.
    AnthropicOutput,
    Gemini,
    /// Ollama's tools: only the keywords that the prompt templates of its models use.
    Ollama,
}

/// Keywords that are accepted by every schema language with a fixed list of keywords.
const COMMON: &[&str] = &["type", "properties", "required", "items", "anyOf", "enum", "description"];
/// Additional keywords for structured output.
const OF_OUTPUT: &[&str] = &["additionalProperties", "title", "format"];
/// Keywords that constrain a value. OpenAI's strict schemas accept them in addition to [`COMMON`] and [`OF_OUTPUT`].
const OF_VALUES: &[&str] = &[
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
];

/// Returns the keywords that are accepted anywhere in a schema, or `None` if all keywords are accepted.
fn words(grammar: SchemaUse) -> Option<&'static [&'static [&'static str]]> {
    match grammar {
        SchemaUse::Tools | SchemaUse::AnthropicTools | SchemaUse::Gemini => None,
        SchemaUse::OpenaiStrict => Some(&[COMMON, OF_OUTPUT, OF_VALUES]),
        SchemaUse::AnthropicOutput => Some(&[COMMON, OF_OUTPUT, &["default"]]),
        SchemaUse::Ollama => Some(&[COMMON]),
    }
}

/// Checks the schema of a tool or of structured output. The error describes the rejected part.
pub fn judge(grammar: SchemaUse, schema: &Value) -> Result<(), String> {
    if schema["type"] != "object" || !schema["properties"].is_object() {
        return Err("the root of the schema must be an object with properties".to_owned());
    }
    if let Some(word) =
        ["anyOf", "oneOf", "allOf", "not", "enum", "$ref"].iter().find(|word| schema.get(**word).is_some())
    {
        return Err(format!("the keyword '{word}' is not permitted at the root of the schema"));
    }
    match grammar {
        SchemaUse::OpenaiStrict => strict_schema::check_at(schema, strict_schema::DEPTH_MAX)?,
        SchemaUse::Gemini => gemini_schema::check(schema)?,
        SchemaUse::Tools | SchemaUse::AnthropicTools | SchemaUse::AnthropicOutput | SchemaUse::Ollama => {}
    }
    check_everywhere(grammar, schema)
}

/// Checks a schema and all its subschemas, without the rules for the root.
pub(crate) fn check_everywhere(grammar: SchemaUse, schema: &Value) -> Result<(), String> {
    check_subschemas(schema, &|place| check(grammar, place))
}

fn check(grammar: SchemaUse, schema: &Map<String, Value>) -> Result<(), String> {
    let is_known =
        |word: &str| words(grammar).is_none_or(|lists| lists.iter().any(|list| list.contains(&word)));
    if let Some(word) = schema.keys().find(|word| !is_known(word)) {
        return Err(format!("unknown keyword '{word}'"));
    }
    check_known_types(schema)?;
    match grammar {
        SchemaUse::Tools => check_list(schema),
        SchemaUse::AnthropicTools => check_list(schema).and_then(|()| check_keys(schema)),
        SchemaUse::OpenaiStrict => check_list(schema).and_then(|()| check_type(schema)),
        SchemaUse::AnthropicOutput => check_closed(schema),
        SchemaUse::Gemini => check_type(schema).and_then(|()| check_choice(schema)),
        SchemaUse::Ollama => Ok(()),
    }
    .and_then(|()| {
        if matches!(grammar, SchemaUse::Tools | SchemaUse::AnthropicTools) {
            Ok(())
        } else {
            check_required(schema)
        }
    })
    .map_err(|problem| format!("{problem}: {}", Value::Object(schema.clone())))
}

fn has_type(schema: &Map<String, Value>, wanted: &str) -> bool {
    let kind = schema.get("type");
    kind.is_some_and(|kind| kind == wanted)
        || kind.and_then(Value::as_array).is_some_and(|all| all.iter().any(|kind| kind == wanted))
}

/// Checks that an array has items. For every kind of tool the error is "array schema missing items".
fn check_list(schema: &Map<String, Value>) -> Result<(), String> {
    let says = ["items", "prefixItems"].iter().any(|word| schema.contains_key(*word));
    match schema.get("items") {
        Some(Value::Array(_)) => Err("items: a list is not of type 'object', 'boolean'".to_owned()),
        None if has_type(schema, "array") && !says => Err("array schema missing items".to_owned()),
        Some(_) | None => Ok(()),
    }
}

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// Checks that each type is a JSON Schema type. The error is "'any' is not valid under any of the given schemas".
fn check_known_types(schema: &Map<String, Value>) -> Result<(), String> {
    let named = match schema.get("type") {
        None => return Ok(()),
        Some(Value::Array(names)) => names.iter().collect(),
        Some(name) => vec![name],
    };
    let is_known =
        |name: &Value| name.as_str().is_some_and(|name| TYPES.contains(&name.to_lowercase().as_str()));
    match named.into_iter().find(|name| !is_known(name)) {
        Some(name) => Err(format!("{name} is not valid under any of the given schemas")),
        None => Ok(()),
    }
}

/// Checks the property names. The error is "Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'".
fn check_keys(schema: &Map<String, Value>) -> Result<(), String> {
    let is_plain = |name: &String| {
        (1..=64).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    let names = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::keys);
    match names.into_iter().find(|name| !is_plain(name)) {
        Some(name) => Err(format!("property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$': {name:?}")),
        None => Ok(()),
    }
}

fn check_type(schema: &Map<String, Value>) -> Result<(), String> {
    let says = ["type", "anyOf"].iter().any(|word| schema.contains_key(*word));
    if says { Ok(()) } else { Err("schema must have a 'type' key".to_owned()) }
}

fn check_closed(schema: &Map<String, Value>) -> Result<(), String> {
    let is_object = has_type(schema, "object") || schema.contains_key("properties");
    if is_object && schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Err("'additionalProperties' must be false".to_owned());
    }
    Ok(())
}

/// Checks choices. The error is "When using `any_of`, it must be the only field set". Enum values must be non-empty
/// strings.
fn check_choice(schema: &Map<String, Value>) -> Result<(), String> {
    if schema.contains_key("anyOf") && schema.len() > 1 {
        return Err("other fields alongside any_of".to_owned());
    }
    let values = schema.get("enum").and_then(Value::as_array);
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if values.is_some_and(|values| values.is_empty() || !values.iter().all(is_text)) {
        return Err("enum: expected at least one value, and only non-empty strings".to_owned());
    }
    Ok(())
}

fn check_required(schema: &Map<String, Value>) -> Result<(), String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    let described = |name: &str| properties.is_some_and(|all| all.contains_key(name));
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    match required.filter_map(Value::as_str).find(|name| !described(name)) {
        Some(name) => Err(format!("required property '{name}' is not defined")),
        None => Ok(()),
    }
}

type SchemaCheck<'a> = &'a dyn Fn(&Map<String, Value>) -> Result<(), String>;

/// Applies a check to a schema and all its subschemas.
fn check_subschemas(schema: &Value, look: SchemaCheck<'_>) -> Result<(), String> {
    // Accept `true`, because JSON Schema also allows it as a schema.
    let Value::Object(object) = schema else { return Ok(()) };
    look(object)?;
    let named =
        ["properties", "$defs", "definitions"].into_iter().filter_map(|word| schema[word].as_object());
    let listed =
        ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter().filter_map(|word| schema[word].as_array());
    let single = ["items", "additionalProperties", "not"].into_iter().filter_map(|word| schema.get(word));
    let below = named.flat_map(Map::values).chain(listed.flatten()).chain(single);
    below.into_iter().try_for_each(|schema| check_subschemas(schema, look))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_property(grammar: SchemaUse, property: &Value, expected: &str) {
        let schema = json!({ "type": "object", "properties": { "a": property }, "required": ["a"], "additionalProperties": false });
        let mut schema = schema;
        if matches!(grammar, SchemaUse::Gemini | SchemaUse::Ollama) {
            schema.as_object_mut().unwrap().remove("additionalProperties");
        }
        let said = judge(grammar, &schema).err().unwrap_or_default();
        assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{said}");
    }

    #[test]
    fn each_provider_rejects_schemas_that_it_does_not_support() {
        let bare = json!({});
        check_property(SchemaUse::Tools, &bare, "");
        check_property(SchemaUse::OpenaiStrict, &bare, "schema must have a 'type' key");
        check_property(SchemaUse::Gemini, &bare, "schema must have a 'type' key");
        check_property(SchemaUse::Ollama, &bare, "");
        check_property(SchemaUse::Tools, &json!({ "type": ["array", "null"] }), "array schema missing items");
        check_property(SchemaUse::Tools, &json!({ "type": "any" }), "\"any\" is not valid");
        check_property(SchemaUse::Tools, &json!({ "items": [{}] }), "items: a list");
        let odd = json!({ "type": "object", "properties": { "$filter": {} } });
        check_property(SchemaUse::Tools, &odd, "");
        check_property(SchemaUse::AnthropicTools, &odd, "property keys should match");
        check_property(SchemaUse::AnthropicOutput, &json!({ "type": "object" }), "'additionalProperties'");
        check_property(SchemaUse::AnthropicOutput, &json!({ "minimum": 1 }), "unknown keyword");
        let choice = json!({ "anyOf": [{ "type": "string" }], "description": "x" });
        check_property(SchemaUse::Gemini, &choice, "other fields alongside any_of");
        check_property(SchemaUse::OpenaiStrict, &choice, "");
        check_property(SchemaUse::Gemini, &json!({ "type": "string", "enum": [""] }), "enum");
        assert!(judge(SchemaUse::Tools, &json!({})).is_err());
        assert!(
            judge(SchemaUse::Tools, &json!({ "type": "object", "properties": {}, "oneOf": [] })).is_err()
        );
    }
}
