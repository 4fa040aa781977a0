//! Checks the subset of JSON Schema that Gemini's `parameters` and `responseSchema` accept.

use serde_json::Value;

use crate::protobuf::{camel, list};

/// The supported schema keywords. The API rejects all other keywords instead of ignoring them.
const WORDS: [&str; 22] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "maxItems",
    "minItems",
    "properties",
    "required",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "example",
    "anyOf",
    "propertyOrdering",
    "default",
    "minimum",
    "maximum",
];

const TYPES: [&str; 7] = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"];

/// The maximum nesting depth of a schema.
const DEPTH_MAX: usize = 32;

/// Rejects the schemas that Gemini rejects. The error starts with the path in the schema.
pub(crate) fn check(schema: &Value) -> Result<(), String> {
    if schema.is_null() { Ok(()) } else { check_at(schema, DEPTH_MAX) }
}

fn check_at(schema: &Value, depth: usize) -> Result<(), String> {
    let Some(object) = schema.as_object() else { return Err(format!(": {schema} is not a schema")) };
    if depth == 0 {
        return Err(format!(": the schema is nested more than {DEPTH_MAX} levels deep"));
    }
    if let Some(word) = object.keys().find(|word| !WORDS.contains(&camel(word).as_str())) {
        // This text is the wording of the Gemini API, except for its capital letter.
        return Err(format!(": unknown name \"{word}\": cannot find field"));
    }
    check_type(schema)?;
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        check_at(property, depth - 1).map_err(|error| format!(".properties[{name}]{error}"))?;
    }
    if schema.get("items").is_some() {
        check_at(&schema["items"], depth - 1).map_err(|error| format!(".items{error}"))?;
    }
    for (at, choice) in list(schema, "anyOf").iter().enumerate() {
        check_at(choice, depth - 1).map_err(|error| format!(".any_of[{at}]{error}"))?;
    }
    Ok(())
}

fn check_type(schema: &Value) -> Result<(), String> {
    let kind = match &schema["type"] {
        Value::Null => return Ok(()),
        Value::String(kind) => kind.to_uppercase(),
        other => return Err(format!(".type: {other} is not the name of one type")),
    };
    let has_strings_only = schema["enum"].as_array().is_none_or(|words| words.iter().all(Value::is_string));
    match kind.as_str() {
        kind if !TYPES.contains(&kind) => Err(format!(".type: invalid value \"{kind}\"")),
        "ARRAY" if schema.get("items").is_none() => Err(".items: missing field".to_owned()),
        "STRING" if !matches!(schema["format"].as_str(), None | Some("enum" | "date-time")) => Err(format!(
            ".format: only 'enum' and 'date-time' are supported for STRING type; found {}",
            schema["format"]
        )),
        "OBJECT" => check_required(schema),
        _ if !has_strings_only => Err(".enum: only strings are allowed".to_owned()),
        _ => Ok(()),
    }
}

fn check_required(schema: &Value) -> Result<(), String> {
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let missing =
        required.map(|name| (name, &schema["properties"][name])).find(|(_, property)| property.is_null());
    match missing {
        Some((name, _)) => Err(format!(".required: property `{name}` is not defined")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_error(schema: &Value, expected: &str) {
        assert_eq!(check(schema).unwrap_err(), expected);
    }

    #[test]
    fn invalid_gemini_schema_is_rejected_with_its_path() {
        assert_eq!(check(&json!({ "property_ordering": ["a"], "any_of": [{ "maxItems": 1 }] })), Ok(()));
        assert_eq!(check(&json!({ "type": "object", "properties": { "a": { "type": "string" } } })), Ok(()));
        check_error(
            &json!({ "additionalProperties": false }),
            ": unknown name \"additionalProperties\": cannot find field",
        );
        check_error(
            &json!({ "type": ["string", "null"] }),
            ".type: [\"string\",\"null\"] is not the name of one type",
        );
        check_error(
            &json!({ "properties": { "a": { "type": "array" } } }),
            ".properties[a].items: missing field",
        );
        check_error(
            &json!({ "type": "object", "required": ["a"] }),
            ".required: property `a` is not defined",
        );
    }
}
