//! Normalizes the root of a tool's schema, because every provider requires a plain object as the root.

use serde_json::{Map, Value, json};

use super::SchemaLoss;
use super::reference::resolve;

/// Keywords that providers reject at the root.
const BRANCHES: [&str; 3] = ["anyOf", "oneOf", "allOf"];

/// Keywords that contain values and not schemas.
const VALUES: [&str; 5] = ["const", "default", "enum", "example", "examples"];

/// The maximum number of references to follow from the root.
const HOPS_MAX: usize = 16;

pub(super) fn as_object(schema: &Value, losses: &mut Vec<SchemaLoss>) -> Value {
    let Value::Object(mut root) = followed(schema, schema) else {
        return json!({"type": "object", "properties": {}});
    };
    // The definitions must stay at the root, because inner references point to the root.
    for definitions in ["$defs", "definitions"] {
        if let Some(all) = schema.get(definitions) {
            root.insert(definitions.into(), all.clone());
        }
    }
    for keyword in BRANCHES {
        if let Some(Value::Array(branches)) = root.remove(keyword) {
            let branches = branches.iter().map(|branch| followed(schema, branch)).collect();
            merge_branches(&mut root, keyword, branches);
            let why = "the provider does not allow this keyword at the root; haft merges the properties of all branches";
            losses.push(SchemaLoss { at: String::new(), keyword: keyword.into(), why });
        }
    }
    for keyword in ["not", "enum", "const", "nullable"] {
        if root.remove(keyword).is_some() {
            losses.push(SchemaLoss {
                at: String::new(),
                keyword: keyword.into(),
                why: "the provider does not allow this keyword at the root; haft omits it",
            });
        }
    }
    root.insert("type".into(), "object".into());
    with_properties(Value::Object(root))
}

/// Adds empty `properties` if there are none.
pub(super) fn with_properties(mut schema: Value) -> Value {
    if let Some(root) = schema.as_object_mut() {
        root.entry("properties").or_insert_with(|| json!({}));
    }
    schema
}

/// Adds `items: {}` to arrays without items: providers reject such arrays even if any item is valid.
pub(super) fn with_items(schema: Value) -> Value {
    match schema {
        Value::Array(all) => all.into_iter().map(with_items).collect(),
        Value::Object(object) => {
            let mut object: Map<_, _> = object
                .into_iter()
                .map(|(key, value)| {
                    let value = if VALUES.contains(&key.as_str()) { value } else { with_items(value) };
                    (key, value)
                })
                .collect();
            let is_list = object.get("type").is_some_and(is_or_has_array);
            if is_list && !object.contains_key("prefixItems") {
                object.entry("items").or_insert_with(|| json!({}));
            }
            Value::Object(object)
        }
        other => other,
    }
}

fn is_or_has_array(kind: &Value) -> bool {
    kind == "array" || kind.as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "array"))
}

/// Follows references until a schema is not a reference.
fn followed(root: &Value, schema: &Value) -> Value {
    let mut here = schema;
    for _ in 0..HOPS_MAX {
        match here.get("$ref").and_then(Value::as_str).and_then(|reference| resolve(root, reference)) {
            Some(target) => here = target,
            None => return here.clone(),
        }
    }
    json!({})
}

/// Merges all branches with their properties into the root. A property is required if all branches require it, or for
/// `allOf`, if any branch does.
fn merge_branches(root: &mut Map<String, Value>, keyword: &str, branches: Vec<Value>) {
    let mut required: Option<Vec<Value>> = None;
    for branch in branches {
        let Value::Object(mut branch) = branch else { continue };
        let names = match branch.remove("required") {
            Some(Value::Array(names)) => names,
            _ => Vec::new(),
        };
        required = Some(match required {
            None => names,
            Some(known) if keyword == "allOf" => union(known, names),
            Some(known) => known.into_iter().filter(|name| names.contains(name)).collect(),
        });
        if let Some(Value::Object(properties)) = branch.remove("properties") {
            let all = root.entry("properties").or_insert_with(|| json!({}));
            if let Value::Object(all) = all {
                properties.into_iter().for_each(|(name, schema)| {
                    all.entry(name).or_insert(schema);
                });
            }
        }
    }
    let required = required.unwrap_or_default();
    let known = match root.remove("required") {
        Some(Value::Array(known)) => known,
        _ => Vec::new(),
    };
    let required = union(known, required);
    if !required.is_empty() {
        root.insert("required".into(), Value::Array(required));
    }
}

fn union(mut known: Vec<Value>, more: Vec<Value>) -> Vec<Value> {
    for name in more {
        if !known.contains(&name) {
            known.push(name);
        }
    }
    known
}
