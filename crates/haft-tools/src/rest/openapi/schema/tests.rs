//! Tests of inlined schemas.
#![allow(clippy::needless_pass_by_value, reason = "tests pass JSON literals by value")]

use serde_json::json;

use super::super::fixture::documents;
use super::*;

fn whole(direction: Direction, schema: Value, others: Value) -> Value {
    let documents = documents(&json!({ "s": schema, "components": { "schemas": others } }));
    let root = documents.root();
    let node = root.with(&root.value["s"]);
    SchemaInliner::default().whole(&node, direction)
}

fn check(schema: Value, others: Value, expected: Value) {
    assert_eq!(whole(Direction::Request, schema.clone(), others), expected, "{schema}");
}

fn to(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

#[test]
fn schema_references_are_inlined_at_any_depth() {
    let others = json!({
        "A": {"type": "object", "properties": {"b": to("B")}},
        "B": {"type": "array", "items": to("C")},
        "C": {"type": "string", "enum": ["x"]},
    });
    let expected = json!({
        "type": "object",
        "properties": {"b": {"type": "array", "items": {"type": "string", "enum": ["x"]}}},
    });
    check(to("A"), others, expected);
}

#[test]
fn recursive_schema_reference_is_replaced_by_its_type() {
    let others = json!({"T": {"type": "object", "properties": {"child": to("T"), "n": {"type": "integer"}}}});
    let expected =
        json!({"type": "object", "properties": {"child": {"type": "object"}, "n": {"type": "integer"}}});
    check(to("T"), others, expected);
    check(to("L"), json!({"L": to("L")}), json!({}));
    check(to("Gone"), json!({}), json!({}));
    let mutual = json!({"X": {"type": "array", "items": to("Y")}, "Y": {"type": "array", "items": to("X")}});
    check(to("X"), mutual, json!({"type": "array", "items": {"type": "array", "items": {"type": "array"}}}));
}

#[test]
fn openapi_schema_keywords_become_json_schema() {
    check(json!({"type": "string", "nullable": true}), json!({}), json!({"type": ["string", "null"]}));
    check(
        json!({"type": "string", "enum": ["a"], "nullable": true}),
        json!({}),
        json!({"type": ["string", "null"], "enum": ["a", null]}),
    );
    check(
        json!({"minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false}),
        json!({}),
        json!({"exclusiveMinimum": 1, "maximum": 9}),
    );
    check(json!({"type": "file", "required": true}), json!({}), json!({"type": "string"}));
    check(json!({"type": "any", "pattern": "(?<!a)[", "default": 1}), json!({}), json!({"default": 1}));
    check(
        json!({"items": [{"type": "string"}], "type": "array"}),
        json!({}),
        json!({"prefixItems": [{"type": "string"}], "type": "array"}),
    );
    check(
        json!({"nullable": true, "oneOf": [to("A"), {"type": "string"}]}),
        json!({"A": {"type": "integer"}}),
        json!({"anyOf": [{"oneOf": [{"type": "integer"}, {"type": "string"}]}, {"type": "null"}]}),
    );
}

#[test]
fn read_only_and_write_only_properties_are_filtered_by_direction() {
    let schema = json!({
        "type": "object", "required": ["id", "password", "name"],
        "properties": {
            "id": {"type": "string", "readOnly": true},
            "password": {"type": "string", "writeOnly": true},
            "name": {"type": "string"},
        },
    });
    let request = whole(Direction::Request, schema.clone(), json!({}));
    assert_eq!(request["required"], json!(["password", "name"]));
    assert!(request["properties"].get("id").is_none());
    let response = whole(Direction::Response, schema, json!({}));
    assert_eq!(response["required"], json!(["id", "name"]));
    assert!(response["properties"].get("password").is_none());
}

#[test]
fn all_of_plain_objects_is_merged_unless_properties_clash() {
    let others = json!({
        "Base": {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}},
    });
    let schema =
        json!({"allOf": [to("Base"), {"properties": {"b": {"type": "integer"}}}], "description": "both"});
    let expected = json!({
        "type": "object", "description": "both", "required": ["a"],
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
    });
    check(schema, others.clone(), expected);
    let clash = json!({"allOf": [to("Base"), {"properties": {"a": {"type": "integer"}}}]});
    assert!(whole(Direction::Request, clash, others).get("allOf").is_some());
}

#[test]
fn oversized_schema_keeps_its_upper_levels() {
    // Every level refers to the next one ten times: fully inlined, the schema would have a hundred thousand leaves.
    let level = |next: Value| {
        let properties: Map<String, Value> = (0..10).map(|n| (format!("p{n}"), next.clone())).collect();
        json!({ "type": "object", "properties": properties })
    };
    let others = json!({
        "L0": level(to("L1")), "L1": level(to("L2")), "L2": level(to("L3")),
        "L3": level(to("L4")), "L4": level(to("L5")), "L5": {"type": "string", "items": {}},
    });
    let found = whole(Direction::Request, to("L0"), others);
    assert_eq!(found["properties"]["p9"]["properties"]["p9"]["type"], "object");
    assert!(found.to_string().len() < 40_000, "{}", found.to_string().len());
    // This schema is deep without any references.
    let deep = (0..60).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
    let found = whole(Direction::Request, deep, json!({}));
    assert!(found.to_string().matches("items").count() <= 24);
}
