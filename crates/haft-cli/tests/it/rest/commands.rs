//! Tests of `haft rest`: adding, replacing and removing OpenAPI documents, with text and JSON output.

use haft_testkit::{HaftOutput, TestTree, TestUser};
use serde_json::{Value, json};

use super::canned::{CannedServer, answer};

fn description(operation: &str) -> String {
    json!({
        "openapi": "3.1.0",
        "servers": [{ "url": "https://api.example.com" }],
        "paths": { "/a": { "get": { "operationId": operation } } },
    })
    .to_string()
}

fn said(ran: &HaftOutput) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Serves each document at its own path.
fn web(documents: Vec<(&'static str, String)>) -> CannedServer {
    CannedServer::answering(move |_, head, stream| {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let found = documents.iter().find(|(name, _)| *name == path);
        let text = found.map_or_else(|| answer("404 Gone", "", "no"), |(_, text)| answer("200 OK", "", text));
        let _ = std::io::Write::write_all(stream, text.as_bytes());
    })
}

#[test]
fn remote_openapi_description_may_span_several_files() {
    let first = json!({ "openapi": "3.1.0", "paths": {
        "/a": { "$ref": "paths/a.json" }, "/b": { "$ref": "paths/gone.json" }, "/c": { "$ref": "../secret.json" },
    } });
    let schema = json!({ "$ref": "../schemas.json#/Id" });
    let second = json!({ "get": { "operationId": "a", "parameters": [{ "name": "id", "in": "query", "schema": schema }] } });
    let server = web(vec![
        ("/api/openapi.json", first.to_string()),
        ("/api/paths/a.json", second.to_string()),
        ("/api/schemas.json", json!({ "Id": { "type": "integer" } }).to_string()),
        ("/secret.json", second.to_string()),
    ]);
    let tree = TestTree::new(TestUser::Ourselves);
    let url = format!("{}/api/openapi.json", server.url());
    let added = tree.haft(&["rest", "add", "x", &url, "--json"]).output().expect_code(0);
    assert_eq!((&said(&added)["tools"], &said(&added)["skipped"]), (&json!(1), &json!(2)));
    let asked = server.heads().len();
    assert_eq!(asked, 4, "{:?}", server.heads());
    // The first document is cached, so only the missing document is requested again.
    let shown = tree.haft(&["tools", "rest__x_a", "--schema"]).output().expect_code(0);
    assert!(shown.stdout.contains("\"integer\""), "{}", shown.stdout);
    assert!(server.heads()[asked..].iter().all(|head| head.contains("/gone.json")), "{:?}", server.heads());
}

#[test]
fn rest_add_replace_and_remove_update_the_tools() {
    let tree = TestTree::new(TestUser::Ourselves);
    tree.file("home/haft.json", "{\n  // mine\n  \"toolTimeout\": 5000\n}\n");
    tree.file("ws/one.json", &description("one"));
    tree.file("ws/two.json", &description("two"));
    let rest = |words: &[&str]| tree.haft(&[&["rest"], words].concat()).output();
    let tools = || {
        let listed = tree.haft(&["tools"]).output().expect_code(0).stdout;
        ["rest__x_one", "rest__x_two"].map(|name| listed.contains(name))
    };
    let added = said(&rest(&["add", "x", "one.json", "--json"]).expect_code(0));
    assert_eq!((&added["name"], &added["tools"]), (&json!("x"), &json!(1)));
    assert_eq!(tools(), [true, false]);

    let taken = rest(&["add", "x", "two.json"]).expect_code(42);
    assert!(
        taken.stderr.contains("already has an entry `x`") && taken.stderr.contains("--replace"),
        "{}",
        taken.stderr
    );
    assert_eq!(tools(), [true, false]);
    rest(&["add", "x", "two.json", "--replace"]).expect_code(0);
    assert_eq!(tools(), [false, true]);
    let listed = said(&rest(&["list", "--json"]).expect_code(0));
    assert_eq!((&listed[0]["name"], &listed[0]["tools"]), (&json!("x"), &json!(1)));

    assert_eq!(said(&rest(&["remove", "x", "--json"]).expect_code(0))["name"], "x");
    assert_eq!(tools(), [false, false]);
    assert!(tree.text("home/haft.json").contains("// mine\n  \"toolTimeout\": 5000"));
    let gone = rest(&["remove", "x"]).expect_code(42);
    assert!(gone.stderr.contains("has no entry `x`") && gone.stderr.contains("hint: "), "{}", gone.stderr);
}
