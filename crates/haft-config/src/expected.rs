//! Describes the value that a schema expects, and the value that was found, for the operator.

use jsonc_parser::ast;
use serde_json::Value;

use super::printable;
use super::value_format::{ANY_JSON, ValueFormat};

/// Describes the values that this schema accepts.
pub(super) fn expected(schema: &Value) -> String {
    let Some(object) = schema.as_object() else { return "a value".into() };
    if let Some(words) = object.get("enum").and_then(Value::as_array) {
        let words: Vec<String> = words.iter().map(Value::to_string).collect();
        return format!("one of {}", words.join(", "));
    }
    if let Some(format) = ValueFormat::of(object) {
        return format.expected.into();
    }
    if schema.get(ANY_JSON).is_some() {
        return "any JSON".into();
    }
    match schema["type"].as_str() {
        Some("integer") => number(schema),
        Some("number") => "a number".into(),
        Some("boolean") => "true or false".into(),
        Some("string") => "a string".into(),
        Some("array") => "a list".into(),
        Some("object") => "an object".into(),
        _ => "a value".into(),
    }
}

fn number(schema: &Value) -> String {
    match (schema["minimum"].as_u64().unwrap_or(0), schema["maximum"].as_u64()) {
        (0, None) => "a whole number".into(),
        (min, None) => format!("a whole number of at least {min}"),
        (min, Some(max)) => format!("a whole number from {min} to {max}"),
    }
}

/// Describes the value that was found. Cuts long text and escapes control characters.
pub(super) fn found(node: &ast::Value<'_>) -> String {
    match node {
        ast::Value::StringLit(text) => format!("\"{}\"", printable::excerpt(&text.value)),
        ast::Value::NumberLit(number) => printable::excerpt(number.value),
        ast::Value::BooleanLit(flag) => flag.value.to_string(),
        ast::Value::Object(_) => "an object".into(),
        ast::Value::Array(_) => "a list".into(),
        ast::Value::NullKeyword(_) => "null".into(),
    }
}
