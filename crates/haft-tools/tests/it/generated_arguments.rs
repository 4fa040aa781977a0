//! Generates arguments from a schema: all required properties, and a few of the optional ones.
#![allow(clippy::cast_possible_truncation, reason = "limits of schemas are small numbers")]

use serde_json::{Map, Value, json};

/// The maximum depth to which optional properties are filled in.
const OPTIONAL_DEPTH_MAX: usize = 1;

/// Returns a value that should match the schema; the caller must still validate the value.
pub(crate) fn value(schema: &Value, depth: usize) -> Option<Value> {
    if let Some(value) = schema.get("const").or_else(|| schema.get("enum").and_then(|words| words.get(0))) {
        return Some(value.clone());
    }
    if let Some(members) = schema.get("allOf").and_then(Value::as_array) {
        return together(schema, members, depth);
    }
    let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    if let Some(alternatives) = alternatives {
        return alternatives.iter().find_map(|alternative| value(alternative, depth));
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().find_map(Value::as_str),
        kind => kind.as_str(),
    };
    match kind.or_else(|| schema.get("properties").map(|_| "object")) {
        Some("object") => object(schema, depth),
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or(1).max(1);
            let item = value(schema.get("items").unwrap_or(&json!({ "type": "string" })), depth + 1)?;
            let distinct = schema["uniqueItems"] == true && count > 1;
            (!distinct).then(|| Value::Array((0..count).map(|_| item.clone()).collect()))
        }
        Some("integer") => Some(json!(whole(schema))),
        Some("number") => Some(json!(f64::from(i32::try_from(whole(schema)).ok()?))),
        Some("boolean") => Some(json!(true)),
        Some("null") => Some(Value::Null),
        Some(_) | None => text(schema),
    }
}

fn together(schema: &Value, members: &[Value], depth: usize) -> Option<Value> {
    let own = schema.get("properties").map(|_| object(schema, depth));
    let parts = members.iter().map(|member| value(member, depth)).chain(own);
    let mut all = Map::new();
    for part in parts {
        match part? {
            Value::Object(part) => all.extend(part),
            other => return Some(other),
        }
    }
    Some(Value::Object(all))
}

fn object(schema: &Value, depth: usize) -> Option<Value> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut made = Map::new();
    for (name, property) in properties {
        if required.contains(&name.as_str()) {
            made.insert(name.clone(), value(property, depth + 1)?);
        } else if depth < OPTIONAL_DEPTH_MAX {
            made.extend(value(property, depth + 1).map(|value| (name.clone(), value)));
        }
    }
    // A form cannot express an object without fields.
    if made.is_empty() {
        let first =
            properties.iter().find_map(|(name, property)| Some((name.clone(), value(property, depth + 1)?)));
        made.extend(first);
    }
    for name in required {
        made.entry(name).or_insert_with(|| json!("x"));
    }
    Some(Value::Object(made))
}

fn whole(schema: &Value) -> i64 {
    let limit = |key: &str| schema[key].as_f64().map(|limit| limit as i64);
    let least = limit("minimum").or_else(|| limit("exclusiveMinimum").map(|limit| limit + 1));
    let most = limit("maximum").unwrap_or(i64::MAX);
    let step = limit("multipleOf").unwrap_or(1).max(1);
    let least = least.unwrap_or(1).min(most);
    (least + step - 1) / step * step
}

fn text(schema: &Value) -> Option<Value> {
    let text = match schema["format"].as_str().unwrap_or_default() {
        "date-time" => "2024-05-06T07:08:09Z",
        "date" => "2024-05-06",
        "time" => "07:08:09Z",
        "uuid" => "123e4567-e89b-12d3-a456-426614174000",
        "uri" | "url" => "https://example.com/x",
        "email" => "someone@example.com",
        "ipv4" | "ip" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "hostname" => "example.com",
        _ if schema["contentEncoding"] == "base64" => "aGVsbG8=",
        "byte" => "aGVsbG8=",
        _ => "some-text",
    };
    let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0)).ok()?;
    let most = usize::try_from(schema["maxLength"].as_u64().unwrap_or(1_000)).ok()?;
    let padded = format!("{text}{}", "x".repeat(least.saturating_sub(text.len())));
    Some(json!(padded.chars().take(most).collect::<String>()))
}
