//! Tests with malicious OpenAPI documents: each must end in skip reasons or an error, in bounded time and memory.
#![allow(clippy::unwrap_used, reason = "a failed helper must fail the test")]

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::fixture::documents;
use super::*;

fn imported(value: &Value) -> Result<ImportResult, ImportError> {
    let settings = ImportSettings {
        name: "evil",
        base_url: None,
        headers: Vec::new(),
        logins: BTreeMap::new(),
        filter: OperationFilter::default(),
        hosts: Vec::new(),
        private: None,
    };
    import(&documents(value), settings)
}

fn described(paths: impl Into<Value>, components: impl Into<Value>) -> Value {
    json!({ "openapi": "3.0.0", "paths": paths.into(), "components": components.into() })
}

fn numbered<T>(count: usize, each: impl Fn(usize) -> (String, T)) -> Map<String, Value>
where
    T: Into<Value>,
{
    (0..count).map(each).map(|(name, value)| (name, value.into())).collect()
}

/// Checks that every operation became a tool or has a reason, and that one reason contains the given text.
#[track_caller]
fn check(value: &Value, operations: usize, reason: &str) {
    let all = imported(value).unwrap();
    assert_eq!(all.tools.len() + all.skipped.len(), operations);
    let reasons: Vec<&str> = all.skipped.iter().map(|skipped| skipped.reason.as_str()).collect();
    assert!(reasons.iter().any(|found| found.contains(reason)), "{:?}", reasons.first());
}

#[test]
fn shared_large_schema_is_not_expanded_for_every_operation() {
    let large = json!({ "type": "object", "properties": numbered(100_000, |n| (format!("p{n}"), json!({"type": "string"}))) });
    let paths = |operation: Value| numbered(9_000, |n| (format!("/a{n}"), json!({ "get": operation })));
    let spent = "takes more time or memory than allowed";
    // All operations share one response, so its schema is inlined only once.
    let shared = json!({ "responses": { "200": { "$ref": "#/components/responses/r" } } });
    let answer = json!({ "responses": { "r": { "content": { "application/json": { "schema": large } } } } });
    assert_eq!(imported(&described(paths(shared), answer)).unwrap().tools.len(), 9_000);
    // All paths refer to one path item, with as many parameters as allowed, each with a large schema.
    let parameter = |n: usize| json!({ "name": format!("p{n}"), "in": "query", "schema": { "$ref": "#/components/schemas/s" } });
    let item = json!({ "get": {}, "parameters": (0..200).map(parameter).collect::<Vec<_>>() });
    let schema = json!({ "type": "object", "properties": numbered(700, |n| (format!("p{n}"), json!({"type": "string"}))) });
    let leading = numbered(9_000, |n| (format!("/a{n}"), json!({ "$ref": "#/components/item" })));
    check(&described(leading, json!({ "item": item, "schemas": { "s": schema } })), 9_000, spent);
    // These patterns are expensive to compile.
    let pattern = "((a{1,100}){1,100}){1,100}";
    let properties = numbered(1_000, |n| {
        (format!("p{n}"), json!({ "type": "string", "pattern": format!("{pattern}{n}") }))
    });
    let parameter = |n: usize| json!({ "name": format!("p{n}"), "in": "query", "schema": { "properties": properties, "title": n } });
    let item = json!({ "get": {}, "parameters": (0..20).map(parameter).collect::<Vec<_>>() });
    check(&described(json!({ "/a": item }), json!({})), 1, spent);
}

#[test]
fn operations_over_the_import_limits_are_skipped() {
    let parameter = |n: usize| json!({ "name": format!("p{n}"), "in": "query" });
    let many = json!({ "get": { "parameters": (0..20_000).map(parameter).collect::<Vec<_>>() } });
    check(&described(json!({ "/a": many }), json!({})), 1, "more than 200 parameters");
    let braces = (0..400).fold(String::from("/a"), |mut path, n| {
        let _ = write!(path, "{{{n}}}");
        path
    });
    check(&described(json!({ braces: { "get": {} } }), json!({})), 1, "more than 200 parameters");
    check(&described(json!({ "/x".repeat(10_000): { "get": {} } }), json!({})), 1, "longer than 2000 bytes");
    let paths = numbered(12_000, |n| (format!("/a{n}"), json!({ "get": { "operationId": "same" } })));
    check(&described(paths, json!({})), 10_001, "more than 10000 operations");
    let long = json!({ "$ref": format!("#/{}", "x/".repeat(1_000_000)) });
    check(&described(json!({ "/a": long }), json!({})), 1, "has no target");
}

#[test]
fn server_variables_and_security_lists_are_bounded() {
    // Each variable expands to ten times the next.
    let variables =
        numbered(20, |n| (format!("v{n}"), json!({ "default": format!("{{v{}}}", n + 1).repeat(10) })));
    let mut value = described(json!({ "/a": { "get": {} } }), json!({}));
    value["servers"] = json!([{ "url": "https://a.com/{v0}", "variables": variables }]);
    assert!(imported(&value).unwrap_err().0.contains("variable without a default"));
    let mut value = described(numbered(9_000, |n| (format!("/a{n}"), json!({ "get": {} }))), json!({}));
    value["servers"] = json!([{ "url": "https://a.com" }]);
    value["security"] = json!(vec![json!({ "k": [] }); 100_000]);
    assert_eq!(imported(&value).unwrap().tools.len(), 9_000);
}

#[test]
fn deep_schema_does_not_overflow_the_stack() {
    let chain = |next: usize| {
        let inner = json!({ "$ref": format!("#/components/schemas/s{next}") });
        (0..100).fold(inner, |inner, _| json!({ "items": inner }))
    };
    let schemas = numbered(20, |n| (format!("s{n}"), chain(n + 1)));
    let body =
        json!({ "content": { "application/json": { "schema": { "$ref": "#/components/schemas/s0" } } } });
    let value =
        described(json!({ "/a": { "post": { "requestBody": body } } }), json!({ "schemas": schemas }));
    let run = move || imported(&value).unwrap().tools.len();
    let small = std::thread::Builder::new().stack_size(1 << 20).spawn(run).unwrap();
    assert_eq!(small.join().unwrap(), 1);
}

#[test]
fn swagger_2_references_are_not_copied() {
    let large = numbered(20_000, |n| (format!("p{n}"), json!({ "type": "string" })));
    let references = vec![json!({ "$ref": "#/parameters/large" }); 100];
    let value = json!({
        "swagger": "2.0", "host": "a.com",
        "parameters": { "large": { "name": "l", "in": "query", "type": "object", "properties": large } },
        "responses": { "large": { "description": "It", "schema": { "properties": large } } },
        "paths": numbered(1_000, |n| (format!("/a{n}"), json!({ "get": {
            "operationId": format!("o{n}"), "parameters": references,
            "responses": { "200": { "$ref": "#/responses/large" } },
        } }))),
    });
    let all = imported(&value).unwrap();
    assert_eq!(all.tools.len() + all.skipped.len(), 1_000);
    assert_eq!(all.tools[0].definition.input_schema["properties"]["l"]["type"], "object");
}

#[test]
fn shortened_schema_still_accepts_valid_arguments() {
    // If both alternatives are cut to an outline with only their type, they are equal, and `oneOf` would accept no
    // value.
    let node = |kind: &str| {
        json!({ "type": "object", "required": [kind], "properties": {
        kind: { "type": "string" }, "next": { "oneOf": [{ "$ref": "#/components/schemas/A" }, { "$ref": "#/components/schemas/B" }] },
    } })
    };
    let components = json!({ "schemas": { "A": node("a"), "B": node("b") } });
    let schema = json!({ "not": { "$ref": "#/gone" }, "$comment": "", "properties": {
        "a": { "oneOf": [{ "$ref": "#/components/schemas/A" }, { "$ref": "#/components/schemas/B" }] },
    } });
    let body = json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    let all = imported(&described(
        json!({ "/a": { "post": { "operationId": "o", "requestBody": body } } }),
        components,
    ));
    let written = &all.unwrap().tools[0].definition.input_schema;
    let deep = json!({ "a": "x", "next": { "b": "x", "next": { "a": "x", "next": { "b": "x" } } } });
    let arguments = haft_core::arguments::RawArguments::from_value(&json!({ "body": { "a": deep } }));
    let parsed = arguments.parse(&haft_core::arguments::ArgumentLimits::default()).unwrap();
    let checked = haft_core::validate::Schema::compile(written).validate(parsed);
    assert!(checked.is_ok(), "{checked:?} {written:#}");
}
