//! Schemas cut down: what lies too deep in them is only named by its type.

use serde_json::{Map, Value};

/// How deep schemas may be inside each other; what checks arguments takes half of the 64 levels of JSON that makes.
pub(super) const LEVELS_MAX: usize = 24;

/// Levels that are tried, the most first.
const TRIED: [usize; 9] = [LEVELS_MAX, 12, 8, 6, 5, 4, 3, 2, 1];

/// How far the fields alone may go beyond the bound.
const FIELDS_FACTOR: usize = 4;

/// The schema with as many levels as stay within the bound.
pub(super) fn trimmed(schema: Value, nodes_max: usize) -> Value {
    if count(&schema) <= nodes_max && levels(&schema) <= LEVELS_MAX {
        return schema;
    }
    let mut cut = TRIED.iter().map(|levels| self::cut(&schema, *levels));
    let fits = cut.find(|cut| count(cut) <= nodes_max);
    // The names of its fields are worth more than the bound, but not without end.
    fits.or_else(|| Some(self::cut(&schema, 1)).filter(|cut| count(cut) <= FIELDS_FACTOR * nodes_max))
        .unwrap_or_else(|| self::cut(&schema, 0))
}

fn count(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(count).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

fn levels(schema: &Value) -> usize {
    let Some(members) = schema.as_object() else { return 0 };
    let inner = members.iter().flat_map(|(key, value)| inside(key, value));
    1 + inner.map(levels).max().unwrap_or(0)
}

/// The schemas in a keyword.
fn inside<'a>(key: &str, value: &'a Value) -> Vec<&'a Value> {
    match (Nesting::of(key), value) {
        (Nesting::Named, Value::Object(members)) => members.values().collect(),
        (Nesting::List, Value::Array(items)) => items.iter().collect(),
        (Nesting::One, value) => vec![value],
        _ => Vec::new(),
    }
}

/// How a keyword holds schemas.
enum Nesting {
    Named,
    List,
    One,
    None,
}

impl Nesting {
    fn of(key: &str) -> Self {
        match key {
            "properties" | "patternProperties" | "dependentSchemas" => Self::Named,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => Self::List,
            "items"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames" => Self::One,
            _ => Self::None,
        }
    }
}

/// What is left out could only have said no, so the cut schema takes all that the whole one takes; `not` turns that around and
/// goes altogether.
fn cut(schema: &Value, levels: usize) -> Value {
    let Some(members) = schema.as_object() else { return schema.clone() };
    let mut kept = Map::new();
    for (key, value) in members {
        let written = match (Nesting::of(key), value) {
            (Nesting::None, value) => value.clone(),
            _ if levels == 0 || matches!(key.as_str(), "not" | "if" | "then" | "else") => continue,
            // One of several that were cut may fit where it did not before.
            (Nesting::List, Value::Array(items)) => {
                let items = items.iter().map(|item| cut(item, levels - 1)).collect();
                let key = if key == "oneOf" { "anyOf" } else { key };
                kept.insert(key.to_owned(), Value::Array(items));
                continue;
            }
            (Nesting::Named, Value::Object(members)) => {
                let members = members.iter().map(|(name, inner)| (name.clone(), cut(inner, levels - 1)));
                Value::Object(members.collect())
            }
            (_, value) => cut(value, levels - 1),
        };
        kept.insert(key.clone(), written);
    }
    if levels == 0 {
        kept.remove("required");
        kept.remove("default");
    }
    Value::Object(kept)
}
