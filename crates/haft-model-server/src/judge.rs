//! Checks schemas against the rules of each provider, taken from its documentation and from rejections seen in
//! practice.

use serde_json::{Map, Value};

use crate::{gemini_schema, strict_schema};

/// The use of a schema, which decides its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grammar {
    /// Tools of OpenAI and Anthropic: JSON Schema, with restrictions at its root only.
    Tools,
    /// OpenAI's `strict: true`.
    OpenaiStrict,
    /// Anthropic's structured output.
    AnthropicOutput,
    Gemini,
    /// The keywords of a tool that the prompt templates of models use.
    Ollama,
}

/// Keywords that every language with a closed list accepts.
const COMMON: &[&str] = &["type", "properties", "required", "items", "anyOf", "enum", "description"];
/// Additional keywords for structured output.
const OF_OUTPUT: &[&str] = &["additionalProperties", "title", "format"];
/// Additional keywords that constrain a value.
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

/// Returns the keywords that are accepted anywhere; `None` for any.
fn words(grammar: Grammar) -> Option<&'static [&'static [&'static str]]> {
    match grammar {
        Grammar::Tools | Grammar::Gemini => None,
        Grammar::OpenaiStrict => Some(&[COMMON, OF_OUTPUT, OF_VALUES]),
        Grammar::AnthropicOutput => Some(&[COMMON, OF_OUTPUT, &["default"]]),
        Grammar::Ollama => Some(&[COMMON]),
    }
}

/// Checks the schema of a tool or of structured output. The error describes the rejected part.
pub fn judge(grammar: Grammar, schema: &Value) -> Result<(), String> {
    if schema["type"] != "object" || !schema["properties"].is_object() {
        return Err("the root must be an object with properties".to_owned());
    }
    if let Some(word) =
        ["anyOf", "oneOf", "allOf", "not", "enum", "$ref"].iter().find(|word| schema.get(**word).is_some())
    {
        return Err(format!("'{word}' cannot stand at the root"));
    }
    match grammar {
        Grammar::OpenaiStrict => strict_schema::check_at(schema, strict_schema::DEPTH_MAX)?,
        Grammar::Gemini => gemini_schema::check(schema)?,
        Grammar::Tools | Grammar::AnthropicOutput | Grammar::Ollama => {}
    }
    at_every_place(schema, &|place| check(grammar, place))
}

fn check(grammar: Grammar, schema: &Map<String, Value>) -> Result<(), String> {
    let is_known =
        |word: &str| words(grammar).is_none_or(|lists| lists.iter().any(|list| list.contains(&word)));
    if let Some(word) = schema.keys().find(|word| !is_known(word)) {
        return Err(format!("unknown word '{word}'"));
    }
    match grammar {
        Grammar::Tools => check_list(schema),
        Grammar::OpenaiStrict => check_list(schema).and_then(|()| check_type(schema)),
        Grammar::AnthropicOutput => check_closed(schema),
        Grammar::Gemini => check_type(schema).and_then(|()| check_choice(schema)),
        Grammar::Ollama => Ok(()),
    }
    .and_then(|()| if grammar == Grammar::Tools { Ok(()) } else { check_required(schema) })
    .map_err(|problem| format!("{problem}: {}", Value::Object(schema.clone())))
}

fn has_type(schema: &Map<String, Value>, wanted: &str) -> bool {
    let kind = schema.get("type");
    kind.is_some_and(|kind| kind == wanted)
        || kind.and_then(Value::as_array).is_some_and(|all| all.iter().any(|kind| kind == wanted))
}

/// Checks that an array has items. The error is "array schema missing items", for any tool.
fn check_list(schema: &Map<String, Value>) -> Result<(), String> {
    let says = ["items", "prefixItems"].iter().any(|word| schema.contains_key(*word));
    if has_type(schema, "array") && !says { Err("array schema missing items".to_owned()) } else { Ok(()) }
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

/// Checks choices: "When using `any_of`, it must be the only field set", and enum values must be non-empty strings.
fn check_choice(schema: &Map<String, Value>) -> Result<(), String> {
    if schema.contains_key("anyOf") && schema.len() > 1 {
        return Err("other fields alongside any_of".to_owned());
    }
    let values = schema.get("enum").and_then(Value::as_array);
    let is_text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if values.is_some_and(|values| values.is_empty() || !values.iter().all(is_text)) {
        return Err("enum: only texts, and not none".to_owned());
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

type Look<'a> = &'a dyn Fn(&Map<String, Value>) -> Result<(), String>;

/// Applies a check to a schema and all its subschemas.
fn at_every_place(schema: &Value, look: Look<'_>) -> Result<(), String> {
    // JSON Schema also allows `true`, and a list of schemas in `items`.
    let Value::Object(object) = schema else { return Ok(()) };
    look(object)?;
    let named =
        ["properties", "$defs", "definitions"].into_iter().filter_map(|word| schema[word].as_object());
    let listed =
        ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter().filter_map(|word| schema[word].as_array());
    let single = ["items", "additionalProperties", "not"].into_iter().filter_map(|word| schema.get(word));
    let below = named.flat_map(Map::values).chain(listed.flatten()).chain(single);
    below.into_iter().try_for_each(|schema| at_every_place(schema, look))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_property(grammar: Grammar, property: &Value, expected: &str) {
        let schema = json!({ "type": "object", "properties": { "a": property }, "required": ["a"], "additionalProperties": false });
        let mut schema = schema;
        if matches!(grammar, Grammar::Gemini | Grammar::Ollama) {
            schema.as_object_mut().unwrap().remove("additionalProperties");
        }
        let said = judge(grammar, &schema).err().unwrap_or_default();
        assert!(said.starts_with(expected) && said.is_empty() == expected.is_empty(), "{said}");
    }

    #[test]
    fn each_provider_refuses_in_its_own_way() {
        let bare = json!({});
        check_property(Grammar::Tools, &bare, "");
        check_property(Grammar::OpenaiStrict, &bare, "schema must have a 'type' key");
        check_property(Grammar::Gemini, &bare, "schema must have a 'type' key");
        check_property(Grammar::Ollama, &bare, "");
        check_property(Grammar::Tools, &json!({ "type": ["array", "null"] }), "array schema missing items");
        check_property(Grammar::AnthropicOutput, &json!({ "type": "object" }), "'additionalProperties'");
        check_property(Grammar::AnthropicOutput, &json!({ "minimum": 1 }), "unknown word");
        let choice = json!({ "anyOf": [{ "type": "string" }], "description": "x" });
        check_property(Grammar::Gemini, &choice, "other fields alongside any_of");
        check_property(Grammar::OpenaiStrict, &choice, "");
        check_property(Grammar::Gemini, &json!({ "type": "string", "enum": [""] }), "enum");
        assert!(judge(Grammar::Tools, &json!({})).is_err());
        assert!(judge(Grammar::Tools, &json!({ "type": "object", "properties": {}, "oneOf": [] })).is_err());
    }
}
