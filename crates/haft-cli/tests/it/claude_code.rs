//! Tests of `claude-code/MODEL`: the `claude` command in the sandbox, as a scripted stand-in and as the real program.

use std::io::Read;

use haft_model_server::{
    ModelServer, RequestExpectation, RequestOutcome, ResponsePace, Script, ScriptPart, ScriptStep,
};
use haft_testkit::{
    HaftCommand, TestTree, WITHOUT_NAMESPACES, eventually, libc, processes_with, send_signal,
};
use serde_json::{Value, json};

use super::call::here;

/// A stand-in for the `claude` command with the same output format. It appends its arguments and prompt to
/// `asked.jsonl` in its workspace.
const STAND_IN: &str = r#"#!/usr/bin/env python3
import json, os, subprocess, sys, time
words = sys.argv[1:]
def after(flag): return words[words.index(flag) + 1] if flag in words else None
def message():
    for line in sys.stdin:
        line = json.loads(line)
        if line["type"] == "user": return line["message"]["content"]
prompt = message() if "--input-format" in words else sys.stdin.read()
servers = json.loads(after("--mcp-config")) if "--mcp-config" in words else None
key = os.environ.get("ANTHROPIC_API_KEY")
with open("asked.jsonl", "a") as asked:
    asked.write(json.dumps({"words": words, "prompt": prompt, "servers": servers, "key": key, "env": dict(os.environ)}) + "\n")
def say(**line): print(json.dumps(line), flush=True)
say(type="system", subtype="init", session_id="s-1", model="claude-" + after("--model"))
if "HANG" in prompt:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(4242)", sys.argv[0]])
    open("hangs", "w").close()
    time.sleep(4242)
def event(**event): say(type="stream_event", event=event, parent_tool_use_id=None)
if "LIVE" in prompt:
    event(type="message_start", message={"id": "m"})
    event(type="content_block_start", index=0, content_block={"type": "text", "text": ""})
    event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "A "})
    while not os.path.exists("go"): time.sleep(0.01)
    event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "handle."})
    say(type="assistant", parent_tool_use_id=None, message={"id": "m", "content": [{"type": "text", "text": "A handle."}]})
    event(type="content_block_stop", index=0)
    say(type="result", session_id="s-1", subtype="success", is_error=False, result="A handle.")
    sys.exit()
def append(path):
    try:
        with open(path, "a") as file: file.write(" ")
        return True
    except OSError: return False
if "PLANT" in prompt:
    home, own = os.path.expanduser("~/.claude"), os.environ["CLAUDE_CONFIG_DIR"]
    names = ["settings.json", "CLAUDE.md", "commands/evil.md", "new.json"]
    written = [name for name in names if append(os.path.join(home, name))]
    written += ["own " + name for name in [*names[:3], ".credentials.json", "note"] if append(os.path.join(own, name))]
    try:
        os.rename(home, home + ".old")
        written.append("renamed")
    except OSError: pass
    say(type="result", session_id="s-1", subtype="success", is_error=False, result=json.dumps(written))
    sys.exit()
if "DIE" in prompt:
    sys.exit("it broke")
def result(**more): say(type="result", session_id="s-1", usage={"input_tokens": 7, "output_tokens": 2}, total_cost_usd=0.5, **more)
if "TURNS" in prompt:
    result(subtype="error_max_turns", is_error=True)
elif "REFUSE" in prompt:
    result(subtype="success", is_error=True, api_error_status=401, result="Invalid API key: sk-ant-0123456789")
else:
    say(type="assistant", parent_tool_use_id=None, message={"content": [{"type": "text", "text": "I look."}]})
    say(type="assistant", parent_tool_use_id=None, message={"content": [{"type": "text", "text": "You said: " + prompt}]})
    result(subtype="success", is_error=False, result="You said: " + prompt)
"#;

fn tree() -> TestTree {
    let tree = here();
    let script = tree.file("ws/claude", STAND_IN);
    make_executable(&script);
    let config =
        json!({"providers": {"claude-code": {"command": script, "maxTurns": 7, "allowedTools": ["Read"]}}});
    tree.file("home/haft.json", &config.to_string());
    tree
}

fn make_executable(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn asked(tree: &TestTree) -> Vec<Value> {
    tree.text("ws/asked.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn after(asked: &Value, flag: &str) -> Option<String> {
    let words: Vec<&str> =
        asked["words"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let at = words.iter().position(|word| *word == flag)?;
    Some(words[at + 1].to_owned())
}

#[test]
fn ask_runs_claude_code_without_tools() {
    let tree = tree();
    let run = tree.haft(&["ask", "-m", "claude-code/sonnet", "--system", "be brief", "--json", "hi"]);
    let ran =
        run.env("ANTHROPIC_API_KEY", "k-0123456789").env("OPENAI_API_KEY", "other").output().expect_code(0);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&said["text"], &said["model"]), (&json!("You said: hi"), &json!("claude-sonnet")));
    assert_eq!((&said["cost_nano_usd"], &said["usage"]["input_tokens"]), (&json!(500_000_000), &json!(7)));
    let asked = asked(&tree);
    assert_eq!((asked.len(), &asked[0]["key"]), (1, &json!("k-0123456789")));
    let word = |flag| after(&asked[0], flag);
    assert_eq!(word("--model").as_deref(), Some("sonnet"));
    assert_eq!(word("--max-turns").as_deref(), Some("7"));
    assert_eq!(word("--append-system-prompt").as_deref(), Some("be brief"));
    assert_eq!(word("--tools").as_deref(), Some(""));
    assert_eq!(word("--allowedTools"), None);
    let line: Value =
        serde_json::from_str(tree.text("home/data/accounting.jsonl").lines().last().unwrap()).unwrap();
    assert_eq!(line["event"]["model"], "claude-code/sonnet", "{line}");
}

#[test]
fn claude_command_sees_neither_the_mcp_servers_nor_their_secrets() {
    let tree = tree();
    let mut config: Value = serde_json::from_str(&tree.text("home/haft.json")).unwrap();
    config["mcpServers"] = json!({"notes": {"command": "true", "env": {"TOKEN": "${NOTES_TOKEN}"}}});
    tree.file("home/haft.json", &config.to_string());
    let run = tree.haft(&["run", "-m", "claude-code/opus", "--tools", "current_date", "hi"]);
    let ran = run.env("NOTES_TOKEN", "canary-token").output().expect_code(0);
    assert_eq!(ran.stdout, "You said: hi\n", "{}", ran.stderr);
    let asked = &asked(&tree)[0];
    assert_eq!(after(asked, "--allowedTools").as_deref(), Some("Read,mcp__haft"));
    assert_eq!(asked["servers"], json!({"mcpServers": {"haft": {"type": "sdk", "name": "haft"}}}));
    assert!(!asked.to_string().contains("canary-token"), "{asked}");
    assert_eq!(run_directories(&tree), 0, "haft removes the directory of the command");
}

/// Counts the directories of the command in haft's cache.
fn run_directories(tree: &TestTree) -> usize {
    let entries = std::fs::read_dir(tree.path("home/cache")).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(".claude-code-")).count()
}

/// Hooks and instructions in the user's configuration directory would take effect, without a sandbox, the next time the
/// user starts the command.
#[test]
fn claude_code_cannot_change_the_users_configuration() {
    for (mode, wrapper) in
        [("workspace", &[][..]), ("network", &[]), ("full", &[]), ("workspace", WITHOUT_NAMESPACES)]
    {
        let tree = tree();
        let mut config: Value = serde_json::from_str(&tree.text("home/haft.json")).unwrap();
        config["sandbox"] = json!({"mode": mode});
        tree.file("home/haft.json", &config.to_string());
        for name in ["settings.json", "CLAUDE.md", "commands/one.md", ".credentials.json"] {
            tree.file(&format!("user/.claude/{name}"), "{}");
        }
        let run = tree.haft(&["ask", "-m", "claude-code/sonnet", "PLANT"]).through(wrapper);
        let ran = run.output().expect_code(0);
        let written: Vec<String> = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(written, ["own .credentials.json", "own note"], "{mode} {wrapper:?}");
        assert_eq!(
            tree.text("user/.claude/.credentials.json"),
            "{} ",
            "the command can renew its credentials"
        );
        assert_eq!(run_directories(&tree), 0, "{mode}");
    }
}

#[test]
fn claude_code_directory_of_a_killed_process_is_removed_at_the_next_start() {
    let tree = tree();
    let mut child = tree.haft(&["ask", "-m", "claude-code/sonnet", "HANG"]).start();
    eventually("the command hangs", || tree.exists("ws/hangs"));
    assert_eq!(run_directories(&tree), 1);
    send_signal(child.id(), libc::SIGKILL);
    child.wait().unwrap();
    tree.haft(&["ask", "-m", "claude-code/sonnet", "hi"]).output().expect_code(0);
    assert_eq!(run_directories(&tree), 0);
}

#[test]
fn broken_claude_code_session_is_resumed() {
    for (prompt, failure) in [("DIE", "server_failed"), ("TURNS", "reply_too_large")] {
        let tree = tree();
        let ran = tree.haft(&["ask", "-m", "claude-code/sonnet", "--json", prompt]).output().expect_code(0);
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(
            (&said["text"], &said["attempts"]),
            (&json!("You said: Continue where you left off."), &json!(2))
        );
        let asked = asked(&tree);
        assert_eq!(
            (after(&asked[0], "--resume"), after(&asked[1], "--resume").as_deref()),
            (None, Some("s-1"))
        );
        let first: Value =
            serde_json::from_str(tree.text("home/data/accounting.jsonl").lines().next().unwrap()).unwrap();
        assert_eq!(first["event"]["error_kind"], failure, "{first}");
    }
}

#[test]
fn auth_failure_and_missing_command_have_distinct_errors() {
    let tree = tree();
    let refused = tree.haft(&["ask", "-m", "claude-code/sonnet", "REFUSE"]).output().expect_code(6);
    assert!(
        refused.stderr.contains("Invalid API key") && !refused.stderr.contains("0123456789"),
        "{}",
        refused.stderr
    );
    tree.file("home/haft.json", r#"{"providers": {"claude-code": {"command": "no-such-command"}}}"#);
    let missing = tree.haft(&["ask", "-m", "claude-code/sonnet", "hi"]).output().expect_code(5);
    assert!(
        missing.stderr.contains("haft cannot start the program `no-such-command`")
            && missing.stderr.contains("hint: "),
        "{}",
        missing.stderr
    );
    tree.file(
        "home/haft.json",
        r#"{"providers": {"claude-code": {"apiKey": "x"}, "openai": {"maxTurns": 3}}}"#,
    );
    let wrong = tree.haft(&["ask", "-m", "claude-code/sonnet", "hi"]).output().expect_code(42);
    for key in ["providers.claude-code.apiKey", "providers.openai.maxTurns"] {
        assert!(wrong.stderr.contains(key), "{}", wrong.stderr);
    }
}

#[test]
fn claude_code_answer_is_streamed() {
    let tree = tree();
    let mut child = tree.haft(&["ask", "-m", "claude-code/sonnet", "LIVE"]).start();
    let mut first = [0_u8; 2];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"A ");
    tree.file("ws/go", "");
    let rest = child.wait_with_output().unwrap();
    assert_eq!((rest.status.code(), rest.stdout.as_slice()), (Some(0), b"handle.\n".as_slice()));
}

/// The process tree ends after Ctrl-C, and after haft is killed.
#[test]
fn claude_code_process_tree_dies_with_haft() {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let tree = tree();
        let mut child = tree.haft(&["ask", "-m", "claude-code/sonnet", "HANG"]).start();
        eventually("the command hangs", || tree.exists("ws/hangs"));
        send_signal(child.id(), signal);
        child.wait().unwrap();
        let script = tree.path("ws/claude");
        eventually("no process of the command is left", || {
            processes_with(script.to_str().unwrap()).is_empty()
        });
    }
}

/// Returns the path of the program that `cargo xtask install` installed.
pub(super) fn installed() -> String {
    tool("claude/node_modules/.bin/claude")
}

/// Returns the path of a file below the programs that `cargo xtask install` installed.
pub(super) fn tool(path: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let places = program.ancestors().map(|tree| tree.join("tools").join(path));
    let found = places.into_iter().find(|place| place.exists());
    found
        .unwrap_or_else(|| panic!("{path} is not there; `cargo xtask install` installs it"))
        .to_str()
        .unwrap()
        .to_owned()
}

fn real(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftCommand {
    real_with(tree, server, &json!({}), words)
}

/// Runs haft with the real program and further keys of the configuration.
fn real_with(tree: &TestTree, server: &ModelServer, more: &Value, words: &[&str]) -> HaftCommand {
    let own = json!(["Read", "Bash(ls *)"]);
    let mut config = json!({"providers": {"claude-code": {"command": installed(), "allowedTools": own}}});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    tree.file("home/haft.json", &config.to_string());
    tree.haft(words).env("ANTHROPIC_BASE_URL", &server.url()).env("ANTHROPIC_API_KEY", "sk-test-0123456789")
}

#[test]
fn real_claude_code_answers_from_scripted_server() {
    let tree = here();
    let expected = RequestExpectation {
        user: Some("What is a haft?".into()),
        system: Some("be brief".into()),
        ..RequestExpectation::default()
    };
    let server = ModelServer::start(Script::of([ScriptStep::text("A handle.").expecting(expected)])).unwrap();
    let words = ["ask", "-m", "claude-code/sonnet", "--system", "be brief", "What is a haft?"];
    let ran = real(&tree, &server, &words).output().expect_code(0);
    assert_eq!(ran.stdout, "A handle.\n", "{}", ran.stderr);
}

#[test]
fn real_claude_code_answer_is_streamed() {
    let tree = here();
    let slowly = ResponsePace { chunk_bytes: Some(64), between_milliseconds: 50, ..ResponsePace::default() };
    let step = ScriptStep::text(&"on and on ".repeat(4000)).at_pace(slowly);
    let server = ModelServer::start(Script::of([step])).unwrap();
    let mut child = real(&tree, &server, &["ask", "-m", "claude-code/sonnet", "hi"]).start();
    let mut first = [0_u8; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"on a");
    send_signal(child.id(), libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let gone = || server.requests().iter().any(|request| request.outcome == RequestOutcome::Abandoned);
    eventually("the server sees its client go in the middle of the reply", gone);
}

#[test]
fn real_claude_code_uses_its_read_tool_in_sandbox() {
    let tree = here();
    tree.file("ws/note.txt", "the note says seven");
    let note = tree.path("ws/note.txt");
    let told = RequestExpectation {
        body_contains: vec!["the note says seven".into()],
        ..RequestExpectation::default()
    };
    let steps =
        [ScriptStep::call("Read", json!({"file_path": note})), ScriptStep::text("Seven.").expecting(told)];
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let ran =
        real(&tree, &server, &["run", "-q", "-m", "claude-code/sonnet", "What does the note say?"]).output();
    assert_eq!(ran.expect_code(0).stdout, "Seven.\n");
}

pub(super) fn results(wanted: &[&str]) -> RequestExpectation {
    let wanted = wanted.iter().map(|text| (*text).to_owned()).collect();
    RequestExpectation { tool_results: Some(wanted), ..RequestExpectation::default() }
}

/// Returns the usage records of calls, as tool and error kind.
pub(super) fn accounted_calls(tree: &TestTree) -> Vec<(String, Option<String>)> {
    let text = tree.text("home/data/accounting.jsonl");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["event"].clone());
    let word = |value: &Value| value.as_str().map(str::to_owned);
    events.filter_map(|event| Some((word(&event["tool"])?, word(&event["error_kind"])))).collect()
}

/// The calls of the command are calls of the run: the rules decide about them, and the usage records contain them.
#[test]
fn real_claude_code_uses_the_tools_of_haft_under_its_rules() {
    let tree = here();
    tree.file("ws/kept", "x");
    let bash = |command: &str| ScriptStep::call("mcp__haft__bash", json!({"command": command}));
    let steps = [
        bash("echo seven > made"),
        bash("rm kept").expecting(results(&[""])),
        ScriptStep::text("Done.").expecting(results(&["denied"])),
    ];
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let rules = json!({"policy": {"rules": [{"tool": "bash", "command": "rm *", "decision": "deny"}]}});
    let words = ["run", "-q", "-m", "claude-code/sonnet", "--tools", "bash", "Make it."];
    let ran = real_with(&tree, &server, &rules, &words).output().expect_code(0);
    assert_eq!(ran.stdout, "Done.\n", "{}", ran.stderr);
    assert!(tree.exists("ws/kept"), "the rule denies `rm`");
    assert_eq!(tree.text("ws/made"), "seven\n");
    let calls = accounted_calls(&tree);
    assert_eq!(calls, [("bash".to_owned(), None), ("bash".to_owned(), Some("denied".to_owned()))]);
}

/// The command asks haft before each use of its own tools, also for the commands in `allowedTools`.
#[test]
fn real_claude_code_asks_haft_for_permission() {
    let tree = here();
    let bash = |command: &str| ScriptStep::call("Bash", json!({"command": command}));
    let steps = [
        bash("ls -a"),
        bash("mkdir made").expecting(results(&["."])),
        bash("touch denied").expecting(results(&[""])),
        bash("touch asked").expecting(results(&["denied"])),
        ScriptStep::text("Done.").expecting(results(&["approv"])),
    ];
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let rules = json!({"policy": {"rules": [
        {"tool": "claude_code__Bash", "decision": "allow"},
        {"tool": "claude_code__Bash", "command": "touch denied", "decision": "deny"},
        {"tool": "claude_code__Bash", "command": "touch asked", "decision": "ask"},
    ]}});
    let words = ["run", "-q", "-m", "claude-code/sonnet", "--tools", "current_date", "Make it."];
    let ran = real_with(&tree, &server, &rules, &words).output().expect_code(0);
    assert_eq!(ran.stdout, "Done.\n", "{}", ran.stderr);
    let made = ["made", "denied", "asked"].map(|name| tree.exists(&format!("ws/{name}")));
    assert_eq!(made, [true, false, false]);
    let names: Vec<String> = accounted_calls(&tree).into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(names, ["claude_code__Bash"; 4]);
    // The command itself asks haft for permissions. The model must not see the tools for this, because they would only
    // confuse it.
    assert!(server.requests().iter().all(|request| !request.raw.contains("mcp__haft__claude_code__")));
}

/// Runs one command in the `Bash` tool of the real program, with the user's settings and a rule that denies `touch`.
fn real_bash_step(settings: &Value, command: &str, told: &str) -> TestTree {
    let tree = here();
    tree.file("user/.claude/settings.json", &settings.to_string());
    let steps = [
        ScriptStep::call("Bash", json!({"command": command})),
        ScriptStep::text("Done.").expecting(results(&[told])),
    ];
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let rules = json!({"policy": {"rules": [
        {"tool": "claude_code__Bash", "command": "touch *", "decision": "deny"},
    ]}});
    let words = ["run", "-q", "-m", "claude-code/sonnet", "--tools", "current_date", "Make it."];
    let ran = real_with(&tree, &server, &rules, &words).output().expect_code(0);
    assert_eq!(ran.stdout, "Done.\n", "{}", ran.stderr);
    tree
}

/// The user's settings may allow an action, or turn off all hooks of the user. The rules of haft still decide.
#[test]
fn real_claude_code_settings_cannot_allow_an_action_that_a_rule_denies() {
    let allowed = json!({"permissions": {"allow": ["Bash(touch *)"]}});
    for more in [
        json!({}),
        json!({"disableAllHooks": true}),
        json!({"permissions": {"allow": ["Bash"], "defaultMode": "bypassPermissions"}}),
    ] {
        let mut settings = allowed.clone();
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let tree = real_bash_step(&settings, "touch made", "denied");
        assert!(!tree.exists("ws/made"), "{settings}");
        let denied = ("claude_code__Bash".to_owned(), Some("denied".to_owned()));
        assert_eq!(accounted_calls(&tree), [denied], "{settings}");
    }
}

/// The command reports one action to haft twice: in the hook, and in the permission prompt.
#[test]
fn real_claude_code_asks_haft_only_once_about_an_action() {
    for settings in [json!({}), json!({"permissions": {"ask": ["Bash(mkdir *)"]}})] {
        let tree = real_bash_step(&settings, "mkdir made", "");
        assert!(tree.exists("ws/made"), "{settings}");
        assert_eq!(accounted_calls(&tree), [("claude_code__Bash".to_owned(), None)], "{settings}");
    }
}

#[test]
fn real_claude_code_hook_of_the_user_cannot_change_an_action_that_haft_has_allowed() {
    let changed = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow",
        "updatedInput": {"command": "touch changed"}}});
    // If the hook of the user answers last, the command shows the original arguments in its prompt. If it answers first,
    // the prompt has the changed arguments, and haft denies them.
    for seconds in [2, 0] {
        let hook = json!({"type": "command", "command": format!("sleep {seconds}; echo '{changed}'")});
        let settings = json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}});
        let tree = real_bash_step(&settings, "mkdir made", "");
        assert!(!tree.exists("ws/changed"), "{seconds}");
        assert_eq!(accounted_calls(&tree)[0], ("claude_code__Bash".to_owned(), None), "{seconds}");
    }
}

#[test]
fn real_claude_code_cannot_read_a_file_if_a_rule_denies_reading() {
    let tree = here();
    tree.file("ws/note.txt", "the note says seven");
    let steps = [
        ScriptStep::call("Read", json!({"file_path": tree.path("ws/note.txt")})),
        ScriptStep::text("Done.").expecting(results(&["denied"])),
    ];
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let rules = json!({"policy": {"rules": [{"tool": "claude_code__Read", "decision": "deny"}]}});
    let words = ["run", "-q", "-m", "claude-code/sonnet", "--tools", "current_date", "Read it."];
    real_with(&tree, &server, &rules, &words).output().expect_code(0);
    assert!(server.requests().iter().all(|request| !request.raw.contains("the note says seven")));
    assert_eq!(accounted_calls(&tree), [("claude_code__Read".to_owned(), Some("denied".to_owned()))]);
}

/// The hook must not delay the calls of haft's tools: haft makes all calls of one message in one turn.
#[test]
fn real_claude_code_calls_of_one_message_are_one_turn() {
    let tree = here();
    let bash = |command: &str| ScriptPart::call("mcp__haft__bash", json!({"command": command}));
    let read = |name: &str| ScriptPart::call("Read", json!({"file_path": tree.path(name)}));
    tree.file("ws/one.txt", "1");
    tree.file("ws/two.txt", "2");
    let steps = [
        ScriptStep::say([bash("echo one"), bash("echo two")]),
        ScriptStep::say([read("ws/one.txt"), read("ws/two.txt")]).expecting(results(&["one", "two"])),
        ScriptStep::text("Done.").expecting(results(&["1", "2"])),
    ];
    let server = ModelServer::start(Script::of(steps)).unwrap();
    let words = ["run", "--output-format", "json", "-m", "claude-code/sonnet", "--tools", "bash", "Go."];
    let ran = real_with(&tree, &server, &json!({}), &words).output().expect_code(0);
    let said: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(said["turns"], 3, "{said}");
}
