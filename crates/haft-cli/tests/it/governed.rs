use haft_testkit::{TestTree, TestUser};

fn tree() -> TestTree {
    TestTree::new(TestUser::Ourselves)
}

fn config(tree: &TestTree, text: &str) {
    tree.file("home/haft.json", text);
}

const BASH_RULES: &str = r#"{
    // comments and trailing commas are fine
    "policy": {"rules": [
        {"tool": "bash", "command": "rm *", "decision": "deny"},
        {"tool": "bash", "command": "git push*", "decision": "ask"},
    ]},
}"#;

fn bash(command: &str) -> String {
    format!("{{\"command\": {command:?}}}")
}

#[test]
fn denied_command_is_found_anywhere_in_the_command_line() {
    let tree = tree();
    config(&tree, BASH_RULES);
    tree.file("ws/kept", "");
    for line in ["rm kept", "true && rm kept", "echo $(rm kept)", "bash -c 'rm kept'"] {
        let ran = tree.haft(&["call", "bash", &bash(line)]).output().expect_code(4);
        assert!(ran.stderr.contains("deny bash: rm *"), "{line}: {}", ran.stderr);
        assert!(tree.exists("ws/kept"), "{line}");
    }
    tree.haft(&["call", "bash", &bash("ls")]).output().expect_code(0);
}

#[test]
fn ask_rule_denies_without_a_terminal() {
    let tree = tree();
    config(&tree, BASH_RULES);
    let ran = tree.haft(&["call", "bash", &bash("git push")]).output().expect_code(4);
    assert!(ran.stderr.contains("no user is available"), "{}", ran.stderr);
}

#[test]
fn policy_explain_reports_the_decision_without_making_the_call() {
    let tree = tree();
    config(&tree, BASH_RULES);
    tree.file("ws/kept", "");
    let ran = tree.haft(&["policy", "explain", "bash", &bash("ls; rm kept")]).output().expect_code(0);
    assert!(ran.stdout.starts_with("deny: "), "{}", ran.stdout);
    assert!(tree.exists("ws/kept"));
    let ran = tree.haft(&["policy", "explain", "--json", "bash", &bash("ls")]).output().expect_code(0);
    assert!(ran.stdout.contains("\"decision\": \"allow\""), "{}", ran.stdout);
}

#[test]
fn policy_explain_shows_how_a_command_line_was_parsed() {
    let tree = tree();
    config(&tree, BASH_RULES);
    let explain = |words: &[&str], line: &str| {
        let arguments = bash(line);
        let words = [&["policy", "explain"], words, &["bash", &arguments]].concat();
        tree.haft(&words).output().expect_code(0).stdout
    };
    let text = explain(&[], "sudo -n env A=1 rm kept");
    assert!(
        text.contains("found inside `sudo -n env A=1 rm kept`") && text.contains("deny  A=.. rm kept"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&explain(&["--json"], "bash -c 'ls; rm kept'")).unwrap();
    let inner = &json["commands"][2];
    assert_eq!((&inner["command"], &inner["decision"]), (&"rm kept".into(), &"deny".into()), "{json:#}");
    assert_eq!(inner["readIn"], "bash -c ls; rm kept", "{json:#}");
    let mentioned = explain(&[], "newwrapper --run='rm kept'");
    assert!(mentioned.starts_with("ask: the command line contains `rm` of rule"), "{mentioned}");
}

#[test]
fn project_config_applies_only_while_trusted() {
    let tree = tree();
    tree.file("ws/haft.json", r#"{"toolsDenied": ["current_date"]}"#);
    let ran = tree.haft(&["call", "current_date"]).output().expect_code(0);
    assert!(ran.stderr.contains("haft ignores the configuration file"), "{}", ran.stderr);
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    tree.haft(&["call", "current_date"]).output().expect_code(4);
    tree.file("ws/haft.json", r#"{"toolsDenied": ["current_date" ]}"#);
    tree.haft(&["call", "current_date"]).output().expect_code(0);
}

#[test]
fn trusted_project_config_is_hidden_from_commands() {
    let tree = tree();
    tree.file("ws/haft.json", r#"{"toolTimeout": "5s"}"#);
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    let line = "cat haft.json; echo x > haft.json; mv haft.json away; rm haft.json; true";
    let ran = tree.haft(&["call", "bash", &bash(line)]).output().expect_code(0);
    assert!(!ran.stdout.contains("toolTimeout"), "{ran:?}");
    assert_eq!(tree.text("ws/haft.json"), r#"{"toolTimeout": "5s"}"#);
}

#[test]
fn sandboxed_command_cannot_trust_its_project() {
    let tree = tree();
    let script = "echo '{}' > haft.json; echo '{}' > \"$HAFT_HOME/data/trust.json\"; ls \"$HAFT_HOME/data\"; echo tried";
    let ran = tree.confined(&["--env", "HAFT_HOME"], script).output();
    assert!(ran.stdout.contains("tried"), "{ran:?}");
    assert!(!tree.exists("home/data/trust.json"));
}

#[test]
fn invalid_config_stops_calls_and_lists_all_errors() {
    let tree = tree();
    config(&tree, "{\n  \"sandbx\": {},\n  \"toolTimeout\": true\n}");
    let ran = tree.haft(&["call", "current_date"]).output().expect_code(42);
    assert!(
        ran.stderr.contains("haft.json:2:3") && ran.stderr.contains("did you mean `sandbox`"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("haft.json:3:"), "{}", ran.stderr);
    tree.haft(&["config", "check"]).output().expect_code(42);
}

#[test]
fn command_line_flags_override_the_configuration() {
    let tree = tree();
    config(&tree, r#"{"sandbox": {"mode": "network", "limits": {"openFiles": 99}}}"#);
    let ran = tree.confined(&["-v"], "ulimit -n").output().expect_code(0);
    assert_eq!(ran.stdout, "99\n");
    assert!(!ran.stderr.contains("network"), "mode network has no network namespace: {}", ran.stderr);
    let ran = tree.confined(&["-v", "--mode", "workspace", "--limit", "open-files=77"], "ulimit -n").output();
    assert_eq!(ran.stdout, "77\n");
    assert!(ran.stderr.contains("network"), "{}", ran.stderr);
}

#[test]
fn config_file_passed_by_flag_is_hidden_from_commands() {
    let tree = tree();
    let file = tree.file("ws/my.json", r#"{"toolTimeout": "5s"}"#);
    let flag = file.to_str().unwrap();
    let ran = tree.haft(&["call", "--config", flag, "bash", &bash("cat my.json; echo x > my.json")]).output();
    assert!(!ran.stdout.contains("toolTimeout"), "{ran:?}");
    assert_eq!(tree.text("ws/my.json"), r#"{"toolTimeout": "5s"}"#);
}

#[test]
fn long_output_is_stored_and_can_be_queried() {
    let tree = tree();
    let lines = concat!(r#"{"id":1,"tool":"bash","args":{"command":"seq 1 20000; echo '{}'"}}"#, "\n");
    let ran = tree.haft(&["call", "--stdin"]).stdin(lines).output().expect_code(0);
    let handle = handle_in(&ran.stdout);
    let last = tree.haft(&["output", &handle, "lines", "19999-20000"]).output().expect_code(0);
    assert_eq!(last.stdout, "19999\n20000\n");
    let grep = tree.haft(&["output", &handle, "grep", "-A", "1", "^777$"]).output().expect_code(0);
    assert_eq!(grep.stdout, "777:777\n778-778\n");
    tree.haft(&["output", "session-../../haft.json"]).output().expect_code(42);
}

#[test]
fn stored_output_is_readable_only_in_its_session() {
    let tree = tree();
    let mut child = tree.haft(&["call", "--stdin", "--jobs", "1"]).start();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut answers = std::io::BufRead::lines(std::io::BufReader::new(output));
    let mut ask = |line: String| {
        std::io::Write::write_all(&mut input, line.as_bytes()).unwrap();
        answers.next().unwrap().unwrap()
    };
    let first = ask("{\"id\":1,\"tool\":\"bash\",\"args\":{\"command\":\"seq 1 20000\"}}\n".into());
    let handle = handle_in(&first);
    let question = |extract: &str| {
        format!(
            "{{\"id\":2,\"tool\":\"tool_output\",\"args\":{{\"handle\":\"{handle}\",\"extract\":\"{extract}\"}}}}\n"
        )
    };
    assert!(ask(question("last 1 lines")).contains(r#""content":"20000\n""#));
    let endless = ask(question("jq def f: f; f"));
    assert!(
        endless.contains("is_error\":true"),
        "haft refuses a jq filter for an output that is not JSON: {endless}"
    );
    drop(input);
    assert!(child.wait().unwrap().success());
    let line = format!("{{\"id\":3,\"tool\":\"tool_output\",\"args\":{{\"handle\":\"{handle}\"}}}}\n");
    let other = tree.haft(&["call", "--stdin"]).stdin(line).output().expect_code(0);
    assert!(other.stdout.contains("no stored output has this handle"), "{}", other.stdout);
}

#[test]
fn endless_jq_filter_ends_at_call_timeout() {
    let tree = tree();
    let mut child = tree.haft(&["call", "--stdin", "--jobs", "1", "--timeout", "2s"]).start();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut answers = std::io::BufRead::lines(std::io::BufReader::new(output));
    let mut ask = |line: String| {
        std::io::Write::write_all(&mut input, line.as_bytes()).unwrap();
        answers.next().unwrap().unwrap()
    };
    let json = "python3 -c 'print(list(range(20000)))'";
    let handle =
        handle_in(&ask(format!("{{\"id\":1,\"tool\":\"bash\",\"args\":{{\"command\":{json:?}}}}}\n")));
    let question = format!("{{\"handle\":\"{handle}\",\"extract\":\"jq last(range(1e18))\"}}");
    let answer = ask(format!("{{\"id\":2,\"tool\":\"tool_output\",\"args\":{question}}}\n"));
    assert!(answer.contains("\"error_kind\":\"timeout\""), "{answer}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn every_call_is_journaled_and_counted_in_stats() {
    let tree = tree();
    config(&tree, BASH_RULES);
    tree.haft(&["call", "current_date"]).output().expect_code(0);
    tree.haft(&["call", "bash", &bash("rm x")]).output().expect_code(4);
    tree.haft(&["call", "no_such_tool"]).output().expect_code(42);
    let journal = tree.text("home/data/accounting.jsonl");
    assert_eq!(journal.lines().count(), 3, "{journal}");
    assert!(!journal.contains("rm x"), "usage records contain only digests of arguments: {journal}");
    let ran = tree.haft(&["stats", "--json"]).output().expect_code(0);
    assert!(
        ran.stdout.contains("\"tool\": \"bash\"") && ran.stdout.contains("\"errors\": 1"),
        "{}",
        ran.stdout
    );
    tree.haft(&["stats", "--since", "1h"]).output().expect_code(0);
}

#[test]
fn silent_command_is_stopped_at_its_idle_timeout() {
    let tree = tree();
    config(&tree, r#"{"tools": {"bash": {"idleTimeout": "300ms", "timeout": "1h"}}}"#);
    let ran = tree.haft(&["call", "bash", &bash("echo begun; sleep 3600")]).output().expect_code(124);
    assert!(ran.stderr.contains("without progress (idle timeout)"), "{}", ran.stderr);
}

#[test]
fn configured_cache_answers_equal_calls() {
    let tree = tree();
    config(&tree, r#"{"tools": {"current_date": {"cache": "1h"}}}"#);
    let line = "{\"id\":1,\"tool\":\"current_date\",\"args\":{}}\n";
    let ran = tree.haft(&["call", "--stdin", "--jobs", "1"]).stdin(line.repeat(3)).output().expect_code(0);
    assert_eq!(ran.stdout.lines().count(), 3);
    assert_eq!(tree.text("home/data/accounting.jsonl").matches("\"cached\":true").count(), 2);
}

#[test]
fn groups_and_tools_denied_filter_the_tool_list() {
    let tree = tree();
    config(&tree, r#"{"groups": {"files": ["read", "write", "edit"]}, "toolsDenied": ["WRI*"]}"#);
    assert_eq!(listed(&tree, "files"), ["read", "edit"]);
    let ran = tree.haft(&["tools", "--group", "nothing"]).output().expect_code(42);
    assert!(ran.stderr.contains("the groups are builtin, files"), "{}", ran.stderr);
    let ran = tree.haft(&["call", "write", "{}"]).output().expect_code(4);
    assert!(
        ran.stderr
            .contains("tool `write` is not active: `toolsDenied` of the configuration matches this tool"),
        "{}",
        ran.stderr
    );
}

#[test]
fn inactive_tool_is_denied_with_reason() {
    let tree = tree();
    let active =
        r#""groups": {"files": ["read"], "all": ["@files", "current_*"]}, "activeGroups": ["files"]"#;
    config(&tree, &format!("{{{active}}}"));
    let ran = tree.haft(&["call", "current_date"]).output().expect_code(4);
    assert!(
        ran.stderr.contains(
            "`activeGroups` of the configuration contains none of the tool's groups (builtin, all)"
        ),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("haft config show"), "{}", ran.stderr);
    tree.haft(&["call", "read", r#"{"file_path":"/etc/hostname"}"#]).output().expect_code(0);
    config(&tree, &format!(r#"{{{active}, "tools": {{"current_date": {{"enabled": true}}}}}}"#));
    tree.haft(&["call", "current_date"]).output().expect_code(0);
    assert_eq!(listed(&tree, "all"), ["read", "current_date"]);
    config(&tree, r#"{"tools": {"current_date": {"enabled": false}}}"#);
    let ran = tree.haft(&["call", "current_date"]).output().expect_code(4);
    assert!(
        ran.stderr.contains("`tools` of the configuration sets `enabled: false` for this tool"),
        "{}",
        ran.stderr
    );
}

fn listed(tree: &TestTree, group: &str) -> Vec<String> {
    let ran = tree.haft(&["tools", "--group", group]).output().expect_code(0);
    ran.stdout.lines().skip(1).filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}

#[test]
fn string_arguments_are_coerced_and_reported() {
    let tree = tree();
    tree.file("ws/text", "one\ntwo\nthree\n");
    let ran =
        tree.haft(&["call", "-v", "read", r#"{"file_path":"text","limit":"1"}"#]).output().expect_code(0);
    assert!(ran.stdout.contains("one") && !ran.stdout.contains("two"), "{}", ran.stdout);
    assert!(ran.stderr.contains(r#"mended: ["limit"]"#), "{}", ran.stderr);
}

#[test]
fn max_tools_per_provider_setting_limits_the_tools_of_a_provider() {
    let tree = tree();
    config(
        &tree,
        r#"{"catalog": {"maxToolsPerProvider": 2, "warmupTimeout": "5s"}, "validation": {"draft": "7"}}"#,
    );
    let ran = tree.haft(&["call", "bash", &bash("echo here")]).output().expect_code(0);
    assert!(
        ran.stderr
            .contains("tool provider `builtin`: the provider lists 6 tools, of which haft uses the first 2"),
        "{}",
        ran.stderr
    );
    tree.haft(&["call", "current_date"]).output().expect_code(42);
}

pub(crate) fn handle_in(text: &str) -> String {
    let from = text.find("session-").unwrap_or_else(|| panic!("no handle in {text}"));
    text[from..].chars().take_while(|c| c.is_ascii_alphanumeric() || "-/".contains(*c)).collect()
}

#[test]
fn trust_shows_every_program_that_would_run_and_asks_first() {
    let tree = tree();
    tree.file(
        "ws/haft.json",
        r#"{"mcpServers": {"docs": {"command": "npx", "args": ["-y", "docs-server"]}}}"#,
    );
    tree.file("ws/.haft/agents/reviewer.md", "You review.\n");
    let skill = "---\nname: notes\ndescription: Takes notes\n---\nTake notes.\n";
    tree.file("ws/.haft/skills/notes/SKILL.md", skill);
    let trusted = || tree.haft(&["trust", "--list"]).output().expect_code(0).stdout;
    let shown =
        ["mcpServers.docs: npx -y docs-server", "agent ", "reviewer.md", "skill notes", "You review."];

    let refused = tree.haft(&["trust"]).output().expect_code(4);
    assert!(
        refused.stderr.contains("hint: ") && refused.stderr.contains("haft trust --yes"),
        "{}",
        refused.stderr
    );
    for part in shown {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    for (key, code) in [("n", 4), ("\n", 4), ("y", 0)] {
        assert!(trusted().starts_with("no file is trusted"), "{key:?}");
        let mut run = tree.haft(&["trust"]).on_terminal();
        run.wait_for("trust these 3 files? [y] yes, any other key: no");
        run.type_keys(key);
        let ran = run.finish().expect_code(code);
        for part in shown {
            assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
        }
    }
    assert_eq!(trusted().matches("trusted ").count(), 3);
}

#[test]
fn policy_explain_rejects_unknown_tool() {
    let tree = tree();
    let explain = |tool: &str, code: i32| tree.haft(&["policy", "explain", tool]).output().expect_code(code);
    let refused = explain("bsh", 42);
    assert!(
        refused.stderr.contains("there is no tool `bsh`; did you mean `bash`?\nhint: "),
        "{}",
        refused.stderr
    );
    explain("docs__search", 42);
    explain("tool_output", 0);
    config(&tree, r#"{"mcpServers": {"docs": {"command": "true"}}}"#);
    explain("docs__search", 0);
}
