//! Merges an `allOf` of plain objects into one object. Models read it more easily, and its fields can become arguments.

use serde_json::{Map, Value, json};

/// The keywords that a plain object may have.
const PLAIN: [&str; 6] = ["type", "properties", "required", "description", "additionalProperties", "default"];

/// The maximum number of required names in a merged object.
const REQUIRED_MAX: usize = 1_000;

/// Replaces `allOf` by the merged object, if its members can be merged.
pub(super) fn merge(schema: &mut Map<String, Value>) {
    let Some(Value::Array(members)) = schema.get("allOf") else { return };
    if let Some(merged) = merged(schema, members) {
        *schema = merged;
    }
}

fn merged(schema: &Map<String, Value>, members: &[Value]) -> Option<Map<String, Value>> {
    let mut own = schema.clone();
    own.remove("allOf");
    if let ([Value::Object(only)], true) = (members, says_nothing_of_the_value(&own)) {
        let mut merged = only.clone();
        merged.extend(own);
        return Some(merged);
    }
    let mut all = vec![&own];
    all.extend(members.iter().map(Value::as_object).collect::<Option<Vec<_>>>()?);
    if !all.iter().all(|member| is_plain(member)) {
        return None;
    }
    all.into_iter().try_fold(Map::from_iter([("type".to_owned(), json!("object"))]), joined)
}

fn says_nothing_of_the_value(schema: &Map<String, Value>) -> bool {
    schema.keys().all(|key| matches!(key.as_str(), "description" | "default"))
}

fn is_plain(member: &Map<String, Value>) -> bool {
    member.keys().all(|key| PLAIN.contains(&key.as_str()))
        && member.get("type").is_none_or(|kind| kind == "object")
        && member.get("additionalProperties").is_none_or(Value::is_boolean)
}

/// Merges two objects; returns `None` if they define a property differently.
fn joined(mut left: Map<String, Value>, right: &Map<String, Value>) -> Option<Map<String, Value>> {
    let none = Map::new();
    let properties = right.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let known = left.entry("properties").or_insert_with(|| json!({})).as_object_mut()?;
    for (name, property) in properties {
        if known.get(name).is_some_and(|other| other != property) {
            return None;
        }
        known.insert(name.clone(), property.clone());
    }
    let names = right.get("required").and_then(Value::as_array).into_iter().flatten();
    let required = left.entry("required").or_insert_with(|| json!([])).as_array_mut()?;
    for name in names {
        // Refuse an object with more required fields: a model could not fill it in, and the limit bounds the search
        // below.
        if required.len() == REQUIRED_MAX {
            return None;
        }
        if !required.contains(name) {
            required.push(name.clone());
        }
    }
    for key in ["description", "default"] {
        if let (Some(value), false) = (right.get(key), left.contains_key(key)) {
            left.insert(key.to_owned(), value.clone());
        }
    }
    Some(left)
}
