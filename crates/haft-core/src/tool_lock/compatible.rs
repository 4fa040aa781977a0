//! Decides if every argument object that is valid under one schema is valid under another. Compares the texts of the
//! schemas, so the result may be that the compatibility is unknown.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Number, Value};

/// The maximum number of reasons in a result.
const REASONS_MAX: usize = 8;

/// The maximum nesting depth of schemas that is compared.
const DEPTH_MAX: usize = 64;

/// The relation of a new input schema to an old one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaCompatibility {
    /// Arguments that were valid under the old schema stay valid.
    Compatible,
    /// Arguments that were valid under the old schema stay valid, unless they used one of these properties. The old
    /// schema did not declare them, but accepted every value for them.
    CompatibleIfDeclared(Vec<String>),
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
            Self::CompatibleIfDeclared(properties) => {
                let names = properties.join(", ");
                write!(
                    f,
                    "compatible: arguments that were valid stay valid, unless they used undeclared properties: {names}"
                )
            }
            Self::Breaking(reasons) => write!(f, "not compatible: {}", reasons.join("; ")),
            Self::Unknown(places) => write!(f, "not known to be compatible: {} differs", places.join(", ")),
        }
    }
}

/// Compares two input schemas.
pub fn compatibility(old: &Value, new: &Value) -> SchemaCompatibility {
    let mut comparison = SchemaComparison::default();
    if old != new && (refers_elsewhere(old, 0) || refers_elsewhere(new, 0)) {
        comparison.unsure("", "$ref");
    }
    comparison.compare("", old, new, 0);
    let SchemaComparison { breaking, unknown, undeclared } = comparison;
    if !breaking.is_empty() {
        SchemaCompatibility::Breaking(breaking)
    } else if !unknown.is_empty() {
        SchemaCompatibility::Unknown(unknown)
    } else if !undeclared.is_empty() {
        SchemaCompatibility::CompatibleIfDeclared(undeclared)
    } else {
        SchemaCompatibility::Compatible
    }
}

#[derive(Default)]
struct SchemaComparison {
    breaking: Vec<String>,
    unknown: Vec<String>,
    /// The properties for which only the new schema has a schema.
    undeclared: Vec<String>,
}

/// The beginnings of references to definitions, which are compared as a whole.
const DEFINITIONS: [&str; 2] = ["#/$defs/", "#/definitions/"];

/// The number up to which a floating-point number represents every integer: 2 to the power of 53.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Keywords that only describe a value and never reject one.
const DESCRIBING: [&str; 7] =
    ["$comment", "default", "deprecated", "description", "examples", "title", "x-mcp-header"];

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
const WIDENING_IF_REMOVED: [&str; 24] = [
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
    // The validation checks formats.
    "format",
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
        if old == new || accepts_anything(Some(new)) {
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
        for key in LOWER_BOUNDS {
            let Some(now) = new.get(key).and_then(Value::as_number) else { continue };
            let before = old.get(key).and_then(Value::as_number);
            if before.is_none_or(|before| is_below(before, now)) {
                self.breaks(path, &format!("the limit `{key}` is higher now"));
            }
        }
        for key in UPPER_BOUNDS {
            let Some(now) = new.get(key).and_then(Value::as_number) else { continue };
            let before = old.get(key).and_then(Value::as_number);
            if before.is_none_or(|before| is_below(now, before)) {
                self.breaks(path, &format!("the limit `{key}` is lower now"));
            }
        }
    }

    fn members(&mut self, path: &str, old: &Map<String, Value>, new: &Map<String, Value>, depth: usize) {
        let (before, now) = (names(old.get("required")), names(new.get("required")));
        for name in now.difference(&before) {
            self.breaks(path, &format!("the property `{name}` is required now"));
        }
        let properties = |schema: &Map<String, Value>| {
            schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
        };
        let (before, now) = (properties(old), properties(new));
        for (name, schema) in &now {
            match before.get(name) {
                Some(earlier) => self.compare(&child(path, name), earlier, schema, depth + 1),
                None => self.declared(&child(path, name), old, schema, depth),
            }
        }
        let anything = Value::Bool(true);
        let more_before = old.get("additionalProperties").unwrap_or(&anything);
        let more_now = new.get("additionalProperties").unwrap_or(&anything);
        for (name, _) in before.iter().filter(|(name, _)| !now.contains_key(*name)) {
            if *more_now == Value::Bool(false) {
                self.breaks(path, &format!("the property `{name}` is not accepted any more"));
            } else if !accepts_anything(Some(more_now)) {
                self.unsure(path, "additionalProperties");
            }
        }
        self.compare(&child(path, "additionalProperties"), more_before, more_now, depth + 1);
    }

    /// Compares a property that only the new schema declares. In the old schema, `additionalProperties` describes it.
    fn declared(&mut self, path: &str, old: &Map<String, Value>, schema: &Value, depth: usize) {
        let others = old.get("additionalProperties");
        if accepts_anything(Some(schema)) || others == Some(&Value::Bool(false)) && !has_patterns(old) {
            return;
        }
        if has_patterns(old) {
            self.unsure(path, "patternProperties");
        } else if let Some(others) = others.filter(|others| !accepts_anything(Some(others))) {
            self.compare(path, others, schema, depth + 1);
        } else if self.undeclared.len() < REASONS_MAX {
            self.undeclared.push(format!("`{path}`"));
        }
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
        // Without `prefixItems`, the schema `items` applies to the first items too.
        "prefixItems" => accepts_anything(new.get("items")),
        // Without `minContains`, `contains` requires at least one item.
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

fn has_patterns(schema: &Map<String, Value>) -> bool {
    schema.contains_key("patternProperties")
}

/// Returns true if a schema contains a reference whose target is not a definition. The reference can apply a compared
/// subschema in a second position, such as inside of `not`. There, a wider subschema makes the whole schema narrower.
fn refers_elsewhere(schema: &Value, depth: usize) -> bool {
    match schema {
        _ if depth > DEPTH_MAX => true,
        Value::Object(members) => members.iter().any(|(key, value)| match (key.as_str(), value) {
            ("$ref", Value::String(target)) => {
                !DEFINITIONS.iter().any(|definitions| target.starts_with(definitions))
            }
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => true,
            (_, value) => refers_elsewhere(value, depth + 1),
        }),
        Value::Array(items) => items.iter().any(|item| refers_elsewhere(item, depth + 1)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Returns true if a number is less than another one, or if rounding may hide that it is.
fn is_below(one: &Number, other: &Number) -> bool {
    let integer =
        |number: &Number| number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    if let (Some(one), Some(other)) = (integer(one), integer(other)) {
        return one < other;
    }
    let (Some(a), Some(b)) = (one.as_f64(), other.as_f64()) else { return one != other };
    a < b || one != other && a.abs() >= EXACT_INTEGER_MAX && a <= b
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
    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};
    use serde_json::json;

    use super::*;
    use crate::arguments::{ArgumentLimits, RawArguments};
    use crate::validate::Schema;

    /// A schema of a value that is not an object with properties.
    fn leaf() -> impl Strategy<Value = Value> {
        select(vec![
            json!(true),
            json!(false),
            json!({}),
            json!({"description": "d"}),
            json!({"type": "string"}),
            json!({"type": "string", "format": "date"}),
            json!({"type": "string", "format": "ipv4"}),
            json!({"format": "date"}),
            json!({"type": ["string", "null"], "minLength": 1}),
            json!({"enum": ["", "x"]}),
            json!({"enum": ["", "x", 1]}),
            json!({"type": "integer"}),
            json!({"type": "number", "minimum": 1}),
            json!({"type": "number", "minimum": 0, "maximum": 1}),
            json!({"type": "array", "items": {"type": "integer"}}),
            json!({"type": "array", "items": {"type": "number"}, "minItems": 1}),
            json!({"not": {"$ref": "#/properties/a"}}),
        ])
    }

    /// A schema of an object.
    fn object(member: impl Strategy<Value = Value> + Clone) -> impl Strategy<Value = Value> {
        let properties = proptest::collection::btree_map(select(vec!["a", "b"]), member.clone(), 0..=2);
        let required = subsequence(vec!["a", "b"], 0..=1);
        let others = prop_oneof![
            3 => Just(None),
            1 => Just(Some(json!(true))),
            1 => Just(Some(json!({}))),
            1 => Just(Some(json!(false))),
            1 => member.prop_map(Some),
        ];
        (properties, required, others, select(vec![None, Some(json!({"^a": {"type": "string"}}))])).prop_map(
            |(properties, required, others, patterns)| {
                let mut schema = json!({"type": "object", "properties": properties, "required": required});
                if let Some(others) = others {
                    schema["additionalProperties"] = others;
                }
                if let Some(patterns) = patterns {
                    schema["patternProperties"] = patterns;
                }
                schema
            },
        )
    }

    fn schema() -> impl Strategy<Value = Value> {
        let nested = prop_oneof![4 => leaf(), 1 => object(leaf().boxed())].boxed();
        object(nested)
    }

    fn arguments() -> impl Strategy<Value = Value> {
        let value = select(vec![
            json!(""),
            json!("x"),
            json!("2020-01-01"),
            json!("1.2.3.4"),
            json!(null),
            json!(0),
            json!(1),
            json!(1.5),
            json!([]),
            json!([1]),
            json!([1.5]),
            json!({}),
            json!({"a": "x"}),
            json!({"a": 1, "b": "2020-01-01"}),
        ]);
        proptest::collection::btree_map(select(vec!["a", "b", "c"]), value, 0..=3).prop_map(|map| json!(map))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8_000))]
        #[test]
        fn compatible_schema_accepts_all_earlier_arguments(
            old in schema(),
            new in schema(),
            same in any::<bool>(),
            arguments in proptest::collection::vec(arguments(), 1..8),
        ) {
            // Schemas that differ in one keyword are more often compatible than independent ones.
            let new = if same { mixed(&old, &new) } else { new };
            // A quarter of the pairs is compatible.
            if compatibility(&old, &new) != SchemaCompatibility::Compatible {
                return Ok(());
            }
            let (before, now) = (Schema::compile(&old), Schema::compile(&new));
            for arguments in arguments {
                let text = arguments.to_string();
                let parsed = || RawArguments::from_text(text.clone()).parse(&ArgumentLimits::default()).unwrap();
                if before.accepts(&parsed()) {
                    prop_assert!(now.accepts(&parsed()), "{} -> {}: {}", old, new, text);
                }
            }
        }
    }

    /// Returns the old schema with the properties of the new one.
    fn mixed(old: &Value, new: &Value) -> Value {
        let mut mixed = old.clone();
        mixed["properties"] = new["properties"].clone();
        mixed
    }

    #[test]
    fn added_format_or_property_is_not_unconditionally_compatible() {
        let check = |old: Value, new: Value, expected: &str| {
            let found = compatibility(&old, &new).to_string();
            assert!(found.starts_with(expected), "{old} -> {new}: {found}");
        };
        let (unknown, same) =
            ("not known to be compatible: ", "compatible: arguments that were valid stay valid");
        let (text, date) = (json!({"type": "string"}), json!({"type": "string", "format": "date"}));
        check(text.clone(), date.clone(), "not known to be compatible: `format`");
        check(date.clone(), json!({"type": "string", "format": "ipv4"}), unknown);
        check(date.clone(), text.clone(), same);
        assert_eq!(compatibility(&date, &text), SchemaCompatibility::Compatible);
        let with = |others: Value| json!({"properties": {}, "additionalProperties": others});
        let typed = |others: Value| json!({"properties": {"b": text}, "additionalProperties": others});
        for others in [json!(true), json!({})] {
            let found = compatibility(&with(others.clone()), &typed(others));
            assert_eq!(found, SchemaCompatibility::CompatibleIfDeclared(vec!["`b`".into()]));
            assert!(found.to_string().ends_with("unless they used undeclared properties: `b`"), "{found}");
        }
        assert_eq!(compatibility(&with(json!(false)), &typed(json!(false))), SchemaCompatibility::Compatible);
        check(json!({"properties": {"a": text}}), json!({"additionalProperties": {}}), same);
        check(with(json!({})), with(json!(true)), same);
        let patterns = json!({"patternProperties": {"^x": {}}, "additionalProperties": text});
        let mut declared = patterns.clone();
        declared["properties"] = json!({"xy": text});
        check(patterns, declared, unknown);
    }

    #[test]
    fn compatibility_is_unknown_if_a_reference_points_to_a_changed_property() {
        let with = |kind: Value, target: &str| json!({"properties": {"a": {"type": kind}, "b": {"not": {"$ref": target}}}, "$defs": {"c": {}}});
        let (narrow, wide) = (json!("string"), json!(["string", "null"]));
        let place = "#/properties/a";
        let found = compatibility(&with(narrow.clone(), place), &with(wide.clone(), place));
        assert_eq!(found, SchemaCompatibility::Unknown(vec!["`$ref`".into()]));
        let definition = "#/$defs/c";
        let found = compatibility(&with(narrow.clone(), definition), &with(wide, definition));
        assert_eq!(found, SchemaCompatibility::Compatible);
        let same = compatibility(&with(narrow.clone(), place), &with(narrow, place));
        assert_eq!(same, SchemaCompatibility::Compatible);
    }

    #[test]
    fn numeric_limits_are_compared_without_rounding() {
        let changed =
            |from: Value, to: Value| compatibility(&json!({"minimum": from}), &json!({"minimum": to}));
        let breaks = |from: Value, to: Value| matches!(changed(from, to), SchemaCompatibility::Breaking(_));
        assert!(breaks(json!(9_007_199_254_740_992_u64), json!(9_007_199_254_740_993_u64)));
        assert!(!breaks(json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_992_u64)));
        assert!(
            !breaks(json!(1), json!(1.0)) && breaks(json!(1), json!(1.5)) && !breaks(json!(-1), json!(-1.5))
        );
        assert!(breaks(json!(9.007_199_254_740_992e15), json!(9_007_199_254_740_993_u64)));
    }

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
