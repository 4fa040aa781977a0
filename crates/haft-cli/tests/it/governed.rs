use haft_testkit::{TestTree, TestUser};

fn place() -> TestTree {
    TestTree::new(TestUser::Ourselves)
}

fn config(place: &TestTree, text: &str) {
    place.file("home/haft.json", text);
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
    let place = place();
    config(&place, BASH_RULES);
    place.file("ws/kept", "");
    for line in ["rm kept", "true && rm kept", "echo $(rm kept)", "bash -c 'rm kept'"] {
        let ran = place.haft(&["call", "bash", &bash(line)]).output().expect_code(4);
        assert!(ran.stderr.contains("deny bash: rm *"), "{line}: {}", ran.stderr);
        assert!(place.exists("ws/kept"), "{line}");
    }
    place.haft(&["call", "bash", &bash("ls")]).output().expect_code(0);
}

#[test]
fn ask_rule_denies_without_a_terminal() {
    let place = place();
    config(&place, BASH_RULES);
    let ran = place.haft(&["call", "bash", &bash("git push")]).output().expect_code(4);
    assert!(ran.stderr.contains("no user is available"), "{}", ran.stderr);
}

#[test]
fn policy_explain_reports_decision_without_running() {
    let place = place();
    config(&place, BASH_RULES);
    place.file("ws/kept", "");
    let ran = place.haft(&["policy", "explain", "bash", &bash("ls; rm kept")]).output().expect_code(0);
    assert!(ran.stdout.starts_with("deny: "), "{}", ran.stdout);
    assert!(place.exists("ws/kept"));
    let ran = place.haft(&["policy", "explain", "--json", "bash", &bash("ls")]).output().expect_code(0);
    assert!(ran.stdout.contains("\"decision\": \"allow\""), "{}", ran.stdout);
}

#[test]
fn policy_explain_shows_how_a_line_was_read() {
    let place = place();
    config(&place, BASH_RULES);
    let explain = |words: &[&str], line: &str| {
        let arguments = bash(line);
        let words = [&["policy", "explain"], words, &["bash", &arguments]].concat();
        place.haft(&words).output().expect_code(0).stdout
    };
    let text = explain(&[], "sudo -n env A=1 rm kept");
    assert!(
        text.contains("read in `sudo -n env A=1 rm kept`") && text.contains("deny  A=.. rm kept"),
        "{text}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&explain(&["--json"], "bash -c 'ls; rm kept'")).unwrap();
    let inner = &json["commands"][2];
    assert_eq!((&inner["command"], &inner["decision"]), (&"rm kept".into(), &"deny".into()), "{json:#}");
    assert_eq!(inner["readIn"], "bash -c ls; rm kept", "{json:#}");
    let mentioned = explain(&[], "newwrapper --run='rm kept'");
    assert!(mentioned.starts_with("ask: `rm` of rule"), "{mentioned}");
}

#[test]
fn project_config_applies_only_while_trusted() {
    let place = place();
    place.file("ws/haft.json", r#"{"toolsDenied": ["current_date"]}"#);
    let ran = place.haft(&["call", "current_date"]).output().expect_code(0);
    assert!(ran.stderr.contains("is ignored"), "{}", ran.stderr);
    place.haft(&["trust", "--yes"]).output().expect_code(0);
    place.haft(&["call", "current_date"]).output().expect_code(4);
    place.file("ws/haft.json", r#"{"toolsDenied": ["current_date" ]}"#);
    place.haft(&["call", "current_date"]).output().expect_code(0);
}

#[test]
fn trusted_project_config_is_hidden_from_commands() {
    let place = place();
    place.file("ws/haft.json", r#"{"toolTimeout": "5s"}"#);
    place.haft(&["trust", "--yes"]).output().expect_code(0);
    let line = "cat haft.json; echo x > haft.json; mv haft.json away; rm haft.json; true";
    let ran = place.haft(&["call", "bash", &bash(line)]).output().expect_code(0);
    assert!(!ran.stdout.contains("toolTimeout"), "{ran:?}");
    assert_eq!(place.text("ws/haft.json"), r#"{"toolTimeout": "5s"}"#);
}

#[test]
fn sandboxed_command_cannot_trust_its_project() {
    let place = place();
    let script = "echo '{}' > haft.json; echo '{}' > \"$HAFT_HOME/data/trust.json\"; ls \"$HAFT_HOME/data\"; echo tried";
    let ran = place.confined(&["--env", "HAFT_HOME"], script).output();
    assert!(ran.stdout.contains("tried"), "{ran:?}");
    assert!(!place.exists("home/data/trust.json"));
}

#[test]
fn invalid_config_stops_calls_and_lists_all_errors() {
    let place = place();
    config(&place, "{\n  \"sandbx\": {},\n  \"toolTimeout\": true\n}");
    let ran = place.haft(&["call", "current_date"]).output().expect_code(42);
    assert!(
        ran.stderr.contains("haft.json:2:3") && ran.stderr.contains("did you mean `sandbox`"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("haft.json:3:"), "{}", ran.stderr);
    place.haft(&["config", "check"]).output().expect_code(42);
}

#[test]
fn flags_override_config() {
    let place = place();
    config(&place, r#"{"sandbox": {"mode": "network", "limits": {"openFiles": 99}}}"#);
    let ran = place.confined(&["-v"], "ulimit -n").output().expect_code(0);
    assert_eq!(ran.stdout, "99\n");
    assert!(!ran.stderr.contains("network"), "mode network has no network namespace: {}", ran.stderr);
    let ran =
        place.confined(&["-v", "--mode", "workspace", "--limit", "open-files=77"], "ulimit -n").output();
    assert_eq!(ran.stdout, "77\n");
    assert!(ran.stderr.contains("network"), "{}", ran.stderr);
}

#[test]
fn config_file_passed_by_flag_is_hidden_from_commands() {
    let place = place();
    let file = place.file("ws/my.json", r#"{"toolTimeout": "5s"}"#);
    let flag = file.to_str().unwrap();
    let ran =
        place.haft(&["call", "--config", flag, "bash", &bash("cat my.json; echo x > my.json")]).output();
    assert!(!ran.stdout.contains("toolTimeout"), "{ran:?}");
    assert_eq!(place.text("ws/my.json"), r#"{"toolTimeout": "5s"}"#);
}

#[test]
fn long_output_is_stored_and_can_be_queried() {
    let place = place();
    let lines = concat!(r#"{"id":1,"tool":"bash","args":{"command":"seq 1 20000; echo '{}'"}}"#, "\n");
    let ran = place.haft(&["call", "--stdin"]).stdin(lines).output().expect_code(0);
    let handle = handle_in(&ran.stdout);
    let last = place.haft(&["output", &handle, "lines", "19999-20000"]).output().expect_code(0);
    assert_eq!(last.stdout, "19999\n20000\n");
    let grep = place.haft(&["output", &handle, "grep", "-A", "1", "^777$"]).output().expect_code(0);
    assert_eq!(grep.stdout, "777:777\n778-778\n");
    place.haft(&["output", "session-../../haft.json"]).output().expect_code(42);
}

#[test]
fn stored_output_is_readable_only_in_its_session() {
    let place = place();
    let mut child = place.haft(&["call", "--stdin", "--jobs", "1"]).start();
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
    assert!(endless.contains("is_error\":true"), "not JSON, so refused at once: {endless}");
    drop(input);
    assert!(child.wait().unwrap().success());
    let line = format!("{{\"id\":3,\"tool\":\"tool_output\",\"args\":{{\"handle\":\"{handle}\"}}}}\n");
    let other = place.haft(&["call", "--stdin"]).stdin(line).output().expect_code(0);
    assert!(other.stdout.contains("no such stored output"), "{}", other.stdout);
}

#[test]
fn endless_jq_filter_ends_at_call_timeout() {
    let place = place();
    let mut child = place.haft(&["call", "--stdin", "--jobs", "1", "--timeout", "2s"]).start();
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
    let place = place();
    config(&place, BASH_RULES);
    place.haft(&["call", "current_date"]).output().expect_code(0);
    place.haft(&["call", "bash", &bash("rm x")]).output().expect_code(4);
    place.haft(&["call", "no_such_tool"]).output().expect_code(42);
    let journal = place.text("home/data/accounting.jsonl");
    assert_eq!(journal.lines().count(), 3, "{journal}");
    assert!(!journal.contains("rm x"), "arguments are told by digest only: {journal}");
    let ran = place.haft(&["stats", "--json"]).output().expect_code(0);
    assert!(
        ran.stdout.contains("\"tool\": \"bash\"") && ran.stdout.contains("\"errors\": 1"),
        "{}",
        ran.stdout
    );
    place.haft(&["stats", "--since", "1h"]).output().expect_code(0);
}

#[test]
fn silent_command_is_stopped_at_its_idle_timeout() {
    let place = place();
    config(&place, r#"{"tools": {"bash": {"idleTimeout": "300ms", "timeout": "1h"}}}"#);
    let ran = place.haft(&["call", "bash", &bash("echo begun; sleep 3600")]).output().expect_code(124);
    assert!(ran.stderr.contains("without progress (idle timeout)"), "{}", ran.stderr);
}

#[test]
fn configured_cache_answers_equal_calls() {
    let place = place();
    config(&place, r#"{"tools": {"current_date": {"cache": "1h"}}}"#);
    let line = "{\"id\":1,\"tool\":\"current_date\",\"args\":{}}\n";
    let ran = place.haft(&["call", "--stdin", "--jobs", "1"]).stdin(line.repeat(3)).output().expect_code(0);
    assert_eq!(ran.stdout.lines().count(), 3);
    assert_eq!(place.text("home/data/accounting.jsonl").matches("\"cached\":true").count(), 2);
}

#[test]
fn groups_and_tools_denied_filter_the_tool_list() {
    let place = place();
    config(&place, r#"{"groups": {"files": ["read", "write", "edit"]}, "toolsDenied": ["WRI*"]}"#);
    assert_eq!(listed(&place, "files"), ["read", "edit"]);
    let ran = place.haft(&["tools", "--group", "nothing"]).output().expect_code(42);
    assert!(ran.stderr.contains("the groups are builtin, files"), "{}", ran.stderr);
    let ran = place.haft(&["call", "write", "{}"]).output().expect_code(4);
    assert!(ran.stderr.contains("tool `write` is not active: `toolsDenied` names it"), "{}", ran.stderr);
}

#[test]
fn inactive_tool_is_denied_with_reason() {
    let place = place();
    let active =
        r#""groups": {"files": ["read"], "all": ["@files", "current_*"]}, "activeGroups": ["files"]"#;
    config(&place, &format!("{{{active}}}"));
    let ran = place.haft(&["call", "current_date"]).output().expect_code(4);
    assert!(ran.stderr.contains("`activeGroups` has none of its groups (builtin, all)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("haft config show"), "{}", ran.stderr);
    place.haft(&["call", "read", r#"{"file_path":"/etc/hostname"}"#]).output().expect_code(0);
    config(&place, &format!(r#"{{{active}, "tools": {{"current_date": {{"enabled": true}}}}}}"#));
    place.haft(&["call", "current_date"]).output().expect_code(0);
    assert_eq!(listed(&place, "all"), ["read", "current_date"]);
    config(&place, r#"{"tools": {"current_date": {"enabled": false}}}"#);
    let ran = place.haft(&["call", "current_date"]).output().expect_code(4);
    assert!(ran.stderr.contains("`enabled` is false for it in `tools`"), "{}", ran.stderr);
}

fn listed(place: &TestTree, group: &str) -> Vec<String> {
    let ran = place.haft(&["tools", "--group", group]).output().expect_code(0);
    ran.stdout.lines().skip(1).filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}

#[test]
fn string_arguments_are_coerced_and_reported() {
    let place = place();
    place.file("ws/text", "one\ntwo\nthree\n");
    let ran =
        place.haft(&["call", "-v", "read", r#"{"file_path":"text","limit":"1"}"#]).output().expect_code(0);
    assert!(ran.stdout.contains("one") && !ran.stdout.contains("two"), "{}", ran.stdout);
    assert!(ran.stderr.contains(r#"mended: ["limit"]"#), "{}", ran.stderr);
}

#[test]
fn config_limits_tools_per_provider() {
    let place = place();
    config(
        &place,
        r#"{"catalog": {"maxToolsPerProvider": 2, "warmupTimeout": "5s"}, "validation": {"draft": "7"}}"#,
    );
    let ran = place.haft(&["call", "bash", &bash("echo here")]).output().expect_code(0);
    assert!(
        ran.stderr.contains("provider `builtin`: it lists 6 tools, of which the first 2 are used"),
        "{}",
        ran.stderr
    );
    place.haft(&["call", "current_date"]).output().expect_code(42);
}

pub(crate) fn handle_in(text: &str) -> String {
    let from = text.find("session-").unwrap_or_else(|| panic!("no handle in {text}"));
    text[from..].chars().take_while(|c| c.is_ascii_alphanumeric() || "-/".contains(*c)).collect()
}

#[test]
fn trust_shows_all_that_would_run_and_asks_first() {
    let place = place();
    place.file(
        "ws/haft.json",
        r#"{"mcpServers": {"docs": {"command": "npx", "args": ["-y", "docs-server"]}}}"#,
    );
    place.file("ws/.haft/agents/reviewer.md", "You review.\n");
    let skill = "---\nname: notes\ndescription: Takes notes\n---\nTake notes.\n";
    place.file("ws/.haft/skills/notes/SKILL.md", skill);
    let trusted = || place.haft(&["trust", "--list"]).output().expect_code(0).stdout;
    let shown =
        ["mcpServers.docs: npx -y docs-server", "agent ", "reviewer.md", "skill notes", "You review."];

    let refused = place.haft(&["trust"]).output().expect_code(4);
    assert!(
        refused.stderr.contains("hint: ") && refused.stderr.contains("haft trust --yes"),
        "{}",
        refused.stderr
    );
    for part in shown {
        assert!(refused.stderr.contains(part), "{part}: {}", refused.stderr);
    }
    for (key, code) in [("n", 4), ("\n", 4), ("y", 0)] {
        assert!(trusted().starts_with("nothing is trusted"), "{key:?}");
        let mut run = place.haft(&["trust"]).on_terminal();
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
fn a_tool_that_does_not_exist_is_not_explained() {
    let place = place();
    let explain = |tool: &str, code: i32| place.haft(&["policy", "explain", tool]).output().expect_code(code);
    let refused = explain("bsh", 42);
    assert!(
        refused.stderr.contains("there is no tool `bsh`; did you mean `bash`?\nhint: "),
        "{}",
        refused.stderr
    );
    explain("docs__search", 42);
    explain("tool_output", 0);
    config(&place, r#"{"mcpServers": {"docs": {"command": "true"}}}"#);
    explain("docs__search", 0);
}
