//! Removes from a schema the parts that no provider accepts, so that one tool cannot break every request.
//!
//! Providers validate the schemas of all tools before they answer. A third-party server may send a schema with an
//! unknown type or in an old draft. The provider would then reject every request that contains the tool.

use serde_json::{Map, Value, json};

use super::keywords::append_description;
use super::{SchemaDialect, SchemaLoss};

const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// Keywords that contain named schemas, lists of schemas, or one schema.
const NAMED: [&str; 5] = ["properties", "$defs", "definitions", "patternProperties", "dependentSchemas"];
const LISTED: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];
const SINGLE: [&str; 9] = [
    "items",
    "additionalProperties",
    "additionalItems",
    "contains",
    "not",
    "if",
    "then",
    "else",
    "propertyNames",
];

/// The maximum length of a property name that Anthropic accepts. Names may contain letters, digits, `_`, `.` and `-`.
const KEY_CHARS_MAX: usize = 64;

pub(super) fn repaired(schema: Value, grammar: SchemaDialect, losses: &mut Vec<SchemaLoss>) -> Value {
    let mut repair = SchemaRepair { keys: KeyRule::of(grammar), at: String::new(), losses };
    repair.schema(schema)
}

/// The rule for property names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyRule {
    Any,
    /// Property names must match `^[a-zA-Z0-9_.-]{1,64}$`.
    Plain,
}

impl KeyRule {
    fn of(grammar: SchemaDialect) -> Self {
        match grammar {
            SchemaDialect::Anthropic | SchemaDialect::AnthropicOutput => Self::Plain,
            SchemaDialect::Json
            | SchemaDialect::OpenaiStrict
            | SchemaDialect::Gemini
            | SchemaDialect::Ollama => Self::Any,
        }
    }

    fn accepts(self, name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        match self {
            Self::Any => true,
            Self::Plain => (1..=KEY_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_plain),
        }
    }
}

struct SchemaRepair<'a> {
    keys: KeyRule,
    at: String,
    losses: &'a mut Vec<SchemaLoss>,
}

impl SchemaRepair<'_> {
    fn lose(&mut self, keyword: &str, why: &'static str) {
        self.losses.push(SchemaLoss { at: self.at.clone(), keyword: keyword.into(), why });
    }

    fn below(&mut self, steps: &[&str], schema: Value) -> Value {
        let length = self.at.len();
        for step in steps {
            self.at.push('/');
            self.at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        }
        let repaired = self.schema(schema);
        self.at.truncate(length);
        repaired
    }

    fn schema(&mut self, schema: Value) -> Value {
        match schema {
            Value::Object(object) => self.object(object),
            Value::Bool(_) => schema,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                self.lose(
                    "schema",
                    "the value is not a schema; the model sees a schema that accepts any value",
                );
                json!({})
            }
        }
    }

    fn object(&mut self, object: Map<String, Value>) -> Value {
        let mut repaired_object = Map::new();
        let mut described = Vec::new();
        for (keyword, value) in object {
            let repaired = match (keyword.as_str(), value) {
                ("type", value) => self.types(value),
                ("items", Value::Array(schemas)) => Some(self.tuple(schemas)),
                ("properties", Value::Object(all)) => Some(self.properties(all, &mut described)),
                (word, Value::Object(all)) if NAMED.contains(&word) => Some(self.named(word, all)),
                (word, Value::Array(all)) if LISTED.contains(&word) && !all.is_empty() => {
                    Some(self.listed(word, all))
                }
                (word, value) if SINGLE.contains(&word) => Some(self.below(&[word], value)),
                (word, value) if is_well_formed(word, &value) => Some(value),
                (word, _) => {
                    self.lose(word, "the value is not valid for this keyword; haft omits the keyword");
                    None
                }
            };
            if let Some(value) = repaired {
                repaired_object.insert(keyword, value);
            }
        }
        self.keep_required(&mut repaired_object, &described);
        Value::Object(repaired_object)
    }

    /// Returns the known types, or `None` if no type is known.
    fn types(&mut self, value: Value) -> Option<Value> {
        let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
        match value {
            Value::Array(names) if !names.is_empty() && names.iter().all(is_type) => {
                Some(Value::Array(names))
            }
            Value::Array(names) => {
                self.lose("type", "the list names an unknown type; haft omits this type");
                let known: Vec<Value> = names.into_iter().filter(is_type).collect();
                (!known.is_empty()).then_some(Value::Array(known))
            }
            value if is_type(&value) => Some(value),
            _ => {
                self.lose("type", "the type is unknown; the model sees a schema that accepts any value");
                None
            }
        }
    }

    /// Replaces `items` with a list of schemas, as in older drafts: each item may match any of these schemas.
    fn tuple(&mut self, schemas: Vec<Value>) -> Value {
        self.lose("items", "the value is a list of schemas; haft shows them as alternatives");
        match schemas.len() {
            0 => json!({}),
            1 => schemas.into_iter().next().map_or_else(|| json!({}), |one| self.below(&["items", "0"], one)),
            _ => json!({ "anyOf": self.listed("items", schemas) }),
        }
    }

    fn listed(&mut self, keyword: &str, schemas: Vec<Value>) -> Value {
        let numbered = schemas.into_iter().enumerate();
        numbered.map(|(number, schema)| self.below(&[keyword, &number.to_string()], schema)).collect()
    }

    fn named(&mut self, keyword: &str, schemas: Map<String, Value>) -> Value {
        let named = schemas.into_iter();
        Value::Object(
            named.map(|(name, schema)| (name.clone(), self.below(&[keyword, &name], schema))).collect(),
        )
    }

    /// Repairs the properties. `described` receives the properties whose names the provider does not accept.
    fn properties(&mut self, all: Map<String, Value>, described: &mut Vec<(String, Value)>) -> Value {
        let (keys, mut repaired_object) = (self.keys, Map::new());
        for (name, schema) in all {
            let schema = self.below(&["properties", &name], schema);
            if keys.accepts(&name) {
                repaired_object.insert(name, schema);
            } else {
                described.push((name, schema));
            }
        }
        Value::Object(repaired_object)
    }

    /// Describes the properties whose names are not allowed in the schema, so that a model can still set them.
    fn keep_required(&mut self, repaired_object: &mut Map<String, Value>, described: &[(String, Value)]) {
        if described.is_empty() {
            return;
        }
        self.lose(
            "properties",
            "the provider does not accept some property names; the description lists these properties",
        );
        let is_described = |name: &Value| described.iter().any(|(described, _)| name == described);
        if let Some(Value::Array(required)) = repaired_object.get_mut("required") {
            required.retain(|name| !is_described(name));
        }
        for (name, schema) in described {
            append_description(repaired_object, &format!("It also has the property `{name}`: {schema}."));
        }
    }
}

/// Returns true if the value of a keyword has the right kind. Unknown keywords may have any value.
fn is_well_formed(keyword: &str, value: &Value) -> bool {
    let is_list_of = |is: fn(&Value) -> bool| value.as_array().is_some_and(|all| all.iter().all(is));
    match keyword {
        "properties" | "$defs" | "definitions" | "patternProperties" | "dependentSchemas" => {
            value.is_object()
        }
        "anyOf" | "oneOf" | "allOf" | "prefixItems" => value.as_array().is_some_and(|all| !all.is_empty()),
        "required" => is_list_of(Value::is_string),
        "enum" => value.as_array().is_some_and(|all| !all.is_empty()),
        "title" | "description" | "format" | "pattern" | "$ref" | "$id" | "$schema" | "$comment" => {
            value.is_string()
        }
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => value.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
            value.as_u64().is_some()
        }
        "uniqueItems" => value.is_boolean(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(grammar: SchemaDialect, property: &Value, expected: &Value, losses: usize) {
        let schema = json!({"type": "object", "properties": {"a": property}});
        let mut lost = Vec::new();
        let repaired = repaired(schema, grammar, &mut lost);
        assert_eq!(&repaired["properties"]["a"], expected);
        assert_eq!(lost.len(), losses, "{lost:?}");
    }

    #[test]
    fn schema_parts_that_no_provider_accepts_are_omitted() {
        let grammar = SchemaDialect::Json;
        let text = json!({"type": "string"});
        check(grammar, &text, &text, 0);
        check(grammar, &json!({"type": "any"}), &json!({}), 1);
        check(grammar, &json!({"type": ["string", "date"]}), &json!({"type": ["string"]}), 1);
        let tuple = json!({"type": "array", "items": [{"type": "string"}, {"type": "float"}]});
        check(grammar, &tuple, &json!({"type": "array", "items": {"anyOf": [{"type": "string"}, {}]}}), 2);
        check(grammar, &json!({"type": "string", "required": true}), &text, 1);
        check(grammar, &json!({"type": "string", "enum": [], "description": 7}), &text, 2);
        check(grammar, &json!({"minimum": 1, "exclusiveMinimum": true}), &json!({"minimum": 1}), 1);
        check(grammar, &json!("string"), &json!({}), 1);
        check(grammar, &json!({"default": {"type": "any"}}), &json!({"default": {"type": "any"}}), 0);
    }

    #[test]
    fn property_names_that_a_provider_refuses_move_to_the_description() {
        let schema = json!({"type": "object", "properties": {"$filter": {"type": "string"}, "a": {}}, "required": ["$filter", "a"]});
        let mut losses = Vec::new();
        let repaired_schema = repaired(schema.clone(), SchemaDialect::Anthropic, &mut losses);
        assert_eq!(
            (&repaired_schema["properties"], &repaired_schema["required"]),
            (&json!({"a": {}}), &json!(["a"]))
        );
        assert!(repaired_schema["description"].as_str().unwrap().contains("`$filter`"), "{repaired_schema}");
        assert_eq!(losses.len(), 1);
        assert_eq!(repaired(schema.clone(), SchemaDialect::Json, &mut losses), schema);
    }
}
