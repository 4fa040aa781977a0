//! Tests of the tables of all commands on a narrow terminal.

use haft_model_server::ScriptStep;
use haft_testkit::TestTree;
use serde_json::json;

use super::call::here;
use super::run::{self, bash};

const COLUMNS: u16 = 60;

/// Returns the lines that a terminal of 60 columns shows.
fn shown(tree: &TestTree, words: &[&str]) -> Vec<String> {
    let text = tree.haft(words).on_terminal_with(COLUMNS, "").finish().expect_code(0).stdout;
    text.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Checks that the terminal gets every word that a program gets, and no line that is wider than the terminal.
#[track_caller]
fn check(tree: &TestTree, words: &[&str]) {
    let whole = tree.haft(words).output().expect_code(0).stdout;
    let lines = shown(tree, words);
    let narrow: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
    // The age of a session may change between the two outputs.
    for word in whole.split_whitespace().filter(|word| word.parse::<u64>().is_err()) {
        let named = format!("{word}:");
        assert!(
            narrow.iter().any(|found| *found == word || *found == named),
            "{words:?}: {word}\n{lines:#?}"
        );
    }
    for line in &lines {
        let is_one_word = line.split_whitespace().count() == 1;
        assert!(line.chars().count() <= COLUMNS.into() || is_one_word, "{words:?}: {line}");
    }
}

#[test]
fn no_table_breaks_a_word_at_60_columns() {
    let tree = here();
    let command = tree.misbehaving_server("echo", &[]);
    let config = json!({
        "mcpServers": {"a-server-with-a-long-name": {"command": "no-such-program", "enabled": false}},
        "policy": {"rules": [{"tool": "bash", "command": "git *", "decision": "ask"}]},
    });
    tree.file("home/haft.json", &config.to_string());
    tree.file("ws/one.json", &format!("{{\"mcpServers\": {{\"server\": {{{command}}}}}}}"));
    tree.file("home/agents/clerk.md", "---\ndescription: Answers questions about the archive\n---\n");
    let skill = "---\nname: notes\ndescription: Takes notes of long meetings\nrequires: {bins: [no-such-program]}\n---\n";
    tree.file("home/skills/notes/SKILL.md", skill);
    tree.file("ws/haft.json", "{}");
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    tree.haft(&["keys", "create", "continuous-integration"]).output().expect_code(0);
    let model = run::server([ScriptStep::say([bash("echo hi")]), ScriptStep::text("done")]);
    let request = "Why does the build of the second package fail on every other machine?";
    run::haft(&tree, &model, &["run", "-m", "openai/m", request]).output().expect_code(0);
    let mut approve = tree.haft(&["call", "bash", r#"{"command": "git status --short"}"#]).on_terminal();
    approve.wait_for("allow?");
    approve.type_keys("e");
    approve.finish();
    for words in [
        ["sessions", "list"].as_slice(),
        &["tools"],
        &["tools", "--tokens"],
        &["tools", "search", "file"],
        &["stats"],
        &["stats", "--models"],
        &["models"],
        &["approvals", "list"],
        &["mcp", "list"],
        &["skills", "list"],
        &["agents", "list"],
        &["keys", "list"],
        &["trust", "--list"],
        &["config", "show"],
        &["doctor"],
    ] {
        check(&tree, words);
    }
    check(&tree, &["mcp", "list", "--mcp-config", "one.json"]);
}
