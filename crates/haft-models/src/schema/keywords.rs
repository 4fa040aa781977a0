//! Helpers for single schema keywords.

use serde_json::{Map, Value, json};

use super::NullNotation;

pub(super) fn is_or_has(types: &Value, name: &str) -> bool {
    types == name || types.as_array().is_some_and(|all| all.iter().any(|kind| kind == name))
}

/// Returns the types of the values: a string for one type, a list for several.
pub(super) fn types_of(values: &[Value]) -> Value {
    let mut types: Vec<&str> = values
        .iter()
        .map(|value| match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        })
        .collect();
    types.sort_unstable();
    types.dedup();
    match types.as_slice() {
        [one] => (*one).into(),
        several => json!(several),
    }
}

pub(super) fn make_nullable(schema: &mut Map<String, Value>, nulls: NullNotation) {
    if nulls == NullNotation::AsFlag {
        schema.insert("nullable".into(), Value::Bool(true));
        return;
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match schema.get_mut("type") {
        Some(Value::String(kind)) if kind != "null" => {
            let kind = std::mem::take(kind);
            schema.insert("type".into(), json!([kind, "null"]));
        }
        Some(Value::Array(kinds)) if !kinds.contains(&json!("null")) => kinds.push("null".into()),
        Some(_) => {}
        None => {
            if let Some(Value::Array(branches)) = schema.get_mut("anyOf") {
                branches.push(json!({"type": "null"}));
            }
        }
    }
}

pub(super) fn describe_default(schema: &mut Map<String, Value>, value: &Value) {
    append_description(schema, &format!("Default: {value}."));
}

/// Appends a sentence to the description.
pub(super) fn append_description(schema: &mut Map<String, Value>, sentence: &str) {
    let text = match schema.get("description").and_then(Value::as_str) {
        Some(text) if !text.is_empty() => format!("{text} {sentence}"),
        _ => sentence.to_owned(),
    };
    schema.insert("description".into(), text.into());
}

/// Adds a keyword to every branch that lacks it. If a branch is itself a choice, adds the keyword to its branches.
pub(super) fn set_in_each_branch(branches: &mut [Value], word: &str, value: &Value) {
    for branch in branches.iter_mut().filter_map(Value::as_object_mut) {
        match branch.get_mut("anyOf") {
            Some(Value::Array(inner)) => set_in_each_branch(inner, word, value),
            _ => {
                branch.entry(word).or_insert_with(|| value.clone());
            }
        }
    }
}
