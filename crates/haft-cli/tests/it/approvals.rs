//! Tests of remembered approvals: given at a terminal, listed, explained and revoked.

use haft_model_server::{ModelServer, Script, ScriptPart, ScriptStep};
use haft_testkit::{HaftCommand, HaftOutput, TestTree, TestUser, eventually};
use serde_json::{Value, json};

const GIT_RULE: &str = r#"{"policy": {"rules": [{"tool": "bash", "command": "git *", "decision": "ask"}]}}"#;

fn tree() -> TestTree {
    let tree = TestTree::new(TestUser::Ourselves);
    tree.file("home/haft.json", GIT_RULE);
    tree
}

fn bash(command: &str) -> String {
    format!("{{\"command\": {command:?}}}")
}

/// Calls `bash` on a terminal and answers with this key. Returns the whole output of the terminal.
fn at_a_terminal(tree: &TestTree, flags: &[&str], command: &str, key: &str) -> String {
    let mut run = call(tree, flags, command).on_terminal();
    run.wait_for(QUESTION);
    run.type_keys(key);
    run.finish().stdout
}

fn call(tree: &TestTree, flags: &[&str], command: &str) -> HaftCommand {
    tree.haft(&[&["call"], flags, &["bash", &bash(command)]].concat())
}

const QUESTION: &str = "allow? [y] once";

/// Returns true if haft asks about the call. Answers every question with no.
fn prompts_for_approval(tree: &TestTree, flags: &[&str], command: &str) -> bool {
    let mut run = call(tree, flags, command).on_terminal();
    let mut asked = false;
    eventually("the call asks or ends", || {
        asked = run.text().contains(QUESTION);
        asked || run.has_ended()
    });
    if asked {
        run.type_keys("n");
    }
    run.finish();
    asked
}

fn list(tree: &TestTree) -> Vec<Value> {
    let ran = tree.haft(&["approvals", "list", "--json"]).output().expect_code(0);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn explain(tree: &TestTree, command: &str) -> HaftOutput {
    tree.haft(&["policy", "explain", "bash", &bash(command)]).output().expect_code(0)
}

#[test]
fn approved_prefix_allows_no_other_command() {
    let tree = tree();
    let shown = at_a_terminal(&tree, &[], "git status", "p");
    assert!(shown.contains(QUESTION) && shown.contains("[p] always `git status *`"), "{shown}");
    assert!(
        !prompts_for_approval(&tree, &[], "git status --short"),
        "the approved prefix covers the command"
    );
    for other in ["git push --force", "git status && git push --force", "git status > x", "git $X"] {
        assert!(prompts_for_approval(&tree, &[], other), "{other}");
    }
    assert!(
        prompts_for_approval(&tree, &["--mode", "network"], "git status"),
        "haft asks again in a less restrictive mode"
    );
    assert!(
        prompts_for_approval(&tree, &["--network", "allow"], "git status"),
        "haft asks again if the command has network access"
    );
    std::fs::create_dir(tree.path("ws/below")).unwrap();
    assert!(
        prompts_for_approval(&tree, &["--workspace", "below"], "git status"),
        "haft asks again in another workspace"
    );
    let denied = tree.haft(&["call", "bash", &bash("git push")]).output().expect_code(4);
    assert!(denied.stderr.contains("no user is available"), "{}", denied.stderr);
    let ran = tree.haft(&["call", "bash", &bash("git status; true")]).output().expect_code(0);
    assert!(
        !ran.stderr.contains("no user is available"),
        "a grant also applies without a terminal: {}",
        ran.stderr
    );
}

#[test]
fn exact_and_rule_approvals_are_stored_per_workspace() {
    for (key, scope, covered) in [("e", "exact", "git status"), ("r", "rule", "git log")] {
        let tree = tree();
        at_a_terminal(&tree, &[], "git status", key);
        assert!(!prompts_for_approval(&tree, &[], covered), "{key}");
        assert_eq!(list(&tree)[0]["scope"], scope);
        std::fs::create_dir(tree.path("ws/below")).unwrap();
        assert!(
            prompts_for_approval(&tree, &["--workspace", "below"], covered),
            "{key}: haft asks again in another workspace"
        );
    }
}

#[test]
fn approvals_are_listed_explained_and_revoked() {
    let tree = tree();
    let none = tree.haft(&["approvals", "list"]).output().expect_code(0);
    assert!(none.stdout.starts_with("there are no remembered approvals"), "{}", none.stdout);
    assert!(explain(&tree, "git status").stdout.starts_with("ask: "));
    at_a_terminal(&tree, &[], "git status", "p");
    let [grant] = list(&tree).try_into().unwrap();
    let id = grant["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&grant["allows"], &grant["mode"], &grant["network"], &grant["decided_by"]),
        (&"git status *".into(), &"workspace".into(), &"deny".into(), &"terminal".into())
    );
    let table = tree.haft(&["approvals", "list", "--workspace", "."]).output().expect_code(0).stdout;
    assert!(table.contains(&id[..8]) && table.contains("git status *"), "{table}");
    let elsewhere = tree.haft(&["approvals", "list", "--workspace", "/tmp", "--json"]).output();
    assert_eq!(elsewhere.expect_code(0).stdout, "[]\n");

    let explained = explain(&tree, "git status -s").stdout;
    let expected = format!("allow: remembered approval {} (git status *) covers this call\n", &id[..8]);
    assert!(
        explained.starts_with(&expected) && explained.contains("without this approval, ask: "),
        "{explained}"
    );
    assert!(explain(&tree, "git push").stdout.starts_with("ask: "));
    let json = tree.haft(&["policy", "explain", "--json", "bash", &bash("git status")]).output();
    let json: Value = serde_json::from_str(&json.expect_code(0).stdout).unwrap();
    assert_eq!((&json["decision"], &json["approvals"][0]), (&"allow".into(), &id.as_str().into()));
    let wider = tree.haft(&["policy", "explain", "--mode", "network", "bash", &bash("git status")]).output();
    assert!(wider.expect_code(0).stdout.starts_with("ask: "));

    tree.haft(&["approvals", "revoke"]).output().expect_code(2);
    tree.haft(&["approvals", "revoke", "--all", &id]).output().expect_code(2);
    for bad in ["abc", "ffffffffffffffffffffffffffffffff"] {
        let refused = tree.haft(&["approvals", "revoke", bad]).output().expect_code(42);
        assert!(refused.stderr.contains("hint: `haft approvals list`"), "{}", refused.stderr);
    }
    let revoked = tree.haft(&["approvals", "revoke", &id[..8]]).output().expect_code(0);
    assert_eq!(revoked.stdout, format!("revoked {}  git status *\n", &id[..8]));
    assert!(prompts_for_approval(&tree, &[], "git status"), "haft asks again after the approval is revoked");
    at_a_terminal(&tree, &[], "git status", "e");
    at_a_terminal(&tree, &[], "git log", "r");
    let all = tree.haft(&["approvals", "revoke", "--all", "--json"]).output().expect_code(0);
    let all: Value = serde_json::from_str(&all.stdout).unwrap();
    assert_eq!((all["revoked"].as_array().unwrap().len(), list(&tree)), (2, Vec::new()));
}

#[test]
fn rules_in_the_old_format_are_dropped_with_one_warning() {
    let tree = tree();
    tree.file("home/data/approvals.json", r#"{"exact": [], "rules": ["ask bash: git *"]}"#);
    let ran = tree.haft(&["call", "bash", &bash("git push --force")]).output().expect_code(4);
    assert!(ran.stderr.contains("1 remembered rule was dropped"), "{}", ran.stderr);
    let again = tree.haft(&["call", "bash", &bash("git push --force")]).output().expect_code(4);
    assert!(!again.stderr.contains("dropped"), "{}", again.stderr);
}

#[test]
fn old_format_exact_approval_still_applies() {
    let tree = tree();
    at_a_terminal(&tree, &[], "git status", "e");
    let digest = list(&tree)[0]["granted"].as_str().unwrap().to_owned();
    tree.haft(&["approvals", "revoke", "--all"]).output().expect_code(0);
    tree.file("home/data/approvals.json", &format!(r#"{{"exact": ["{digest}"], "rules": []}}"#));
    assert!(!prompts_for_approval(&tree, &[], "git status"));
    assert!(prompts_for_approval(&tree, &[], "git push"));
    assert!(
        prompts_for_approval(&tree, &["--mode", "network"], "git status"),
        "the old file did not store the mode"
    );
    let table = tree.haft(&["approvals", "list"]).output().expect_code(0).stdout;
    assert!(table.contains("from an earlier version"), "{table}");
}

#[test]
fn call_runs_with_a_warning_if_its_grant_cannot_be_stored() {
    let tree = tree();
    tree.file("home/data/grants", "in the way");
    let shown = at_a_terminal(&tree, &[], "git --version", "e");
    assert!(shown.contains("so the approval applies to this call only"), "{shown}");
    assert!(shown.contains("git version "), "{shown}");
    let ran = tree.haft(&["approvals", "list"]).output().expect_code(1);
    assert!(
        ran.stderr.contains("cannot read the remembered approvals") && ran.stderr.contains("hint: "),
        "{}",
        ran.stderr
    );
}

/// Returns a started model server with this script, and a `haft run` command whose rule asks about every tool call.
fn asking_run(tree: &TestTree, steps: impl IntoIterator<Item = ScriptStep>) -> (ModelServer, HaftCommand) {
    tree.file("home/haft.json", r#"{"policy": {"rules": [{"tool": "*", "decision": "ask"}]}}"#);
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let run = tree.haft(&["run", "-m", "openai/m", "go"]);
    let run = run.env("OPENAI_BASE_URL", &format!("{}/v1", server.url())).env("OPENAI_API_KEY", "k");
    (server, run)
}

fn touch(file: &str) -> ScriptStep {
    ScriptStep::call("bash", json!({"command": format!("touch {file}")}))
}

#[test]
fn keys_typed_before_a_question_appears_do_not_answer_it() {
    let tree = tree();
    let (_server, run) =
        asking_run(&tree, [touch("first"), touch("second"), touch("third"), ScriptStep::text("done")]);
    let mut run = run.on_terminal();
    // These keys are typed before the first question.
    run.type_keys("y\ny\ny\n");
    run.wait_for("touch first");
    run.wait_for(QUESTION);
    // The first key answers this question; the others must not answer the next ones.
    run.type_keys("n\ny\ny\n");
    run.wait_for("→ denied");
    run.wait_for("touch second");
    // This key is typed while the second question appears, before the question accepts keys.
    run.type_keys("y");
    run.wait_for(QUESTION);
    run.type_keys("N");
    run.wait_for("→ denied");
    run.wait_for("touch third");
    run.wait_for(QUESTION);
    assert!(!["first", "second", "third"].iter().any(|file| tree.exists(&format!("ws/{file}"))));
    run.type_keys("Y");
    run.wait_for("→ allowed once");
    let shown = run.finish().expect_code(0).stdout;
    assert!(tree.exists("ws/third") && !tree.exists("ws/first") && !tree.exists("ws/second"), "{shown}");
}

#[test]
fn pasted_text_that_begins_with_a_key_allows_nothing() {
    let tree = tree();
    let (_server, run) = asking_run(&tree, [touch("first"), ScriptStep::text("done")]);
    let mut run = run.on_terminal();
    run.wait_for(QUESTION);
    run.type_keys("yes please\n");
    run.wait_for("→ denied");
    run.finish();
    assert!(!tree.exists("ws/first"));
}

#[test]
fn approval_question_shows_edits_as_a_diff_and_escapes_look_alikes() {
    let tree = tree();
    tree.file("ws/a", "one\ntwo\n");
    let edit = json!({"file_path": "a", "old_string": "one\ntwo", "new_string": "1\n\u{202e}2"});
    let steps = [
        ScriptStep::call("edit", edit),
        ScriptStep::call("bash", json!({"command": "\u{441}at a\n# \u{1b}[2Aharmless"})),
        ScriptStep::text("done"),
    ];
    let (_server, run) = asking_run(&tree, steps);
    let mut run = run.on_terminal();
    run.wait_for("    - one\r\n    - two\r\n    + 1\r\n    + \\u{202e}2\r\n");
    run.wait_for(QUESTION);
    run.type_keys("n");
    run.wait_for("    | \\u{441}at a\r\n    | # \\u{1b}[2Aharmless\r\n");
    run.wait_for(QUESTION);
    run.type_keys("n");
    run.finish();
}

/// Two calls of one turn only read, so they run at the same time: one asks, and the other ends while the question is
/// open.
#[test]
fn no_result_appears_between_a_question_and_its_answer() {
    let tree = tree();
    tree.file("ws/a", "text");
    let calls =
        [ScriptPart::call("current_date", json!({})), ScriptPart::call("read", json!({"file_path": "a"}))];
    let (server, run) = asking_run(&tree, [ScriptStep::say(calls), ScriptStep::text("done")]);
    tree.file("home/haft.json", r#"{"policy": {"rules": [{"tool": "current_date", "decision": "ask"}]}}"#);
    let mut run = run.on_terminal();
    run.wait_for(QUESTION);
    eventually("the other call has ended", || {
        let accounts = "home/data/accounting.jsonl";
        tree.exists(accounts) && tree.text(accounts).contains("tool_finished")
    });
    assert!(!run.text().contains("✓"), "{}", run.text());
    run.type_keys("y");
    run.wait_for("→ allowed once");
    run.wait_for("✓");
    let shown = run.finish().expect_code(0).stdout;
    assert!(shown.contains("read a"), "{shown}");
    assert_eq!(server.requests().len(), 2);
}
