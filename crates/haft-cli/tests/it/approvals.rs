//! Remembered approvals: given at a terminal, listed, explained and revoked.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

use haft_testkit::{HaftOutput, TestTree, TestUser};
use serde_json::Value;

const GIT_RULE: &str = r#"{"policy": {"rules": [{"tool": "bash", "command": "git *", "decision": "ask"}]}}"#;

fn place() -> TestTree {
    let place = TestTree::new(TestUser::Ourselves);
    place.file("home/haft.json", GIT_RULE);
    place
}

fn bash(command: &str) -> String {
    format!("{{\"command\": {command:?}}}")
}

/// Calls `bash` on a terminal, types this answer, and returns everything that the terminal showed. Without a question the
/// typed answer is not read.
fn at_a_terminal(place: &TestTree, flags: &str, command: &str, typed: &str) -> String {
    place.file("ws/arguments.json", &bash(command));
    place.file("ws/call.sh", &format!("exec \"$1\" call {flags} bash \"$(cat arguments.json)\""));
    let script = r#"script -qec "sh call.sh $0" typescript"#;
    place.haft(&[]).env("TERM", "xterm").through(&["bash", "-c", script]).stdin(typed).output();
    place.text("ws/typescript")
}

const QUESTION: &str = "allow? [o] once";

fn prompts_for_approval(place: &TestTree, flags: &str, command: &str) -> bool {
    at_a_terminal(place, flags, command, "n\n").contains(QUESTION)
}

fn list(place: &TestTree) -> Vec<Value> {
    let ran = place.haft(&["approvals", "list", "--json"]).output().expect_code(0);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn explain(place: &TestTree, command: &str) -> HaftOutput {
    place.haft(&["policy", "explain", "bash", &bash(command)]).output().expect_code(0)
}

#[test]
fn approved_prefix_allows_no_other_command() {
    let place = place();
    let shown = at_a_terminal(&place, "", "git status", "p\n");
    assert!(shown.contains(QUESTION) && shown.contains("[p] always `git status *`"), "{shown}");
    assert!(!prompts_for_approval(&place, "", "git status --short"), "it is remembered");
    for other in ["git push --force", "git status && git push --force", "git status > x", "git $X"] {
        assert!(prompts_for_approval(&place, "", other), "{other}");
    }
    assert!(prompts_for_approval(&place, "--mode rx", "git status"), "a wider mode");
    assert!(prompts_for_approval(&place, "--network allow", "git status"), "with network");
    std::fs::create_dir(place.path("ws/below")).unwrap();
    assert!(prompts_for_approval(&place, "--workspace below", "git status"), "another workspace");
    let denied = place.haft(&["call", "bash", &bash("git push")]).output().expect_code(4);
    assert!(denied.stderr.contains("no one to ask"), "{}", denied.stderr);
    let ran = place.haft(&["call", "bash", &bash("git status; true")]).output().expect_code(0);
    assert!(!ran.stderr.contains("no one to ask"), "without a terminal a grant counts too: {}", ran.stderr);
}

#[test]
fn exact_and_rule_approvals_are_stored_per_workspace() {
    for (key, scope, covered) in [("e", "exact", "git status"), ("r", "rule", "git log")] {
        let place = place();
        at_a_terminal(&place, "", "git status", &format!("{key}\n"));
        assert!(!prompts_for_approval(&place, "", covered), "{key}");
        assert_eq!(list(&place)[0]["scope"], scope);
        std::fs::create_dir(place.path("ws/below")).unwrap();
        assert!(prompts_for_approval(&place, "--workspace below", covered), "{key}: another workspace");
    }
}

#[test]
fn approvals_are_listed_explained_and_revoked() {
    let place = place();
    let none = place.haft(&["approvals", "list"]).output().expect_code(0);
    assert!(none.stdout.starts_with("no remembered approvals"), "{}", none.stdout);
    assert!(explain(&place, "git status").stdout.starts_with("ask: "));
    at_a_terminal(&place, "", "git status", "p\n");
    let [grant] = list(&place).try_into().unwrap();
    let id = grant["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&grant["allows"], &grant["mode"], &grant["network"], &grant["decided_by"]),
        (&"git status *".into(), &"sandbox".into(), &"deny".into(), &"terminal".into())
    );
    let table = place.haft(&["approvals", "list", "--workspace", "."]).output().expect_code(0).stdout;
    assert!(table.contains(&id[..8]) && table.contains("git status *"), "{table}");
    let elsewhere = place.haft(&["approvals", "list", "--workspace", "/tmp", "--json"]).output();
    assert_eq!(elsewhere.expect_code(0).stdout, "[]\n");

    let explained = explain(&place, "git status -s").stdout;
    let expected = format!("allow: remembered approval {} (git status *) covers this call\n", &id[..8]);
    assert!(explained.starts_with(&expected) && explained.contains("without it, ask: "), "{explained}");
    assert!(explain(&place, "git push").stdout.starts_with("ask: "));
    let json = place.haft(&["policy", "explain", "--json", "bash", &bash("git status")]).output();
    let json: Value = serde_json::from_str(&json.expect_code(0).stdout).unwrap();
    assert_eq!((&json["decision"], &json["approvals"][0]), (&"allow".into(), &id.as_str().into()));
    let wider = place.haft(&["policy", "explain", "--mode", "rx", "bash", &bash("git status")]).output();
    assert!(wider.expect_code(0).stdout.starts_with("ask: "));

    place.haft(&["approvals", "revoke"]).output().expect_code(2);
    place.haft(&["approvals", "revoke", "--all", &id]).output().expect_code(2);
    for bad in ["abc", "ffffffffffffffffffffffffffffffff"] {
        let refused = place.haft(&["approvals", "revoke", bad]).output().expect_code(42);
        assert!(refused.stderr.contains("hint: `haft approvals list`"), "{}", refused.stderr);
    }
    let revoked = place.haft(&["approvals", "revoke", &id[..8]]).output().expect_code(0);
    assert_eq!(revoked.stdout, format!("revoked {}  git status *\n", &id[..8]));
    assert!(prompts_for_approval(&place, "", "git status"), "a revoked approval asks again");
    at_a_terminal(&place, "", "git status", "e\n");
    at_a_terminal(&place, "", "git log", "r\n");
    let all = place.haft(&["approvals", "revoke", "--all", "--json"]).output().expect_code(0);
    let all: Value = serde_json::from_str(&all.stdout).unwrap();
    assert_eq!((all["revoked"].as_array().unwrap().len(), list(&place)), (2, Vec::new()));
}

#[test]
fn old_format_rules_are_dropped_with_one_warning() {
    let place = place();
    place.file("home/data/approvals.json", r#"{"exact": [], "rules": ["ask bash: git *"]}"#);
    let ran = place.haft(&["call", "bash", &bash("git push --force")]).output().expect_code(4);
    assert!(ran.stderr.contains("1 remembered rule was dropped"), "{}", ran.stderr);
    let again = place.haft(&["call", "bash", &bash("git push --force")]).output().expect_code(4);
    assert!(!again.stderr.contains("dropped"), "{}", again.stderr);
}

#[test]
fn old_format_exact_approval_still_applies() {
    let place = place();
    at_a_terminal(&place, "", "git status", "e\n");
    let digest = list(&place)[0]["granted"].as_str().unwrap().to_owned();
    place.haft(&["approvals", "revoke", "--all"]).output().expect_code(0);
    place.file("home/data/approvals.json", &format!(r#"{{"exact": ["{digest}"], "rules": []}}"#));
    assert!(!prompts_for_approval(&place, "", "git status"));
    assert!(prompts_for_approval(&place, "", "git push"));
    assert!(prompts_for_approval(&place, "--mode rx", "git status"), "the old file did not store the mode");
    let table = place.haft(&["approvals", "list"]).output().expect_code(0).stdout;
    assert!(table.contains("from an earlier version"), "{table}");
}

#[test]
fn unwritable_grant_store_warns_and_call_still_runs() {
    let place = place();
    place.file("home/data/grants", "in the way");
    let shown = at_a_terminal(&place, "", "git --version", "e\n");
    assert!(shown.contains("could not be stored and counts for this call only"), "{shown}");
    assert!(shown.contains("git version "), "{shown}");
    let ran = place.haft(&["approvals", "list"]).output().expect_code(1);
    assert!(ran.stderr.contains("cannot be read") && ran.stderr.contains("hint: "), "{}", ran.stderr);
}
