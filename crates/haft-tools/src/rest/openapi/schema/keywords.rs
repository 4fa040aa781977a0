//! Converts keywords that contain no schemas to JSON Schema 2020-12.

use serde_json::{Map, Value, json};

use super::super::description::{self, PROPERTY_CHARS_MAX};
use super::super::documents::Node;

const TYPES: [&str; 7] = ["object", "array", "string", "number", "integer", "boolean", "null"];

/// Converts a keyword that contains no schema; returns `None` if it is unknown or its value is invalid.
pub(super) fn plain(key: &str, value: &Value) -> Option<Value> {
    let kept = match key {
        "type" => return types(value),
        "description" => return value.as_str().map(description),
        "enum" => {
            value.as_array().is_some_and(|words| (1..=NAMES_MAX).contains(&words.len()) && is_small(value))
        }
        "required" => return required(value),
        // Drop a large value, because a value cannot be shortened without changing its meaning.
        "const" | "default" => is_small(value),
        "format" | "contentEncoding" | "contentMediaType" => value.is_string(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.is_u64()
        }
        "minimum" | "maximum" => value.is_number(),
        "exclusiveMinimum" | "exclusiveMaximum" => value.is_number() || value.is_boolean(),
        "multipleOf" => value.as_f64().is_some_and(|step| step > 0.0),
        "uniqueItems" => value.is_boolean(),
        _ => false,
    };
    kept.then(|| value.clone())
}

/// Returns the cost of examining a keyword, in schema values.
pub(super) fn effort(key: &str, value: &Value) -> usize {
    match (key, value) {
        ("description", Value::String(text)) => text.len().min(PROPERTY_CHARS_MAX) / 16,
        (_, Value::Array(items)) => items.len(),
        _ => 1,
    }
}

/// The maximum number of values in `enum` and of names in `required`. A longer list is dropped, which only makes the
/// schema accept more.
const NAMES_MAX: usize = 1_000;

/// The maximum total length of the strings in `enum`, `const` or `default`, in bytes.
const VALUE_BYTES_MAX: usize = 64 * 1024;

/// Returns whether the strings in a value are within the limit. The recursion is safe: the parser has already rejected
/// deeply nested documents.
fn is_small(value: &Value) -> bool {
    fn bytes(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes).sum(),
            Value::Object(members) => members.iter().map(|(key, value)| key.len() + bytes(value)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        }
    }
    bytes(value) <= VALUE_BYTES_MAX
}

pub(super) fn description(text: &str) -> Value {
    Value::from(description::shortened(&description::plain(text), PROPERTY_CHARS_MAX))
}

/// Keeps the types that JSON Schema defines. The type `file` of Swagger 2.0 becomes `string`, because the model passes
/// a file as text.
fn types(value: &Value) -> Option<Value> {
    let known = |name: &str| match name {
        "file" => Some("string"),
        name => TYPES.into_iter().find(|known| *known == name),
    };
    match value {
        Value::String(name) => known(name).map(Value::from),
        Value::Array(names) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).filter_map(known).collect();
            (!names.is_empty()).then(|| json!(names))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// Keeps a list of names. Some documents write `required: true` on a property, as on a parameter; it has no meaning on
/// a property.
fn required(value: &Value) -> Option<Value> {
    let names: Vec<&Value> = value.as_array()?.iter().filter(|name| name.is_string()).collect();
    (1..=NAMES_MAX).contains(&names.len()).then(|| json!(names))
}

/// Converts the exclusive limits of older dialects, which are flags next to `minimum` and `maximum`.
pub(super) fn settle(written: &mut Map<String, Value>) {
    for (flag, limit) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        match written.get(flag).and_then(Value::as_bool) {
            Some(true) => {
                let value = written.remove(limit);
                written.remove(flag);
                written.extend(value.map(|value| (flag.to_owned(), value)));
            }
            Some(false) => {
                written.remove(flag);
            }
            None => {}
        }
    }
}

/// Removes required names whose properties do not exist in this direction (request or response).
pub(super) fn drop_unknown_required(written: &mut Map<String, Value>, node: &Node<'_>) {
    let declared = node.get("properties").map(|properties| properties.value);
    let Some(Value::Array(required)) = written.get("required") else { return };
    let kept = |name: &&Value| {
        let name = name.as_str().unwrap_or_default();
        let was = declared.is_some_and(|declared| declared.get(name).is_some());
        let is = written.get("properties").is_some_and(|properties| properties.get(name).is_some());
        is || !was
    };
    let required: Vec<Value> = required.iter().filter(kept).cloned().collect();
    if required.is_empty() {
        written.remove("required");
    } else {
        written.insert("required".into(), Value::Array(required));
    }
}

/// Returns whether a schema contains no other schema.
pub(super) fn is_simple(schema: &Value) -> bool {
    const NESTING: [&str; 9] = [
        "properties",
        "items",
        "allOf",
        "anyOf",
        "oneOf",
        "additionalProperties",
        "not",
        "prefixItems",
        "$ref",
    ];
    !NESTING.iter().any(|key| schema.get(key).is_some())
}
