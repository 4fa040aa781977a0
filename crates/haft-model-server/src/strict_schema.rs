//! Checks the schema rules of `strict: true` in the Chat Completions and Responses APIs.

use serde_json::Value;

/// The maximum nesting depth of a schema.
pub(crate) const DEPTH_MAX: usize = 32;

/// Keywords that the provider rejects in strict mode because it cannot enforce them.
const REFUSED: [&str; 8] =
    ["allOf", "not", "dependentRequired", "dependentSchemas", "if", "then", "else", "default"];

/// Rejects the schemas that the provider rejects, if the function or format has `strict: true`.
pub(crate) fn check(declared: &Value, schema: &Value) -> Result<(), String> {
    if declared["strict"] != true {
        return Ok(());
    }
    let name = declared["name"].as_str().unwrap_or_default();
    check_at(schema, DEPTH_MAX).map_err(|error| format!("invalid schema for '{name}': {error}"))
}

pub(crate) fn check_at(schema: &Value, depth: usize) -> Result<(), String> {
    if depth == 0 {
        return Err(format!("the schema is nested more than {DEPTH_MAX} levels deep"));
    }
    if let Some(word) = REFUSED.iter().find(|word| schema.get(**word).is_some()) {
        return Err(format!("'{word}' is not permitted"));
    }
    let may_be_object = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "object"),
        kind => kind == "object",
    };
    if may_be_object || schema.get("properties").is_some() {
        check_object(schema)?;
    }
    children(schema).try_for_each(|child| check_at(child, depth - 1))
}

/// Checks that all properties are required and that additional properties are forbidden.
fn check_object(schema: &Value) -> Result<(), String> {
    if schema["additionalProperties"] != false {
        return Err("'additionalProperties' is required to be supplied and to be false".to_owned());
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema["properties"].as_object().into_iter().flat_map(|properties| properties.keys());
    match properties.into_iter().find(|name| !required.contains(&name.as_str())) {
        Some(name) => Err(format!("'required' must include every key in properties; missing '{name}'")),
        None => Ok(()),
    }
}

fn children(schema: &Value) -> impl Iterator<Item = &Value> {
    let named =
        ["properties", "$defs", "definitions"].into_iter().filter_map(|word| schema[word].as_object());
    let listed = schema["anyOf"].as_array().into_iter().flatten();
    named.flat_map(|children| children.values()).chain(listed).chain(schema.get("items"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_schema(schema: &Value, expected: &str) {
        let found = check(&json!({ "name": "f", "strict": true }), schema);
        assert_eq!(found.err().unwrap_or_default(), expected);
        assert_eq!(check(&json!({ "name": "f" }), schema), Ok(()));
    }

    #[test]
    fn strict_schema_rejects_optional_and_additional_properties() {
        let closed = |properties: Value, required: Value| json!({ "type": "object", "additionalProperties": false, "properties": properties, "required": required });
        check_schema(&closed(json!({ "a": { "type": "string" } }), json!(["a"])), "");
        check_schema(
            &closed(json!({ "a": { "type": "string" } }), json!([])),
            "invalid schema for 'f': 'required' must include every key in properties; missing 'a'",
        );
        check_schema(
            &closed(json!({ "a": { "type": "object" } }), json!(["a"])),
            "invalid schema for 'f': 'additionalProperties' is required to be supplied and to be false",
        );
        check_schema(
            &closed(json!({ "a": { "type": "string", "default": "x" } }), json!(["a"])),
            "invalid schema for 'f': 'default' is not permitted",
        );
    }
}
