//! `haft rest`: what is added is written once, can be replaced and removed, and is said to programs too.

use haft_testkit::{Place, Ran, User};
use serde_json::{Value, json};

fn description(operation: &str) -> String {
    json!({
        "openapi": "3.1.0",
        "servers": [{ "url": "https://api.example.com" }],
        "paths": { "/a": { "get": { "operationId": operation } } },
    })
    .to_string()
}

fn said(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

#[test]
fn a_description_is_added_replaced_and_removed() {
    let place = Place::new(User::Ourselves);
    place.file("home/haft.json", "{\n  // mine\n  \"toolTimeout\": 5000\n}\n");
    place.file("ws/one.json", &description("one"));
    place.file("ws/two.json", &description("two"));
    let rest = |words: &[&str]| place.haft(&[&["rest"], words].concat()).output();
    let tools = || {
        let listed = place.haft(&["tools"]).output().expect_code(0).stdout;
        ["rest__x_one", "rest__x_two"].map(|name| listed.contains(name))
    };
    let added = said(&rest(&["add", "x", "one.json", "--json"]).expect_code(0));
    assert_eq!((&added["name"], &added["tools"]), (&json!("x"), &json!(1)));
    assert_eq!(tools(), [true, false]);

    let taken = rest(&["add", "x", "two.json"]).expect_code(42);
    assert!(taken.stderr.contains("`x` already") && taken.stderr.contains("--replace"), "{}", taken.stderr);
    assert_eq!(tools(), [true, false]);
    rest(&["add", "x", "two.json", "--replace"]).expect_code(0);
    assert_eq!(tools(), [false, true]);
    let listed = said(&rest(&["list", "--json"]).expect_code(0));
    assert_eq!((&listed[0]["name"], &listed[0]["tools"]), (&json!("x"), &json!(1)));

    assert_eq!(said(&rest(&["remove", "x", "--json"]).expect_code(0))["name"], "x");
    assert_eq!(tools(), [false, false]);
    assert!(place.text("home/haft.json").contains("// mine\n  \"toolTimeout\": 5000"));
    let gone = rest(&["remove", "x"]).expect_code(42);
    assert!(gone.stderr.contains("has no `x`") && gone.stderr.contains("hint: "), "{}", gone.stderr);
}
