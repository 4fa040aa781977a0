//! Tests with the user's home directory as the workspace: after a question at a terminal, or with a flag.

use haft_model_server::ScriptStep;
use haft_testkit::{HaftCommand, TestTree};

use super::call::here;
use super::run::{self, bash, told};

const QUESTION: &str = "use your home directory as the workspace? [y] yes, any other key: no";

/// Returns a test tree whose home directory contains haft's home directory and a secret.
fn tree() -> TestTree {
    let tree = here();
    tree.file("user/.haft/haft.json", "{}");
    tree.file("user/.ssh/id_rsa", "a private key");
    tree.file("user/notes.txt", "my notes");
    tree
}

fn in_home(tree: &TestTree, command: HaftCommand) -> HaftCommand {
    let home = tree.path("user/.haft");
    command.env("HAFT_HOME", home.to_str().unwrap()).in_directory(&tree.path("user"))
}

fn call(tree: &TestTree, flags: &[&str], command: &str) -> HaftCommand {
    let arguments = format!("{{\"command\": {command:?}}}");
    in_home(tree, tree.haft(&[&["call"], flags, &["bash", &arguments]].concat()))
}

#[test]
fn home_directory_as_workspace_needs_consent_or_a_flag() {
    let tree = tree();
    let refused = call(&tree, &[], "touch made").output().expect_code(2).stderr;
    assert!(refused.contains("your home directory") && refused.contains("--allow-home"), "{refused}");
    for (key, code) in [("n", 4), ("y", 0)] {
        let mut run = call(&tree, &[], "touch made").on_terminal();
        run.wait_for(QUESTION);
        run.type_keys(key);
        let shown = run.finish().expect_code(code).stdout;
        assert_eq!(tree.exists("user/made"), code == 0, "{key}: {shown}");
    }
    call(&tree, &["--allow-home"], "touch again").output().expect_code(0);
    assert!(tree.exists("user/again"));
    // Explaining a rule runs nothing, so haft does not ask.
    in_home(&tree, tree.haft(&["policy", "explain", "bash", r#"{"command": "ls"}"#])).output().expect_code(0);
}

#[test]
fn mcp_add_in_the_home_directory_asks_nothing_and_starts_nothing() {
    let tree = tree();
    let run = in_home(&tree, tree.haft(&["mcp", "add", "a", "--", "touch", "made"])).on_terminal();
    let shown = run.finish().expect_code(0).stdout;
    assert!(
        shown.contains("haft cannot list the tools of the server yet: the workspace is your home directory"),
        "{shown}"
    );
    assert!(tree.text("user/.haft/haft.json").contains("touch") && !tree.exists("user/made"), "{shown}");
}

#[test]
fn secrets_and_haft_home_stay_hidden_in_a_home_directory_workspace() {
    let tree = tree();
    let check = |command: &str, succeeds: bool| {
        let ran = call(&tree, &["--allow-home"], command).output();
        assert_eq!(ran.code == Some(0), succeeds, "{command}: {}{}", ran.stdout, ran.stderr);
    };
    check("cat notes.txt && echo more >> notes.txt", true);
    for command in [
        "cat .ssh/id_rsa",
        "mv .ssh moved",
        "cat .haft/haft.json",
        "echo x > .haft/haft.json",
        "ls .haft/data/accounting.jsonl",
        "mv .haft moved",
        "rm -rf .haft",
    ] {
        check(command, false);
    }
    let read = tree.haft(&["call", "--allow-home", "read", r#"{"file_path": ".ssh/id_rsa"}"#]);
    let read = in_home(&tree, read).output();
    assert!(read.code != Some(0) && !read.stdout.contains("private key"), "{}", read.stdout);
    assert_eq!(tree.text("user/.ssh/id_rsa"), "a private key");
    assert_eq!(tree.text("user/.haft/haft.json"), "{}");
    // Only the home directory itself is allowed as a workspace, not a directory above it, nor one inside a secret.
    for workspace in ["..", ".ssh", ".haft"] {
        call(&tree, &["--allow-home", "--workspace", workspace], "true").output().expect_code(2);
    }
}

#[test]
fn resumed_run_works_in_the_allowed_home_directory() {
    let tree = tree();
    let model =
        run::server([ScriptStep::say([bash("cat notes.txt")]), told(ScriptStep::text("read"), "my notes")]);
    let words = ["run", "--allow-home", "-m", "openai/m", "go"];
    in_home(&tree, run::haft(&tree, &model, &words)).output().expect_code(0);
    let more = run::server([
        ScriptStep::text("one"),
        ScriptStep::text("two"),
        ScriptStep::say([bash("cat notes.txt")]),
        told(ScriptStep::text("again"), "my notes"),
    ]);
    let resumed = in_home(&tree, run::haft(&tree, &more, &["resume", "last", "once more"])).output();
    assert_eq!(resumed.expect_code(0).stdout, "again\n");
}
