//! The root of a tool's schema, which every provider wants to be a plain object.

use serde_json::{Map, Value, json};

use super::Loss;

/// Keywords that providers refuse at the root.
const BRANCHES: [&str; 3] = ["anyOf", "oneOf", "allOf"];

pub(super) fn as_object(schema: Value, losses: &mut Vec<Loss>) -> Value {
    let Value::Object(mut root) = schema else {
        return json!({"type": "object", "properties": {}});
    };
    for keyword in BRANCHES {
        if let Some(Value::Array(branches)) = root.remove(keyword) {
            merge_branches(&mut root, keyword, branches);
            let why = "cannot stand at the root; the properties of all branches are shown together";
            losses.push(Loss { at: String::new(), keyword: keyword.into(), why });
        }
    }
    for keyword in ["not", "enum", "const", "nullable"] {
        if root.remove(keyword).is_some() {
            losses.push(Loss { at: String::new(), keyword: keyword.into(), why: "cannot stand at the root" });
        }
    }
    root.insert("type".into(), "object".into());
    root.entry("properties").or_insert_with(|| json!({}));
    Value::Object(root)
}

/// Of several branches all properties are shown; required is what all of them require, or any of `allOf`.
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
