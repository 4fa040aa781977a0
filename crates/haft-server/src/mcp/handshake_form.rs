//! Adapts tools and results to protocol revisions with a handshake, in which output schemas and structured results are
//! objects.
//!
//! The official TypeScript SDK wraps other schemas and results in the same way, as the member `result` of an object.

use serde_json::{Map, Value, json};

use super::object::RawObject;

/// The kind of value that the output schema of a tool describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputRoot {
    /// The tool has no output schema.
    Undeclared,
    Object,
    /// The schema also accepts values that are not objects, or does not state its type.
    Any,
}

impl OutputRoot {
    pub(super) fn of(output_schema: Option<&Value>) -> Self {
        match output_schema {
            None => Self::Undeclared,
            Some(schema) if schema["type"] == "object" => Self::Object,
            Some(_) => Self::Any,
        }
    }
}

/// Returns the definition of a tool for clients with a handshake; `None` if it does not change.
pub(super) fn adapted_tool(tool: &RawObject<'_>) -> Option<String> {
    let input = tool.get("inputSchema").and_then(with_object_properties);
    let output = tool.get("outputSchema").and_then(|text| match RawObject::of(text)?.get("type") {
        Some(r#""object""#) => with_object_properties(text),
        Some(_) | None => Some(wrapped_schema(serde_json::from_str(text).ok()?).to_string()),
    });
    if input.is_none() && output.is_none() {
        return None;
    }
    let mut adapted = tool.clone();
    for (key, schema) in [("inputSchema", input), ("outputSchema", output)] {
        if let Some(schema) = schema {
            adapted.set(key, schema);
        }
    }
    Some(adapted.to_string())
}

/// Returns a schema whose property schemas are all objects; `None` if they already are. `false` accepts no value; `true`
/// and invalid schemas accept every value.
fn with_object_properties(schema: &str) -> Option<String> {
    let mut schema = RawObject::of(schema)?;
    let mut properties = RawObject::of(schema.get("properties")?)?;
    let is_changed = properties.replace_values(|text| match text {
        _ if text.starts_with('{') => None,
        "false" => Some(r#"{"not":{}}"#),
        _ => Some("{}"),
    });
    let properties = is_changed.then(|| properties.to_string())?;
    schema.set("properties", properties);
    Some(schema.to_string())
}

/// The prefix that references within a wrapped schema get.
const WRAPPED_ROOT: &str = "#/properties/result";

/// Returns the schema of an object whose member `result` has the given schema.
fn wrapped_schema(mut schema: Value) -> Value {
    let dialect = schema.get("$schema").filter(|dialect| dialect.is_string()).cloned();
    move_references(&mut schema);
    let mut wrapped = json!({ "type": "object", "properties": { "result": schema }, "required": ["result"] });
    if let Some(dialect) = dialect {
        wrapped["$schema"] = dialect;
    }
    wrapped
}

/// Changes the references within a schema, because the schema is no longer the root of its document.
fn move_references(schema: &mut Value) {
    match schema {
        Value::Object(keywords) if is_base(keywords) => {}
        Value::Object(keywords) => {
            keywords.iter_mut().for_each(|(keyword, value)| move_keyword(keyword, value));
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(move_references),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn move_keyword(keyword: &str, value: &mut Value) {
    match (keyword, value) {
        ("$ref" | "$dynamicRef", Value::String(reference)) => {
            if let Some(path) =
                reference.strip_prefix('#').filter(|path| path.is_empty() || path.starts_with('/'))
            {
                *reference = format!("{WRAPPED_ROOT}{path}");
            }
        }
        // These values are data: a member with the name `$ref` is not a reference.
        ("const" | "enum" | "default" | "examples", _) => {}
        (
            "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
            | "dependencies",
            Value::Object(schemas),
        ) => schemas.values_mut().for_each(move_references),
        (_, value) => move_references(value),
    }
}

/// Returns true if references within the schema are relative to the schema itself, wherever it is.
fn is_base(schema: &Map<String, Value>) -> bool {
    let id = schema.get("$id");
    id.is_some_and(|id| !id.as_str().is_some_and(|id| id.starts_with('#')))
}

/// Returns a call result whose structured content is an object; `None` if it already is, or is absent.
pub(super) fn adapted_result(result: &str, root: OutputRoot) -> Option<String> {
    // Most results have no structured content, so do not parse them.
    if !result.contains("\"structuredContent\"") {
        return None;
    }
    let mut result = RawObject::of(result)?;
    let content = result.get("structuredContent")?;
    match (root, content) {
        (OutputRoot::Undeclared | OutputRoot::Object, _) if content.starts_with('{') => return None,
        (OutputRoot::Undeclared | OutputRoot::Object, "null") => result.remove("structuredContent"),
        (OutputRoot::Undeclared | OutputRoot::Object | OutputRoot::Any, _) => {
            let wrapped = format!("{{\"result\":{content}}}");
            result.set("structuredContent", wrapped);
        }
    }
    Some(result.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(sent: &str) -> Option<Value> {
        adapted_tool(&RawObject::of(sent).unwrap()).map(|adapted| serde_json::from_str(&adapted).unwrap())
    }

    #[test]
    fn tools_with_object_schemas_stay_as_they_were_sent() {
        for sent in [
            "{}",
            r#"{"inputSchema":{"type":"object"}}"#,
            r#"{"inputSchema":{"type":"object","properties":{"a":{}}},"outputSchema":{"type":"object"}}"#,
        ] {
            assert_eq!(tool(sent), None, "{sent}");
        }
    }

    #[test]
    fn property_schemas_become_objects() {
        let sent = r#"{"v":1,"inputSchema":{"type":"object","properties":{"a":true,"b":false,"c":{"x":true},"d":null}}}"#;
        let properties = json!({"a": {}, "b": {"not": {}}, "c": {"x": true}, "d": {}});
        let expected = json!({"v": 1, "inputSchema": {"type": "object", "properties": properties}});
        assert_eq!(tool(sent), Some(expected));
        let sent = r#"{"outputSchema":{"type":"object","properties":{"a":true}}}"#;
        let expected = json!({"outputSchema": {"type": "object", "properties": {"a": {}}}});
        assert_eq!(tool(sent), Some(expected));
    }

    #[test]
    fn output_schemas_of_other_values_are_wrapped_and_their_references_moved() {
        let check =
            |sent: Value, expected: Value| assert_eq!(wrapped_schema(sent)["properties"]["result"], expected);
        check(
            json!({"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": {"anyOf": [{"$ref": "#"}]}}}),
            json!({
                "type": "array",
                "items": {"$ref": "#/properties/result/$defs/row"},
                "$defs": {"row": {"anyOf": [{"$ref": "#/properties/result"}]}},
            }),
        );
        let kept = json!({
            "default": {"$ref": "#/a"},
            "items": {"$ref": "other.json#/a"},
            "prefixItems": [{"$id": "urn:x", "$ref": "#/a"}, {"$ref": "#anchor"}],
        });
        check(kept.clone(), kept);
        check(
            json!({"anyOf": [{"properties": {"default": {"$ref": "#/a"}, "$ref": {"$dynamicRef": "#/b"}}}]}),
            json!({"anyOf": [{"properties": {
                "default": {"$ref": "#/properties/result/a"},
                "$ref": {"$dynamicRef": "#/properties/result/b"},
            }}]}),
        );
        assert_eq!(
            tool(r#"{"outputSchema":{"$schema":"s","type":["object","null"]}}"#),
            Some(json!({"outputSchema": {
                "$schema": "s",
                "type": "object",
                "properties": {"result": {"$schema": "s", "type": ["object", "null"]}},
                "required": ["result"],
            }}))
        );
    }

    #[test]
    fn structured_content_is_wrapped_where_the_output_schema_is() {
        let check = |root: OutputRoot, sent: &str, expected: Option<&str>| {
            let result = |content: &str| format!(r#"{{"content":[],"structuredContent":{content},"v":1.0}}"#);
            assert_eq!(adapted_result(&result(sent), root), expected.map(result), "{root:?} {sent}");
        };
        let array = OutputRoot::of(Some(&json!({"type": "array"})));
        check(array, "[1]", Some(r#"{"result":[1]}"#));
        check(array, "null", Some(r#"{"result":null}"#));
        check(OutputRoot::of(Some(&json!({"anyOf": []}))), r#"{"a":1}"#, Some(r#"{"result":{"a":1}}"#));
        check(OutputRoot::of(Some(&json!({"type": "object"}))), r#"{"a":1}"#, None);
        check(OutputRoot::of(None), r#"{"a":1}"#, None);
        check(OutputRoot::of(None), "[1]", Some(r#"{"result":[1]}"#));
        let null = r#"{"content":[],"structuredContent":null}"#;
        assert_eq!(adapted_result(null, OutputRoot::Undeclared).as_deref(), Some(r#"{"content":[]}"#));
        assert_eq!(adapted_result(r#"{"content":[]}"#, OutputRoot::Any), None);
    }
}
