//! Tests with the server of a shop, whose framework publishes an OpenAPI document: each test calls an operation and
//! checks its effect.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use haft_testkit::{HaftOutput, TestTree, TestUser, eventually};
use serde_json::{Value, json};

/// The server process, killed at the end of the test.
struct ShopServer {
    child: Child,
    url: String,
}

impl Drop for ShopServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the Python that `cargo xtask install` puts next to the build products.
pub(super) fn python() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let python =
        own.ancestors().map(|tree| tree.join("tools/python-api/bin/python")).find(|path| path.exists());
    python.unwrap_or_else(|| panic!("Python is not installed: run `cargo xtask install`"))
}

fn shop() -> ShopServer {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/rest/shop.py");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(python());
    let child = command.arg("-B").arg(script).arg(port.to_string()).stdout(Stdio::null()).spawn().unwrap();
    let shop = ShopServer { child, url: format!("http://127.0.0.1:{port}") };
    eventually("the shop opens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    shop
}

fn call(tree: &TestTree, operation: &str, arguments: &Value) -> HaftOutput {
    let tool = format!("rest__shop_{operation}");
    tree.haft(&["call", &tool, &arguments.to_string()]).env("SHOP_TOKEN", "s3cret-t0ken").output()
}

#[test]
fn every_openapi_operation_of_the_shop_can_be_called() {
    let shop = shop();
    let tree = TestTree::new(TestUser::Ourselves);
    tree.file("home/haft.json", "{\n  // kept\n}\n");
    let words = [
        "rest",
        "add",
        "shop",
        &format!("{}/openapi.json", shop.url),
        "--header",
        "Authorization: Bearer ${SHOP_TOKEN}",
    ];
    let added = tree.haft(&words).env("SHOP_TOKEN", "s3cret-t0ken").output().expect_code(0);
    assert!(added.stdout.contains("haft.json: 12 tools (about "), "{}", added.stdout);
    assert!(added.stdout.contains(" tokens), 0 operations skipped"), "{}", added.stdout);
    let written = tree.text("home/haft.json");
    assert!(written.contains("// kept") && written.contains("${SHOP_TOKEN}"), "{written}");
    tree.haft(&words).env("SHOP_TOKEN", "x").output().expect_code(42);

    let said = |operation: &str, arguments: Value| {
        let ran = call(&tree, operation, &arguments).expect_code(0);
        assert_eq!(ran.stderr, "", "{operation}");
        serde_json::from_str::<Value>(&ran.stdout).unwrap_or(Value::String(ran.stdout))
    };
    said("createThing", json!({"thing_id": 1, "name": "Ball", "tags": ["a", "b"]}));
    assert_eq!(
        said("getThing", json!({"thing_id": 1})),
        json!({"name": "Ball", "price": null, "tags": ["a", "b"]})
    );
    said("replaceThing", json!({"thing_id": 1, "name": "Cube", "price": 2.5}));
    said("renameThing", json!({"thing_id": 1, "name": "Box"}));
    assert_eq!(said("getThing", json!({"thing_id": 1})), json!({"name": "Box", "price": 2.5, "tags": []}));
    assert_eq!(said("deleteThing", json!({"thing_id": 1})), json!("HTTP 204, no content\n"));
    let gone = call(&tree, "getThing", &json!({"thing_id": 1})).expect_code(3);
    assert!(gone.stdout.contains("HTTP 404: {\"problem\":\"no such thing\"}"), "{}", gone.stdout);

    let found = json!({"q": "a&b=c/ü", "tag": ["x y", "z"], "limit": 3, "trace": "t", "session": "s"});
    let asked = json!({"q": "a&b=c/ü", "tag": ["x y", "z"], "limit": 3, "x-trace": "t", "session": "s"});
    assert_eq!(said("search", asked), found);
    assert_eq!(said("login", json!({"user": "a&b", "word": "ü="})), json!({"user": "a&b", "word": "ü="}));
    let sent = said("upload", json!({"file": "AP8K", "note": "n"}));
    assert_eq!(sent, json!({"bytes": [0, 255, 10], "note": "n"}));
    assert_eq!(said("createMany", json!({"body": [{"name": "a"}, {"name": "b"}]})), json!(2));
    assert_eq!(said("secret", json!({})), json!({"let_in": true}));
    let picture = said("picture", json!({})).to_string();
    assert!(picture.contains("image/png"), "{picture}");
    let report = said("report", json!({})).to_string();
    assert!(report.contains("application/pdf") && report.contains("session-"), "{report}");

    let refused = call(&tree, "createThing", &json!({"thing_id": "x", "name": 1})).expect_code(42);
    assert!(refused.stderr.contains("thing_id") && refused.stderr.contains("name"), "{}", refused.stderr);
    let checked =
        tree.haft(&["rest", "check", "shop", "--json"]).env("SHOP_TOKEN", "x").output().expect_code(0);
    let checked: Value = serde_json::from_str(&checked.stdout).unwrap();
    assert_eq!(checked["tools"].as_array().unwrap().len(), 12);
    let listed = tree.haft(&["tools", "rest__shop_search", "--schema"]).env("SHOP_TOKEN", "x").output();
    assert!(listed.expect_code(0).stdout.contains("\"x-trace\""));
    tree.haft(&["rest", "check", "gone"]).output().expect_code(42);
}

#[test]
fn invalid_openapi_description_is_not_added() {
    let tree = TestTree::new(TestUser::Ourselves);
    let check = |text: &str, fragment: &str| {
        let file = tree.file("ws/spec.json", text);
        let ran = tree.haft(&["rest", "add", "x", &file.to_string_lossy()]).output().expect_code(42);
        assert!(ran.stderr.contains(fragment), "no `{fragment}` in: {}", ran.stderr);
        assert!(ran.stderr.contains("hint: "), "{}", ran.stderr);
        assert!(!tree.exists("home/haft.json"));
    };
    check("", "empty");
    check("<html>", "HTML");
    check("{}", "neither `openapi`");
    check(r#"{"openapi": "3.0.0", "paths": {"/a": {"get": {}}}}"#, "`baseUrl`");
    check(
        r#"{"openapi": "3.0.0", "servers": [{"url": "http://169.254.169.254"}], "paths": {"/a": {"get": {}}}}"#,
        "not a public address",
    );
    check(
        r#"{"openapi": "3.0.0", "servers": [{"url": "https://a.com"}], "paths": {}}"#,
        "cannot use any operation",
    );
    tree.haft(&["rest", "add", "bad name", "x.json"]).output().expect_code(2);
    tree.haft(&["rest", "add", "x", "gone.json"]).output().expect_code(42);
}
