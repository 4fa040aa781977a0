//! Decides if every argument object that is valid under one schema is valid under another. Compares the texts of the
//! schemas, so the result may be that the compatibility is unknown.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

/// The maximum number of reasons in a result.
const REASONS_MAX: usize = 8;

/// The maximum nesting depth of schemas that is compared.
const DEPTH_MAX: usize = 64;

/// The relation of a new input schema to an old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaCompatibility {
    /// Arguments that were valid under the old schema stay valid. Arguments that the old schema did not declare are not
    /// considered, even if the new schema declares their name.
    Compatible,
    /// Some arguments that were valid under the old schema are invalid now. The texts are the reasons.
    Breaking(Vec<String>),
    /// It is unknown whether old arguments stay valid, because these keywords differ in a way that the comparison does
    /// not support.
    Unknown(Vec<String>),
}

impl fmt::Display for SchemaCompatibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compatible => f.write_str("compatible: arguments that were valid stay valid"),
            Self::Breaking(reasons) => write!(f, "not compatible: {}", reasons.join("; ")),
            Self::Unknown(places) => write!(f, "not known to be compatible: {} differs", places.join(", ")),
        }
    }
}

/// Compares two input schemas.
pub fn compatibility(old: &Value, new: &Value) -> SchemaCompatibility {
    let mut comparison = SchemaComparison::default();
    comparison.compare("", old, new, 0);
    let SchemaComparison { breaking, unknown } = comparison;
    match (breaking.is_empty(), unknown.is_empty()) {
        (true, true) => SchemaCompatibility::Compatible,
        (false, _) => SchemaCompatibility::Breaking(breaking),
        (true, false) => SchemaCompatibility::Unknown(unknown),
    }
}

#[derive(Default)]
struct SchemaComparison {
    breaking: Vec<String>,
    unknown: Vec<String>,
}

/// Keywords that only describe a value and never reject one.
const DESCRIBING: [&str; 8] =
    ["$comment", "default", "deprecated", "description", "examples", "format", "title", "x-mcp-header"];

/// Keywords that are compared by their own rules.
const COMPARED: [&str; 14] = [
    "type",
    "enum",
    "required",
    "properties",
    "additionalProperties",
    "items",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];

/// Keywords whose removal only widens a schema. Other keywords change the meaning of the keywords beside them.
const WIDENING_IF_REMOVED: [&str; 23] = [
    "additionalItems",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "if",
    "maxContains",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "propertyNames",
    "then",
    "uniqueItems",
];

/// Keywords that reject the properties and items that no other keyword describes. In a schema with such a keyword, the
/// removal of any other keyword may narrow the schema.
const REJECTING_THE_REST: [&str; 2] = ["unevaluatedItems", "unevaluatedProperties"];

const LOWER_BOUNDS: [&str; 4] = ["minimum", "minLength", "minItems", "minProperties"];
const UPPER_BOUNDS: [&str; 4] = ["maximum", "maxLength", "maxItems", "maxProperties"];

impl SchemaComparison {
    fn compare(&mut self, path: &str, old: &Value, new: &Value, depth: usize) {
        if old == new || *new == Value::Bool(true) {
            return;
        }
        if depth > DEPTH_MAX {
            return self.unsure(path, "nesting");
        }
        let empty = Map::new();
        let (old, new) = match (old, new) {
            (Value::Object(old), Value::Object(new)) => (old, new),
            (Value::Bool(true), Value::Object(new)) => (&empty, new),
            // The old schema accepted no value, so no valid arguments can become invalid.
            (Value::Bool(false), _) => return,
            // Older drafts of JSON Schema allow a list of schemas as `items`.
            (Value::Array(_), _) | (_, Value::Array(_)) => return self.unsure(path, "list of schemas"),
            (_, _) => return self.breaks(path, "the new schema accepts no value"),
        };
        self.types(path, old, new);
        self.enums(path, old, new);
        self.bounds(path, old, new);
        self.members(path, old, new, depth);
        self.items(path, old, new, depth);
        self.others(path, old, new);
    }

    fn types(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>) {
        let Some(now) = new.get("type").map(type_names) else { return };
        let Some(before) = old.get("type").map(type_names) else {
            return self.breaks(path, "the new schema requires a type");
        };
        // Every integer is a number.
        let accepted = |name: &&str| now.contains(name) || (*name == "integer" && now.contains("number"));
        let lost: Vec<&str> = before.iter().filter(|name| !accepted(name)).copied().collect();
        if !lost.is_empty() {
            self.breaks(path, &format!("the type {} is not accepted any more", lost.join(", ")));
        }
    }

    fn enums(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>) {
        let Some(now) = new.get("enum").and_then(Value::as_array) else { return };
        let Some(before) = old.get("enum").and_then(Value::as_array) else {
            return self.breaks(path, "the new schema accepts only some values");
        };
        let lost: Vec<String> =
            before.iter().filter(|value| !now.contains(value)).map(Value::to_string).collect();
        if !lost.is_empty() {
            self.breaks(path, &format!("{} is not accepted any more", lost.join(", ")));
        }
    }

    fn bounds(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>) {
        let number = |schema: &Map<String, Value>, key: &str| schema.get(key).and_then(Value::as_f64);
        for key in LOWER_BOUNDS {
            if number(new, key).is_some_and(|now| number(old, key).is_none_or(|before| before < now)) {
                self.breaks(path, &format!("the limit `{key}` is higher now"));
            }
        }
        for key in UPPER_BOUNDS {
            if number(new, key).is_some_and(|now| number(old, key).is_none_or(|before| before > now)) {
                self.breaks(path, &format!("the limit `{key}` is lower now"));
            }
        }
    }

    fn members(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>, depth: usize) {
        let (before, now) = (names(old.get("required")), names(new.get("required")));
        for name in now.difference(&before) {
            self.breaks(path, &format!("the property `{name}` is required now"));
        }
        let empty = Map::new();
        let properties = |schema: &'_ Map<String, Value>| {
            schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_else(|| empty.clone())
        };
        let (before, now) = (properties(old), properties(new));
        for (name, schema) in &now {
            // In the old schema, `additionalProperties` also describes properties that have their own schema only in
            // the new one.
            let others = old.get("additionalProperties").filter(|others| others.is_object());
            if let Some(earlier) = before.get(name).or(others) {
                self.compare(&child(path, name), earlier, schema, depth + 1);
            } else if old.contains_key("patternProperties") {
                self.unsure(path, "patternProperties");
            }
        }
        let anything = Value::Bool(true);
        let more_before = old.get("additionalProperties").unwrap_or(&anything);
        let more_now = new.get("additionalProperties").unwrap_or(&anything);
        for (name, _) in before.iter().filter(|(name, _)| !now.contains_key(*name)) {
            match more_now {
                Value::Bool(true) => {}
                Value::Bool(false) => {
                    self.breaks(path, &format!("the property `{name}` is not accepted any more"));
                }
                _ => self.unsure(path, "additionalProperties"),
            }
        }
        self.compare(&child(path, "additionalProperties"), more_before, more_now, depth + 1);
    }

    fn items(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>, depth: usize) {
        let anything = Value::Bool(true);
        let (before, now) = (old.get("items").unwrap_or(&anything), new.get("items").unwrap_or(&anything));
        self.compare(&child(path, "items"), before, now, depth + 1);
    }

    /// Handles all other keywords. A keyword that is new or differs may narrow the schema.
    fn others(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>) {
        for (key, value) in new {
            if !is_described_or_compared(key) && old.get(key) != Some(value) {
                self.unsure(path, key);
            }
        }
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            if !only_widens(key, old, new) {
                self.unsure(path, key);
            }
        }
        for rejecting in REJECTING_THE_REST {
            let rejects = !accepts_anything(new.get(rejecting));
            let is_changed =
                |key: &&String| !DESCRIBING.contains(&key.as_str()) && old.get(*key) != new.get(*key);
            if rejects && old.keys().chain(new.keys()).any(|key| is_changed(&key)) {
                self.unsure(path, rejecting);
            }
        }
    }

    fn breaks(&mut self, path: &str, reason: &str) {
        if self.breaking.len() < REASONS_MAX {
            let place = if path.is_empty() { String::new() } else { format!("`{path}`: ") };
            self.breaking.push(format!("{place}{reason}"));
        }
    }

    fn unsure(&mut self, path: &str, keyword: &str) {
        if self.unknown.len() < REASONS_MAX {
            self.unknown.push(format!("`{}`", child(path, keyword)));
        }
    }
}

fn is_described_or_compared(key: &str) -> bool {
    DESCRIBING.contains(&key) || COMPARED.contains(&key)
}

/// Returns true if the removal of a keyword rejects no arguments that the old schema accepted.
fn only_widens(key: &str, old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    match key {
        // Properties that matched a pattern are additional properties now.
        "patternProperties" => accepts_anything(new.get("additionalProperties")),
        // The first items are items like all others now.
        "prefixItems" => accepts_anything(new.get("items")),
        // Without this keyword, `contains` requires one item.
        "minContains" => !new.contains_key("contains") || old[key].as_f64().is_some_and(|least| least >= 1.0),
        key => {
            is_described_or_compared(key)
                || WIDENING_IF_REMOVED.contains(&key)
                || REJECTING_THE_REST.contains(&key)
        }
    }
}

fn accepts_anything(schema: Option<&Value>) -> bool {
    schema.is_none_or(|schema| *schema == Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty))
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn type_names(value: &Value) -> BTreeSet<&str> {
    match value {
        Value::String(name) => [name.as_str()].into(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => BTreeSet::new(),
    }
}

fn names(value: Option<&Value>) -> BTreeSet<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schema_change_is_compatible_only_if_old_arguments_stay_valid() {
        let check = |old: Value, new: Value, expected: &str| {
            let found = compatibility(&old, &new).to_string();
            assert!(found.starts_with(expected), "{old} -> {new}: {found}");
        };
        let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
        let text = json!({"type": "string"});
        let one = object(json!({"a": text}), json!(["a"]));
        check(one.clone(), one.clone(), "compatible");
        check(
            one.clone(),
            object(json!({"a": {"type": "string", "description": "x"}}), json!(["a"])),
            "compatible",
        );
        check(one.clone(), object(json!({"a": text, "b": text}), json!(["a"])), "compatible");
        check(
            one.clone(),
            object(json!({"a": text, "b": text}), json!(["a", "b"])),
            "not compatible: the property `b` is required",
        );
        check(one.clone(), object(json!({"a": text}), json!([])), "compatible");
        check(one.clone(), object(json!({"a": {"type": ["string", "null"]}}), json!(["a"])), "compatible");
        check(
            one.clone(),
            object(json!({"a": {"type": "number"}}), json!(["a"])),
            "not compatible: `a`: the type string",
        );
        check(json!({"type": "integer"}), json!({"type": "number"}), "compatible");
        check(json!({"type": "number"}), json!({"type": "integer"}), "not compatible");
        check(
            one.clone(),
            object(json!({"a": {"type": "string", "enum": ["x"]}}), json!(["a"])),
            "not compatible",
        );
        check(json!({"enum": ["x", "y"]}), json!({"enum": ["y", "x", "z"]}), "compatible");
        check(json!({"enum": ["x", "y"]}), json!({"enum": ["y"]}), "not compatible: \"x\"");
        check(json!({"maxLength": 5}), json!({"maxLength": 9}), "compatible");
        check(json!({"maxLength": 5}), json!({"maxLength": 3}), "not compatible");
        check(json!({}), json!({"minimum": 1}), "not compatible");
        check(
            json!({"items": {"type": "string"}}),
            json!({"items": {"type": "null"}}),
            "not compatible: `items`",
        );
        check(json!({}), json!({"additionalProperties": false}), "not compatible");
        check(json!({"additionalProperties": false}), json!({}), "compatible");
        check(
            object(json!({"a": text, "b": text}), json!([])),
            json!({"type": "object", "properties": {"a": text}, "additionalProperties": false}),
            "not compatible: the property `b` is not accepted",
        );
        check(one.clone(), json!({"anyOf": [one]}), "not known to be compatible: `anyOf`");
        check(json!({"pattern": "a"}), json!({}), "compatible");
        check(json!({"pattern": "a"}), json!({"pattern": "b"}), "not known to be compatible: `pattern`");
        check(json!(true), json!(false), "not compatible");
    }

    #[test]
    fn removed_keyword_is_compatible_only_if_the_schema_cannot_become_narrower() {
        let check = |old: Value, new: Value, expected: &str| {
            let found = compatibility(&old, &new).to_string();
            assert!(found.starts_with(expected), "{old} -> {new}: {found}");
        };
        let unknown = "not known to be compatible: ";
        let text = json!({"type": "string"});
        let pattern = json!({"^x-": text});
        check(json!({"patternProperties": pattern}), json!({}), "compatible");
        check(json!({"patternProperties": pattern}), json!({"additionalProperties": true}), "compatible");
        check(
            json!({"patternProperties": pattern, "additionalProperties": false}),
            json!({"additionalProperties": false}),
            unknown,
        );
        check(
            json!({"patternProperties": pattern, "additionalProperties": text}),
            json!({"additionalProperties": text}),
            unknown,
        );
        check(json!({"prefixItems": [true]}), json!({}), "compatible");
        check(json!({"prefixItems": [true], "items": text}), json!({"items": text}), unknown);
        check(json!({"prefixItems": [true], "items": false}), json!({"items": false}), unknown);
        check(json!({"contains": text, "minContains": 0}), json!({"contains": text}), unknown);
        check(json!({"contains": text, "minContains": 2}), json!({"contains": text}), "compatible");
        check(json!({"contains": text, "minContains": 0}), json!({}), "compatible");
        check(json!({"contains": text, "maxContains": 2}), json!({"contains": text}), "compatible");
        check(json!({"properties": {"a": true}, "unevaluatedProperties": false}), json!({}), "compatible");
        check(
            json!({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false}),
            json!({"unevaluatedProperties": false}),
            unknown,
        );
        check(
            json!({"properties": {"a": true}, "additionalProperties": true, "unevaluatedProperties": false}),
            json!({"properties": {"a": true}, "unevaluatedProperties": false}),
            unknown,
        );
        check(
            json!({"contains": text, "unevaluatedItems": false}),
            json!({"unevaluatedItems": false}),
            unknown,
        );
        check(json!({"$defs": {"a": text}, "type": "object"}), json!({"type": "object"}), unknown);
        check(json!({"$ref": "#/$defs/a", "type": "object"}), json!({"type": "object"}), unknown);
        check(
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema"}),
            unknown,
        );
        check(json!({"items": [text]}), json!({"items": text}), unknown);
        check(json!({"oneOf": [text], "not": {}, "if": true, "then": text}), json!({}), "compatible");
        check(json!({"if": true, "then": text, "else": text}), json!({"then": text}), "compatible");
        check(json!({"uniqueItems": true, "multipleOf": 2, "const": 4}), json!({}), "compatible");
        check(
            json!({"additionalProperties": text}),
            json!({"properties": {"a": {"type": "number"}}, "additionalProperties": text}),
            "not compatible: `a`",
        );
        check(
            json!({"patternProperties": pattern}),
            json!({"properties": {"x-a": {"type": "number"}}, "patternProperties": pattern}),
            unknown,
        );
    }

    #[test]
    fn compatibility_of_deeply_nested_schemas_is_unknown() {
        let deep = |leaf: Value| (0..1_000).fold(leaf, |inner, _| json!({"items": inner}));
        let found = compatibility(&deep(json!({"type": "string"})), &deep(json!({"type": "null"})));
        assert!(matches!(found, SchemaCompatibility::Unknown(_)), "{found}");
    }
}
