//! Tests that import whole OpenAPI documents.
#![allow(clippy::unwrap_used, reason = "a failed helper must fail the test")]

use std::collections::BTreeMap;

use haft_core::tool::Effects;
use serde_json::{Value, json};
use url::Url;

use super::super::guard::PrivateAddressRule;
use super::super::request::{RestRequest, build};
use super::super::tool::RestTool;
use super::fixture::documents;
use super::*;

fn settings() -> ImportSettings<'static> {
    ImportSettings {
        name: "pets",
        base_url: None,
        headers: Vec::new(),
        logins: BTreeMap::new(),
        filter: OperationFilter::default(),
        hosts: Vec::new(),
        private: None,
    }
}

fn imported(value: &Value) -> ImportResult {
    import(&documents(value), settings()).unwrap()
}

fn described(paths: &Value) -> Value {
    json!({ "openapi": "3.1.0", "info": { "title": "Pets" }, "paths": paths })
}

fn tool<'a>(imported: &'a ImportResult, name: &str) -> &'a RestTool {
    let found = imported.tools.iter().find(|tool| tool.definition.name.as_str() == name);
    found.unwrap_or_else(|| unreachable!("the import has no tool {name}: {:?}", imported.skipped))
}

fn request(tool: &RestTool, arguments: &Value) -> RestRequest {
    build(tool, arguments.as_object().unwrap()).unwrap()
}

#[test]
fn openapi_operation_becomes_a_tool() {
    let all = imported(&described(&json!({"/pets/{petId}": {
        "parameters": [{"name": "petId", "in": "path", "required": true, "schema": {"type": "integer"}}],
        "get": {
            "operationId": "getPetById", "summary": "Find a pet", "tags": ["pets"],
            "parameters": [{"name": "fields", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}}],
            "responses": {"200": {"description": "A pet", "content": {"application/json": {"schema": {
                "type": "object", "properties": {"id": {"type": "integer"}}}}}}},
        },
        "put": {"operationId": "putPet", "requestBody": {"required": true, "content": {"application/json": {"schema": {
            "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}}}},
    }})));
    assert_eq!(all.title.as_deref(), Some("Pets"));
    let get = tool(&all, "pets_getPetById");
    assert_eq!(get.definition.description, "Find a pet. Returns: A pet");
    assert_eq!(get.definition.effects, Effects::ReadOnly);
    assert_eq!(get.definition.input_schema["required"], json!(["petId"]));
    assert_eq!(get.definition.output_schema.as_ref().unwrap()["type"], "object");
    let made = request(get, &json!({"petId": 7, "fields": ["a", "b"]}));
    assert_eq!(made.url.as_str(), "https://api.example.com/pets/7?fields=a&fields=b");
    let put = tool(&all, "pets_putPet");
    assert_eq!(put.definition.effects, Effects::Idempotent);
    assert_eq!(put.definition.input_schema["required"], json!(["petId", "name"]));
    assert_eq!(request(put, &json!({"petId": 7, "name": "Rex"})).body.unwrap().bytes, br#"{"name":"Rex"}"#);
}

#[test]
fn invalid_operations_are_skipped_with_a_reason() {
    let all = imported(&described(&json!({
        "/good": {"get": {}},
        "/bad/{x": {"get": {}},
        "/bad2": {"get": {"parameters": [{"$ref": "#/gone"}]}},
        "/bad3": {"get": {"requestBody": {"$ref": "#/gone"}}},
        "/bad4": {"get": 5},
        "/bad5": {"$ref": "other.yaml#/x"},
        "/old": {"get": {"deprecated": true}},
        "/elsewhere": {"get": {"servers": [{"url": "https://evil.com"}]}},
    })));
    assert_eq!(all.tools.len(), 1);
    let reasons: Vec<String> =
        all.skipped.iter().map(|skipped| format!("{}: {}", skipped.operation, skipped.reason)).collect();
    assert_eq!(reasons.len(), 7, "{reasons:#?}");
    for expected in [
        "brace",
        "a parameter of the operation: the reference",
        "the request body: the reference",
        "not an object",
        "other.yaml",
        "deprecated",
        "evil.com",
    ] {
        assert!(reasons.iter().any(|reason| reason.contains(expected)), "{expected}: {reasons:#?}");
    }
}

/// If an OpenAPI document could choose the port, its author would get the credentials of the API, in plain text with
/// `http`.
#[test]
fn operation_cannot_choose_another_port_or_scheme() {
    for server in ["http://api.example.com:8080", "http://api.example.com", "https://api.example.com:444"] {
        let all = imported(&described(&json!({
            "/moved": {"get": {"servers": [{"url": server}]}},
            "/again": {"get": {"servers": [{"url": "https://api.example.com/v2"}]}},
        })));
        assert_eq!(all.tools.len(), 1, "{server}");
        let reason = &all.skipped[0].reason;
        assert!(
            reason.contains(&format!("not to {server}, because they may contain credentials")),
            "{reason}"
        );
    }
}

#[test]
fn operations_with_missing_or_equal_ids_get_unique_names() {
    let all = imported(&described(&json!({
        "/a": {"get": {"operationId": "same"}, "post": {"operationId": "same"}},
        "/b/{id}": {"get": {}},
    })));
    let names: Vec<&str> = all.tools.iter().map(|tool| tool.definition.name.as_str()).collect();
    assert_eq!(names, ["pets_same", "pets_same_2", "pets_get_b_id"]);
}

#[test]
fn swagger_2_documents_are_imported() {
    let old = json!({
        "swagger": "2.0", "host": "api.example.com", "basePath": "/v2", "schemes": ["http", "https"],
        "consumes": ["application/json"], "securityDefinitions": {"k": {"type": "basic"}},
        "parameters": {"limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 9}},
        "definitions": {"Pet": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}},
        "paths": {
            "/pets": {
                "parameters": [{"$ref": "#/parameters/limit"}],
                "get": {
                    "operationId": "list",
                    "parameters": [{"name": "tags", "in": "query", "type": "array", "items": {"type": "string"}, "collectionFormat": "pipes"}],
                    "responses": {"200": {"description": "Pets", "schema": {"type": "array", "items": {"$ref": "#/definitions/Pet"}}}},
                },
                "post": {"operationId": "add", "parameters": [{"name": "pet", "in": "body", "required": true, "schema": {"$ref": "#/definitions/Pet"}}]},
            },
            "/upload": {"post": {"operationId": "upload", "parameters": [
                {"name": "file", "in": "formData", "type": "file", "required": true},
                {"name": "note", "in": "formData", "type": "string"},
            ]}},
        },
    });
    let all = imported(&old);
    let list = tool(&all, "pets_list");
    assert_eq!(list.definition.input_schema["properties"]["limit"]["maximum"], 9);
    assert_eq!(list.definition.output_schema.as_ref().unwrap()["items"]["type"], "object");
    let made = request(list, &json!({"limit": 3, "tags": ["a", "b"]}));
    assert_eq!(made.url.as_str(), "https://api.example.com/v2/pets?limit=3&tags=a%7Cb");
    let made = request(tool(&all, "pets_add"), &json!({"name": "Rex"}));
    assert_eq!(made.body.unwrap().bytes, br#"{"name":"Rex"}"#);
    let made = request(tool(&all, "pets_upload"), &json!({"file": "aGk=", "note": "n"}));
    let body = String::from_utf8(made.body.unwrap().bytes).unwrap();
    assert!(body.contains("\r\n\r\nhi\r\n") && body.contains("name=\"note\""), "{body}");
}

#[test]
fn private_server_address_requires_explicit_configuration() {
    let value = |server: &str| {
        let mut value = described(&json!({"/a": {"get": {}}}));
        value["servers"] = json!([{ "url": server }]);
        value
    };
    let refused = |server: &str| import(&documents(&value(server)), settings()).unwrap_err().0;
    assert!(refused("http://169.254.169.254/latest").contains("`baseUrl`"));
    assert!(refused("http://127.0.0.1:9").contains("not a public address"));
    let named = ImportSettings { base_url: Some(Url::parse("http://127.0.0.1:9/x").unwrap()), ..settings() };
    assert_eq!(import(&documents(&value("http://10.0.0.1")), named).unwrap().tools.len(), 1);
    let allowed = ImportSettings { private: Some(PrivateAddressRule::Allowed), ..settings() };
    assert_eq!(import(&documents(&value("http://10.0.0.1")), allowed).unwrap().tools.len(), 1);
}

#[test]
fn operations_on_other_hosts_require_an_allowed_host() {
    let value = described(
        &json!({"/a": {"servers": [{"url": "https://up.example.com/x"}], "get": {"operationId": "a"}}}),
    );
    assert!(imported(&value).tools.is_empty());
    let allowed = ImportSettings { hosts: vec!["UP.example.com".into()], ..settings() };
    let all = import(&documents(&value), allowed).unwrap();
    assert_eq!(request(tool(&all, "pets_a"), &json!({})).url.as_str(), "https://up.example.com/x/a");
}

#[test]
fn document_without_version_or_paths_is_rejected() {
    let check = |value: Value, expected: &str| {
        let error = import(&documents(&value), settings()).unwrap_err();
        assert!(error.0.contains(expected), "{value}: {error}");
    };
    check(json!({}), "neither `openapi`");
    check(json!({"openapi": "4.0", "paths": {}}), "version `4.0`");
    check(json!({"openapi": "3.0.0"}), "no `paths`");
    check(json!({"openapi": "3.0.0", "paths": []}), "no `paths`");
}

#[test]
fn references_outside_the_document_directory_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, value: Value| {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, value.to_string()).unwrap();
    };
    write("secret.json", json!({"x": {"type": "string"}}));
    write(
        "api/paths/pets.json",
        json!({"get": {"operationId": "pets", "parameters": [
            {"name": "q", "in": "query", "schema": {"$ref": "../schemas.json#/Q"}},
            {"name": "s", "in": "query", "schema": {"$ref": "../../secret.json#/x"}},
        ]}}),
    );
    write("api/schemas.json", json!({"Q": {"$ref": "#/R"}, "R": {"type": "integer"}}));
    write(
        "api/openapi.json",
        json!({
            "openapi": "3.0.0", "servers": [{"url": "https://a.com"}],
            "paths": {"/pets": {"$ref": "paths/pets.json"}, "/x": {"$ref": "../secret.json"}},
        }),
    );
    let documents = OpenApiSource::read_file(&directory.path().join("api/openapi.json")).unwrap();
    let all = import(&documents, settings()).unwrap();
    let properties = &tool(&all, "pets_pets").definition.input_schema["properties"];
    assert_eq!(properties["q"], json!({"type": "integer"}));
    assert_eq!(properties["s"], json!({}));
    assert_eq!(all.skipped.len(), 1);
}
