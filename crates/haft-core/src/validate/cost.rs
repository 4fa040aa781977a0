//! Computes the cost of a validation before the validator runs. The cost is a number of steps; in each step, the
//! validator applies one schema or subschema to one value.
//!
//! An untrusted author can write a small schema whose validation takes practically forever: `$ref`s that double at
//! every step, or a recursion whose branches all descend into the same value. The validator has no step limit, so this
//! module counts the steps first, with a limit.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::SchemaDraft;

/// The maximum number of steps for one set of arguments. The validator does about ten million steps per second.
pub(super) const CHECK_STEPS_MAX: usize = 2_000_000;

/// The cost of a schema, as far as it can be computed without arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaCost {
    /// The validator applies every schema to every value at most once, so the cost is at most this number times the
    /// size of the arguments. A schema is counted once for each reference to it.
    PerValue { schemas: usize },
    /// A reference leads back to itself, so the cost depends on the arguments and must be counted for each call.
    ByCounting,
}

impl SchemaCost {
    /// Computes the cost of a schema. Rejects references whose target is not certain. `draft` is the draft to assume
    /// for a schema that does not name its draft.
    pub(super) fn of(schema: &Value, draft: Option<SchemaDraft>) -> Result<Self, String> {
        let mut survey = SchemaSurvey::default();
        survey.look(schema, draft);
        if !survey.has_references {
            return Ok(Self::PerValue { schemas: survey.objects });
        }
        if let Some(reason) = survey.untold {
            Err(reason)
        } else {
            let counted = Expansion::new(schema).count(schema);
            Ok(counted.map_or(Self::ByCounting, |schemas| Self::PerValue { schemas }))
        }
    }

    /// Returns true if validation stays within [`CHECK_STEPS_MAX`]. `bytes` is the size of the arguments as text.
    pub(super) fn is_within_step_limit(self, schema: &Value, arguments: &Value, bytes: usize) -> bool {
        match self {
            // Every value takes at least one byte of text, so the size in bytes is an upper bound of the number of
            // values.
            Self::PerValue { schemas } if schemas.saturating_mul(bytes) <= CHECK_STEPS_MAX => true,
            Self::PerValue { .. } | Self::ByCounting => {
                CostCounter::new(schema).apply(schema, arguments).is_ok()
            }
        }
    }
}

/// Collects facts in one pass over the whole schema, without following references.
#[derive(Default)]
struct SchemaSurvey {
    objects: usize,
    has_references: bool,
    untold: Option<String>,
}

impl SchemaSurvey {
    /// Walks the schema, whose depth `compile` has already limited.
    fn look(&mut self, root: &Value, draft: Option<SchemaDraft>) {
        let named = root.get("$schema").and_then(Value::as_str);
        let draft_4 =
            draft == Some(SchemaDraft::Draft4) || named.is_some_and(|draft| draft.contains("draft-04"));
        let mut open: Vec<&Value> = vec![root];
        while let Some(value) = open.pop() {
            if let Value::Object(object) = value {
                self.objects += 1;
                self.survey_object(root, object);
                // In a schema with its own identifier, `#` refers to that schema instead of the root.
                let identifiers: &[&str] = if draft_4 { &["$id", "id"] } else { &["$id"] };
                let renamed = identifiers.iter().any(|key| object.get(*key).is_some_and(Value::is_string));
                if renamed && !std::ptr::eq(value, root) {
                    self.untold =
                        Some("the schema contains both references and a subschema with an `$id`".into());
                }
            }
            open.extend(super::children(value));
        }
    }

    fn survey_object(&mut self, root: &Value, object: &Map<String, Value>) {
        for key in REFERENCES {
            if let Some(reference) = object.get(key).and_then(Value::as_str) {
                self.has_references = true;
                if target(root, reference).is_none() {
                    self.untold = Some(format!("the schema has a `{key}` that does not point to `#/...`"));
                }
            }
        }
    }
}

const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(pointer).or_else(|| root.pointer(&percent_decoded(pointer)?))
}

/// Decodes a JSON pointer from a URI fragment (RFC 6901, section 6).
fn percent_decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// Counts the schemas that apply if every reference is replaced by its target. Most tools have definitions that do not
/// refer to themselves. For such tools, this single count replaces a count for each call, which would take longer than
/// the validation.
struct Expansion<'s> {
    root: &'s Value,
    /// The counts of the targets. The key is the address in memory, because references with different texts may have
    /// the same target. The value is `None` while the target is being counted.
    counted: HashMap<*const Value, Option<usize>>,
    depth: usize,
}

impl<'s> Expansion<'s> {
    fn new(root: &'s Value) -> Self {
        Self { root, counted: HashMap::new(), depth: 0 }
    }

    /// Counts the schemas in a value. Returns `None` if a reference leads back to itself, or if references nest too
    /// deep.
    fn count(&mut self, value: &'s Value) -> Option<usize> {
        if self.depth == REFERENCE_DEPTH_MAX {
            return None;
        }
        self.depth += 1;
        let mut schemas = usize::from(value.is_object());
        for child in super::children(value) {
            schemas = schemas.saturating_add(self.count(child)?);
        }
        for reference in REFERENCES.iter().filter_map(|key| value.get(*key)?.as_str()) {
            schemas = schemas.saturating_add(self.count_target(reference)?);
        }
        self.depth -= 1;
        // The validator walks the branches a second time to find the unevaluated parts.
        let again = UNEVALUATED.iter().any(|key| value.get(*key).is_some());
        Some(if again { schemas.saturating_mul(2) } else { schemas })
    }

    fn count_target(&mut self, reference: &'s str) -> Option<usize> {
        let target = target(self.root, reference)?;
        if let Some(counted) = self.counted.get(&std::ptr::from_ref(target)) {
            return *counted;
        }
        self.counted.insert(target, None);
        let counted = self.count(target)?;
        self.counted.insert(target, Some(counted));
        Some(counted)
    }
}

const UNEVALUATED: [&str; 2] = ["unevaluatedProperties", "unevaluatedItems"];

/// The count exceeded its limit, or the references nest too deep for the stack.
struct CostLimitExceeded;

/// The maximum length of a chain of nested schemas and references. Real schemas are far below it.
const REFERENCE_DEPTH_MAX: usize = 512;

/// Applies schemas to values as a validator would, without checking the values. Where a validator may stop early or
/// choose one of two branches, this counts all branches.
struct CostCounter<'s> {
    root: &'s Value,
    /// The targets of the references followed so far.
    targets: HashMap<&'s str, Option<&'s Value>>,
    steps_left: usize,
    depth: usize,
}

impl<'s> CostCounter<'s> {
    fn new(root: &'s Value) -> Self {
        Self { root, targets: HashMap::new(), steps_left: CHECK_STEPS_MAX, depth: 0 }
    }

    fn apply(&mut self, schema: &'s Value, value: &Value) -> Result<(), CostLimitExceeded> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(CostLimitExceeded)?;
        let Value::Object(schema) = schema else { return Ok(()) };
        if self.depth == REFERENCE_DEPTH_MAX {
            return Err(CostLimitExceeded);
        }
        self.depth += 1;
        // The validator walks the branches a second time to find the unevaluated parts.
        let again = UNEVALUATED.iter().any(|key| schema.contains_key(*key));
        for _ in 0..=usize::from(again) {
            self.apply_in_place(schema, value)?;
        }
        self.apply_to_children(schema, value)?;
        self.depth -= 1;
        Ok(())
    }

    /// Handles the keywords whose schemas apply to the same value.
    fn apply_in_place(
        &mut self,
        schema: &'s Map<String, Value>,
        value: &Value,
    ) -> Result<(), CostLimitExceeded> {
        for (keyword, inner) in schema {
            match (keyword.as_str(), inner) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    let root = self.root;
                    if let Some(target) =
                        *self.targets.entry(reference).or_insert_with(|| target(root, reference))
                    {
                        self.apply(target, value)?;
                    }
                }
                ("allOf" | "anyOf" | "oneOf" | "extends", Value::Array(branches)) => {
                    branches.iter().try_for_each(|branch| self.apply(branch, value))?;
                }
                ("dependentSchemas" | "dependencies", Value::Object(branches)) => {
                    branches.values().try_for_each(|branch| self.apply(branch, value))?;
                }
                ("not" | "if" | "then" | "else", branch) => self.apply(branch, value)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Handles the keywords whose schemas apply to the members or items of the value.
    fn apply_to_children(
        &mut self,
        schema: &'s Map<String, Value>,
        value: &Value,
    ) -> Result<(), CostLimitExceeded> {
        match value {
            Value::Object(object) => self.apply_to_members(schema, object),
            Value::Array(items) => self.apply_to_items(schema, items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn apply_to_members(
        &mut self,
        schema: &'s Map<String, Value>,
        object: &Map<String, Value>,
    ) -> Result<(), CostLimitExceeded> {
        let properties = schema.get("properties").and_then(Value::as_object);
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let for_all = ["additionalProperties", "unevaluatedProperties", "propertyNames"];
        for (name, member) in object {
            // Names are not matched against patterns: every pattern is counted for every member.
            let by_name = properties.and_then(|properties| properties.get(name)).into_iter();
            let by_pattern = patterns.into_iter().flat_map(Map::values);
            let others = for_all.iter().filter_map(|keyword| schema.get(*keyword));
            by_name.chain(by_pattern).chain(others).try_for_each(|inner| self.apply(inner, member))?;
        }
        Ok(())
    }

    fn apply_to_items(
        &mut self,
        schema: &'s Map<String, Value>,
        items: &[Value],
    ) -> Result<(), CostLimitExceeded> {
        for (position, item) in items.iter().enumerate() {
            for keyword in ["items", "prefixItems", "additionalItems", "unevaluatedItems", "contains"] {
                match schema.get(keyword) {
                    Some(Value::Array(by_position)) => {
                        by_position.get(position).map_or(Ok(()), |inner| self.apply(inner, item))?;
                    }
                    Some(inner) => self.apply(inner, item)?,
                    None => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn bearable(schema: &Value, arguments: &Value) -> bool {
        let bytes = arguments.to_string().len();
        SchemaCost::of(schema, None).unwrap().is_within_step_limit(schema, arguments, bytes)
    }

    /// Returns `n` definitions, each of which refers twice to the next.
    fn doubling(keyword: &str, n: usize) -> Value {
        let next = |at: usize| json!({"$ref": format!("#/$defs/d{}", at + 1)});
        let mut definitions: Map<_, _> =
            (0..n).map(|at| (format!("d{at}"), json!({keyword: [next(at), next(at)]}))).collect();
        definitions.insert(format!("d{n}"), json!({"type": "object"}));
        json!({"$ref": "#/$defs/d0", "$defs": definitions})
    }

    #[test]
    fn doubling_references_count_toward_the_cost_limit() {
        assert!(bearable(&doubling("allOf", 10), &json!({})));
        assert!(bearable(&doubling("oneOf", 10), &json!({})));
        assert!(!bearable(&doubling("anyOf", 60), &json!({})));
    }

    #[test]
    fn schema_cost_is_counted_for_each_call_only_if_references_are_recursive() {
        let check = |schema: Value, expected: SchemaCost| {
            assert_eq!(SchemaCost::of(&schema, None), Ok(expected), "{schema}");
        };
        let mode = json!({"enum": ["a", "b"]});
        check(json!({"properties": {"a": mode.clone()}}), SchemaCost::PerValue { schemas: 3 });
        let twice = json!({
            "properties": {"a": {"$ref": "#/$defs/Mode"}, "b": {"$ref": "#/$defs/Mode"}},
            "$defs": {"Mode": mode},
        });
        check(twice, SchemaCost::PerValue { schemas: 8 });
        check(json!({"properties": {"c": {"$ref": "#"}}}), SchemaCost::ByCounting);
        let circle = json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}});
        check(circle, SchemaCost::ByCounting);
        let Ok(SchemaCost::PerValue { schemas }) = SchemaCost::of(&doubling("anyOf", 60), None) else {
            panic!("the schema has no cycle")
        };
        assert!(schemas > CHECK_STEPS_MAX, "{schemas}");
    }

    #[test]
    fn doubly_recursive_schema_exceeds_the_cost_limit_for_deep_values() {
        let into_c = json!({"properties": {"c": {"$ref": "#"}}});
        let twice = json!({"anyOf": [into_c.clone(), into_c]});
        let deep = |depth: usize| (0..depth).fold(json!({}), |inner, _| json!({"c": inner}));
        assert!(bearable(&twice, &deep(10)));
        assert!(!bearable(&twice, &deep(60)));
        let endless = json!({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"});
        assert!(!bearable(&endless, &json!({})));
    }

    #[test]
    fn ordinary_recursive_schemas_stay_within_the_cost_limit() {
        let tree = json!({"properties": {"name": {"type": "string"}, "children": {"items": {"$ref": "#"}}}});
        let leaf = json!({"name": "leaf", "children": []});
        let branch = json!({"name": "branch", "children": vec![leaf; 100]});
        assert!(bearable(&tree, &json!({"name": "root", "children": vec![branch; 100]})));
        let filter = json!({"$defs": {"f": {"anyOf": [
            {"properties": {"and": {"items": {"$ref": "#/$defs/f"}}}},
            {"properties": {"or": {"items": {"$ref": "#/$defs/f"}}}},
            {"properties": {"not": {"$ref": "#/$defs/f"}}},
        ]}}, "properties": {"filter": {"$ref": "#/$defs/f"}}});
        let deep = (0..30).fold(json!({"eq": 1}), |inner, _| json!({"and": [{"not": inner}]}));
        assert!(bearable(&filter, &json!({"filter": deep})));
    }

    #[test]
    fn cost_multiplies_subschemas_by_values() {
        let branches = vec![json!({"type": "integer"}); 10_000];
        let schema = json!({"properties": {"a": {"items": {"allOf": branches}}}});
        assert!(bearable(&schema, &json!({"a": vec![1; 10]})));
        assert!(!bearable(&schema, &json!({"a": vec![1; 1_000]})));
        let plain = json!({"properties": {"a": {"items": {"type": "integer"}}}});
        assert!(bearable(&plain, &json!({"a": vec![1; 300_000]})));
    }

    #[test]
    fn cost_estimate_rejects_references_it_cannot_resolve() {
        let check =
            |schema: Value, known: bool| assert_eq!(SchemaCost::of(&schema, None).is_ok(), known, "{schema}");
        check(json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {}}}), true);
        check(json!({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {}}}), true);
        check(json!({"$id": "https://example.com/s", "$ref": "#/$defs/a", "$defs": {"a": {}}}), true);
        check(json!({"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}}), false);
        check(json!({"$ref": "#/$defs/a", "$defs": {"a": {"$id": "other", "$ref": "#/$defs/a"}}}), false);
        let in_draft_4 = json!({"$ref": "#/a", "a": {"id": "other", "$ref": "#/a"}});
        assert!(
            SchemaCost::of(&in_draft_4, None).is_ok()
                && SchemaCost::of(&in_draft_4, Some(SchemaDraft::Draft4)).is_err()
        );
        check(json!({"$defs": {"a": {"$id": "other"}}}), true);
        check(json!({"properties": {"id": {"type": "string"}, "$ref": {"type": "string"}}}), true);
    }
}
