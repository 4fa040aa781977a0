//! Tests of cached outputs that several processes share.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use haft_model_server::ScriptStep;
use haft_testkit::{HaftOutput, TestTree, TestUser};
use serde_json::{Value, json};

use super::canned::{CannedServer, answer};
use crate::run::{haft, server, told};

/// Starts a server that answers each request with its number, starting at 1.
fn counter() -> CannedServer {
    CannedServer::with(|before, stream| {
        let body = format!("answer {}", before + 1);
        let _ = stream.write_all(answer("200 OK", "Content-Type: text/plain\r\n", &body).as_bytes());
    })
}

/// Configures the tool `rest__it`.
fn configure(tree: &TestTree, url: &str, cache: &str) {
    let tool = json!({
        "description": "It", "method": "GET", "url": format!("{url}/${{parameters.city}}"), "cache": cache,
        "headers": { "Authorization": "Bearer ${TOKEN_OF_IT}" },
    });
    tree.file("home/haft.json", &json!({ "restTools": { "it": tool } }).to_string());
}

fn tree(server: &CannedServer) -> TestTree {
    let tree = TestTree::new(TestUser::Ourselves);
    configure(&tree, &server.url(), "1h");
    tree
}

fn call(tree: &TestTree, flags: &[&str], city: &str) -> HaftOutput {
    let arguments = json!({ "city": city }).to_string();
    let words = [&["call"], flags, &["rest__it", &arguments]].concat();
    tree.haft(&words).env("TOKEN_OF_IT", "first").output().expect_code(0)
}

/// Returns the files of the cache entries.
fn entries(tree: &TestTree) -> Vec<PathBuf> {
    let files = fs::read_dir(tree.path("home/data/cache/local")).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

#[test]
fn second_process_uses_the_cached_output_of_the_first() {
    let server = counter();
    let tree = tree(&server);
    let ran: Vec<HaftOutput> = (0..2).map(|_| call(&tree, &["--json"], "oslo")).collect();
    let said: Vec<Value> = ran.iter().map(|ran| serde_json::from_str(&ran.stdout).unwrap()).collect();
    assert_eq!((&said[0]["content"], &said[0]["executed"]), (&json!("answer 1"), &json!(true)));
    assert_eq!((&said[1]["content"], &said[1]["executed"]), (&json!("answer 1"), &json!(false)));
    assert_eq!(said[1]["notes"]["cache"], "hit");
    assert_eq!(server.heads().len(), 1);
    let cached: Vec<bool> = tree
        .text("home/data/accounting.jsonl")
        .lines()
        .map(|line| line.contains("\"cached\":true"))
        .collect();
    assert_eq!(cached, [false, true]);
}

#[test]
fn concurrent_processes_make_one_request_for_equal_cached_calls() {
    let server = CannedServer::with(|before, stream| {
        // Wait long enough for the other process to start and ask for the same output.
        std::thread::sleep(Duration::from_secs(2));
        let body = format!("answer {}", before + 1);
        let _ = stream.write_all(answer("200 OK", "Content-Type: text/plain\r\n", &body).as_bytes());
    });
    let tree = tree(&server);
    let outputs: Vec<String> = std::thread::scope(|scope| {
        let calls = [(); 2].map(|()| scope.spawn(|| call(&tree, &[], "oslo").stdout));
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    assert_eq!(outputs, ["answer 1\n", "answer 1\n"]);
    assert_eq!(server.heads().len(), 1, "only one request reached the server");
}

#[test]
fn run_and_call_share_cached_outputs() {
    let server_of_it = counter();
    let tree = tree(&server_of_it);
    for _ in 0..2 {
        let model = server([
            ScriptStep::call("rest__it", json!({ "city": "oslo" })),
            told(ScriptStep::text("seen"), "answer 1"),
        ]);
        let ran = haft(&tree, &model, &["run", "-m", "openai/m", "go"]).env("TOKEN_OF_IT", "first").output();
        assert_eq!(ran.expect_code(0).stdout, "seen\n");
    }
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 1\n");
    assert_eq!(server_of_it.heads().len(), 1);
}

#[test]
fn expired_cache_entry_is_requested_again() {
    let server = counter();
    let tree = tree(&server);
    // The entry expires after one millisecond, and the second process takes longer to start.
    configure(&tree, &server.url(), "1");
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 1\n");
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 2\n");
}

#[test]
fn cache_key_covers_arguments_workspace_url_credential_and_ttl() {
    let (server, moved) = (counter(), counter());
    let tree = tree(&server);
    tree.directory("ws/other");
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 1\n");
    assert_eq!(call(&tree, &[], "rome").stdout, "answer 2\n");
    let other = tree.path("ws/other");
    assert_eq!(call(&tree, &["--workspace", other.to_str().unwrap()], "oslo").stdout, "answer 3\n");
    let arguments = json!({ "city": "oslo" }).to_string();
    let ran = tree.haft(&["call", "rest__it", &arguments]).env("TOKEN_OF_IT", "second").output();
    assert_eq!(ran.expect_code(0).stdout, "answer 4\n");
    configure(&tree, &server.url(), "2h");
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 5\n");
    configure(&tree, &moved.url(), "1h");
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 1\n");
    configure(&tree, &server.url(), "1h");
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 1\n", "the first entry is still there");
    assert_eq!((server.heads().len(), moved.heads().len()), (5, 1));
}

#[test]
fn damaged_or_unusable_cache_does_not_fail_calls() {
    let server = counter();
    let tree = tree(&server);
    call(&tree, &[], "oslo");
    let [entry] = entries(&tree).try_into().unwrap();
    fs::write(&entry, &fs::read(&entry).unwrap()[..20]).unwrap();
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 2\n");
    assert_eq!(call(&tree, &[], "oslo").stdout, "answer 2\n");

    fs::remove_dir_all(tree.path("home/data/cache")).unwrap();
    tree.file("home/data/cache", "not a directory");
    for expected in ["answer 3\n", "answer 4\n"] {
        let ran = call(&tree, &[], "oslo");
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), (expected, ""));
    }
}

#[test]
fn cache_entries_are_private_and_hidden_from_tools() {
    let tree = tree(&counter());
    call(&tree, &[], "oslo");
    let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(tree.path("home/data/cache")), 0o700);
    assert_eq!(mode(tree.path("home/data/cache/local")), 0o700);
    let [entry] = entries(&tree).try_into().unwrap();
    assert_eq!(mode(entry.clone()), 0o600);
    assert!(fs::read_to_string(&entry).unwrap().contains("answer 1"));
    assert!(!fs::read_to_string(&entry).unwrap().contains("first"), "a credential is not part of an entry");
    let script = format!("cat {:?}; ls {:?}", entry, entry.parent().unwrap());
    for mode in ["workspace", "network", "full"] {
        let ran = tree.confined(&["--mode", mode], &script).output();
        let name = entry.file_name().unwrap().to_str().unwrap();
        assert!(!ran.stdout.contains("answer") && !ran.stdout.contains(name), "{mode}: {}", ran.stdout);
    }
}

#[test]
fn builtin_and_mcp_calls_are_cached_per_settings() {
    let tree = TestTree::new(TestUser::Ourselves);
    let server = tree.misbehaving_server("good", &[]);
    let config = json!({ "tools": { "bash": { "cache": "1h", "effects": "read-only" } } }).to_string();
    let config = format!(
        "{}, \"mcpServers\": {{\"bad\": {{{server}, \"cache\": \"1h\"}}}}}}",
        &config[..config.len() - 1]
    );
    tree.file("home/haft.json", &config);
    let count = |flags: &[&str]| {
        let command = r#"{"command": "echo x >> count; wc -l < count"}"#;
        let ran = tree.haft(&[&["call"], flags, &["bash", command]].concat()).output().expect_code(0);
        ran.stdout.trim().to_owned()
    };
    assert_eq!([count(&[]), count(&[]), count(&["--mode", "network"]), count(&[])], ["1", "1", "2", "1"]);

    let executed = || {
        let ran = tree.haft(&["call", "--json", "bad__echo", r#"{"text": "hi"}"#]).output().expect_code(0);
        serde_json::from_str::<Value>(&ran.stdout).unwrap()["executed"] == true
    };
    assert_eq!([executed(), executed()], [true, false]);
}
