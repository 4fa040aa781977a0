//! Converts `nullable` of `OpenAPI` 3.0 to JSON Schema.

use serde_json::{Map, Value, json};

/// Extends the schema to accept null.
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
    // A schema with neither a type nor alternatives accepts null already.
    if ["allOf", "anyOf", "oneOf"].iter().any(|key| schema.contains_key(*key)) {
        let alternatives = json!([Value::Object(schema), { "type": "null" }]);
        return Map::from_iter([("anyOf".to_owned(), alternatives)]);
    }
    schema
}
