//! The shape of JSON: keys, types and counts, without values.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use super::ExtractError;

/// The maximum depth of the described shape.
const DEPTH_MAX: usize = 8;
/// The maximum number of keys that are listed per object.
const KEYS_MAX: usize = 100;

pub(super) fn of(content: &[u8]) -> Result<String, ExtractError> {
    let values = serde_json::Deserializer::from_slice(content).into_iter::<Value>();
    let values = values
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| ExtractError(format!("the stored output is not JSON: {error}")))?;
    if values.is_empty() {
        return Err(ExtractError("the stored output is not JSON: the output is empty".into()));
    }
    let mut text = String::new();
    describe(&values.iter().collect::<Vec<_>>(), 0, &mut text);
    Ok(text.trim_end().to_owned())
}

/// Describes all values at the same path together.
fn describe(values: &[&Value], depth: usize, text: &mut String) {
    let _ = writeln!(text, "{}", kinds(values));
    if depth >= DEPTH_MAX {
        return;
    }
    let items: Vec<&Value> = values.iter().filter_map(|value| value.as_array()).flatten().collect();
    if !items.is_empty() {
        let _ = write!(text, "{}[]: ", "  ".repeat(depth + 1));
        describe(&items, depth + 1, text);
    }
    let mut fields: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for (key, value) in values.iter().filter_map(|value| value.as_object()).flatten() {
        fields.entry(key).or_default().push(value);
    }
    for (key, values) in fields.iter().take(KEYS_MAX) {
        let _ = write!(text, "{}{key}: ", "  ".repeat(depth + 1));
        describe(values, depth + 1, text);
    }
    if fields.len() > KEYS_MAX {
        let _ = writeln!(text, "{}… and {} more keys", "  ".repeat(depth + 1), fields.len() - KEYS_MAX);
    }
}

fn kinds(values: &[&Value]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(kind(value)).or_default() += 1;
    }
    let named: Vec<String> = counts
        .iter()
        .map(|(kind, count)| if *count == 1 { (*kind).to_owned() } else { format!("{kind} ×{count}") })
        .collect();
    named.join(" | ")
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
