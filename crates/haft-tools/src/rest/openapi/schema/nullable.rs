//! `nullable` of `OpenAPI` 3.0, as JSON Schema says it.

use serde_json::{Map, Value, json};

/// The schema, and null beside it.
pub(super) fn nullable(mut schema: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(words)) = schema.get_mut("enum")
        && !words.contains(&Value::Null)
    {
        words.push(Value::Null);
    }
    if let Some(names) = schema.get_mut("type") {
        match names {
            Value::Array(names) if names.contains(&json!("null")) => {}
            Value::Array(names) => names.push(json!("null")),
            name => *name = json!([name.clone(), "null"]),
        }
        return schema;
    }
    // Whatever has neither type nor alternatives takes null already.
    if ["allOf", "anyOf", "oneOf"].iter().any(|key| schema.contains_key(*key)) {
        let alternatives = json!([Value::Object(schema), { "type": "null" }]);
        return Map::from_iter([("anyOf".to_owned(), alternatives)]);
    }
    schema
}
