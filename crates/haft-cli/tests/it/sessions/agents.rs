use haft_model_server::{ModelServer, Script, ScriptPart, ScriptStep};
use haft_testkit::{TestTree, eventually, processes_with, unique_marker};
use serde_json::json;

use super::{bash, here, journals, kill, resume, told};

fn agents(files: &[(&str, &str)]) -> TestTree {
    let tree = here();
    for (name, yaml) in files {
        tree.file(&format!("ws/{name}"), &format!("---\n{yaml}\n---\nYou are {name}.\n"));
    }
    tree
}

fn script(about: [(&'static str, Vec<ScriptStep>); 2]) -> ModelServer {
    let script = about.into_iter().fold(Script::default(), |script, (text, steps)| script.about(text, steps));
    ModelServer::start(script).unwrap()
}

/// Returns the command that the sub-agent is running when haft is killed.
fn hangs(marker: &str) -> ScriptPart {
    bash(&format!("echo three >> marks; exec -a {marker} sleep 300"))
}

#[test]
fn killed_sub_agent_resumes_from_its_journal() {
    let marker = unique_marker();
    let tree = agents(&[("lead.md", "agents: [below.md]"), ("below.md", "tools: bash")]);
    let ask = ScriptPart::call("agent__below", json!({"request": "BELOW"}));
    let server = script([
        (
            "LEAD",
            vec![
                ScriptStep::say([bash("echo one >> marks")]),
                ScriptStep::say([ask]),
                told(ScriptStep::text("all"), "found it"),
            ],
        ),
        (
            "BELOW",
            vec![
                ScriptStep::say([bash("echo two >> marks")]),
                ScriptStep::say([hangs(&marker)]),
                told(ScriptStep::text("found it"), "not known whether the call took effect"),
            ],
        ),
    ]);
    let words = ["run", "-m", "openai/m", "@lead.md", "LEAD"];
    kill(&tree, &server, &words, "the command runs", || {
        tree.exists("ws/marks") && tree.text("ws/marks").contains("three")
    });
    eventually("the command is gone", || processes_with(&marker).is_empty());
    assert_eq!(journals(&tree).len(), 2);
    assert_eq!(resume(&tree, &server, &[]).expect_code(0).stdout, "all\n");
    assert_eq!(tree.text("ws/marks"), "one\ntwo\nthree\n");
    assert_eq!(journals(&tree).len(), 2, "the sub-agent continues in its own session");
    let shown = tree.haft(&["sessions", "show"]).output().expect_code(0).stdout;
    assert!(shown.contains("2-1 agent__below") && shown.contains(".1-1 bash ok"), "{shown}");
    let list = tree.haft(&["sessions", "list"]).output().expect_code(0).stdout;
    assert_eq!(list.lines().count(), 2, "the list does not show sessions of sub-agents: {list}");
    tree.haft(&["sessions", "rm", "last"]).output().expect_code(0);
    assert!(journals(&tree).is_empty());
}

#[test]
fn agent_after_handoff_resumes_where_it_was_killed() {
    let marker = unique_marker();
    let tree = agents(&[("front.md", "router:\n  destinations: [back.md]"), ("back.md", "tools: bash")]);
    let hand_on = ScriptPart::call("router__handoff-to", json!({"agent": "back", "message": "BACK please"}));
    let server = script([
        (
            "says:\nBACK",
            vec![
                ScriptStep::say([bash("echo one >> marks")]),
                ScriptStep::say([hangs(&marker)]),
                ScriptStep::text("from the back"),
            ],
        ),
        ("ASK", vec![ScriptStep::say([hand_on])]),
    ]);
    let words = ["run", "-m", "openai/m", "@front.md", "ASK"];
    kill(&tree, &server, &words, "the command runs", || {
        tree.exists("ws/marks") && tree.text("ws/marks").contains("three")
    });
    eventually("the command is gone", || processes_with(&marker).is_empty());
    assert_eq!(resume(&tree, &server, &[]).expect_code(0).stdout, "from the back\n");
    assert_eq!(tree.text("ws/marks"), "one\nthree\n");
}
