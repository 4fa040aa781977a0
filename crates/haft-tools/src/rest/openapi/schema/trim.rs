//! Shortens schemas: parts that are nested too deep keep only their type.

use serde_json::{Map, Value};

/// The maximum nesting depth of schemas. Each level takes up to two levels of JSON, and the argument validator refuses
/// schemas with more than 64.
pub(super) const LEVELS_MAX: usize = 24;

/// The numbers of nesting levels to try, largest first.
const TRIED: [usize; 9] = [LEVELS_MAX, 12, 8, 6, 5, 4, 3, 2, 1];

/// The factor by which a schema with only its own fields may exceed the limit.
const FIELDS_FACTOR: usize = 4;

/// Returns the schema with the largest number of levels that stays within the limit.
pub(super) fn trimmed(schema: Value, nodes_max: usize) -> Value {
    if count(&schema) <= nodes_max && levels(&schema) <= LEVELS_MAX {
        return schema;
    }
    let mut cut = TRIED.iter().map(|levels| self::cut(&schema, *levels));
    let fits = cut.find(|cut| count(cut) <= nodes_max);
    // If no cut fits, keep the fields of the root if they exceed the limit by at most this factor: the model needs
    // the names of the fields.
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

/// Returns the schemas in a keyword.
fn inside<'a>(key: &str, value: &'a Value) -> Vec<&'a Value> {
    match (Nesting::of(key), value) {
        (Nesting::Named, Value::Object(members)) => members.values().collect(),
        (Nesting::List, Value::Array(items)) => items.iter().collect(),
        (Nesting::One, value) => vec![value],
        _ => Vec::new(),
    }
}

/// The kind of schema nesting below a keyword.
#[derive(Debug, Clone, Copy)]
pub(super) enum Nesting {
    Named,
    List,
    One,
    None,
}

impl Nesting {
    pub(super) fn of(key: &str) -> Self {
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

/// Drops schemas below the given level. Each dropped keyword could only have rejected values, so the shortened schema
/// accepts every value that the original accepts. `not`, `if`, `then` and `else` are dropped completely, because a
/// schema inside of them that accepts more makes the whole schema reject more.
fn cut(schema: &Value, levels: usize) -> Value {
    let Some(members) = schema.as_object() else { return schema.clone() };
    let mut kept = Map::new();
    for (key, value) in members {
        let written = match (Nesting::of(key), value) {
            (Nesting::None, value) => value.clone(),
            _ if levels == 0 || matches!(key.as_str(), "not" | "if" | "then" | "else") => continue,
            // Replace `oneOf` by `anyOf`: after the cut, a valid value may match several alternatives, and `oneOf`
            // would reject it.
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
