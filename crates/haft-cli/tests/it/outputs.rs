use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;

use haft_core::output_store::OutputStore;
use haft_engine::RunContext;
use haft_runtime::wiring::{self, ToolSettings};
use haft_sandbox::{Home, SandboxMode, SandboxPolicy};
use haft_store::outputs::{FileStore, StoreLimits};
use haft_testkit::{TestTree, TestUser};
use serde_json::{Value, json};

use super::governed::handle_in;

fn tree() -> TestTree {
    TestTree::new(TestUser::Ourselves)
}

/// One process of `haft call --stdin`, whose later calls can query the outputs it stored.
struct OutputCallSession {
    child: Child,
    input: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
}

impl OutputCallSession {
    fn start(tree: &TestTree) -> Self {
        let mut child = tree.haft(&["call", "--stdin", "--jobs", "1"]).start();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { input: child.stdin.take(), child, answers }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let line = json!({"id": 1, "tool": tool, "args": arguments});
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        serde_json::from_str(&self.answers.next().unwrap().unwrap()).unwrap()
    }

    fn said(&mut self, tool: &str, arguments: &Value) -> String {
        self.call(tool, arguments)["content"].as_str().unwrap().to_owned()
    }
}

impl Drop for OutputCallSession {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

fn numbers(last: usize) -> String {
    (1..=last).map(|number| format!("{number}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn jq_filter_on_the_command_line_is_sandboxed_and_has_a_timeout() {
    let tree = tree();
    tree.file("ws/list.json", &json!((0..20_000).collect::<Vec<_>>()).to_string());
    let mut session = OutputCallSession::start(&tree);
    let shown = session.said("bash", &json!({"command": "cat list.json"}));
    let handle = handle_in(&shown);
    let ask = |filter: &str| tree.haft(&["output", &handle, "jq", filter]).output();
    assert_eq!(ask("length").expect_code(0).stdout, "20000\n");
    for import in [r#"import "x" as $x; $x"#, r#"import "x" as x; x::f"#, r#"include "x"; ."#] {
        ask(import).expect_code(42);
    }
    tree.file("home/haft.json", r#"{"toolTimeout": "300ms"}"#);
    let ended = ask("last(repeat(1))").expect_code(42);
    assert!(
        ended.stderr.contains("haft stopped the query, because it took more than 300 ms (`toolTimeout`)"),
        "{}",
        ended.stderr
    );
}

#[test]
fn truncated_read_output_is_stored() {
    let tree = tree();
    tree.file("ws/long", &numbers(20_000));
    let mut session = OutputCallSession::start(&tree);
    let shown = session.said("read", &json!({"file_path": "long"}));
    assert!(shown.contains("\n... (output truncated: 108894 total chars, showing first 50000)\n"), "{shown}");
    assert!(shown.contains("All of it is stored (108894 bytes, 20000 lines, about 27224 tokens; size_cap)."));
    let handle = handle_in(&shown);
    let last = session.said("tool_output", &json!({"handle": handle, "extract": "last 1 lines"}));
    assert_eq!(last, "20000\n");
    assert!(!session.said("read", &json!({"file_path": "long", "limit": 10})).contains("stored"));
}

#[test]
fn tool_output_pages_cover_the_whole_output() {
    let tree = tree();
    let mut session = OutputCallSession::start(&tree);
    let handle = handle_in(&session.said("bash", &json!({"command": "seq 1 20000"})));
    let mut question = "lines 1-20000".to_owned();
    let mut seen = String::new();
    for _ in 0..10 {
        let answer = session.said("tool_output", &json!({"handle": handle, "extract": question}));
        let (page, notice) = answer.rsplit_once("... (page ").unwrap();
        seen.push_str(page);
        let Some((_, next)) = notice.split_once("next: `") else { break };
        next.trim_end_matches("`)").clone_into(&mut question);
    }
    assert!(seen == numbers(20_000), "{} bytes", seen.len());
}

#[test]
fn tool_output_without_model_truncates_or_pages_by_mode() {
    let tree = tree();
    tree.file("home/haft.json", r#"{"toolOutput": {"overlapPercent": 0}}"#);
    let mut session = OutputCallSession::start(&tree);
    let handle = handle_in(&session.said("bash", &json!({"command": "seq 1 20000"})));
    let mut ask = |extract: &str, mode: &str| {
        session.said("tool_output", &json!({"handle": handle, "extract": extract, "mode": mode}))
    };
    let free = ask("what is the largest number?", "auto");
    assert!(
        free.starts_with("(no model is available to answer the question; this is the truncated output)\n1\n"),
        "{free}"
    );
    assert!(free.ends_with("\n20000\n"), "the truncated output has its last lines");
    assert!(ask("", "full-chunked").ends_with("(page 1 of 4; next: `page 2`)"));
    assert!(ask("page 4", "full-chunked").ends_with("20000\n... (page 4 of 4, the last)"));
    let wrong = session.call("tool_output", &json!({"handle": handle, "mode": "guess"}));
    assert_eq!(wrong["error_kind"], "invalid_arguments", "{wrong}");
}

#[test]
fn tool_output_config_sets_chunks_and_disables_storage() {
    let tree = tree();
    tree.file("home/haft.json", r#"{"toolOutput": {"maxChunks": 9}}"#);
    let mut session = OutputCallSession::start(&tree);
    let handle = handle_in(&session.said("bash", &json!({"command": "seq 1 20000"})));
    let whole = session.said("tool_output", &json!({"handle": handle}));
    assert!(whole.ends_with("(page 1 of 4; next: `page 2`)"), "{whole}");
    drop(session);
    tree.file("home/haft.json", r#"{"toolOutput": {"enabled": false}}"#);
    let cut = OutputCallSession::start(&tree).said("bash", &json!({"command": "seq 1 20000"}));
    assert!(cut.ends_with("total chars, showing first 30000)"), "{cut}");
    tree.file("home/haft.json", r#"{"toolOutput": {"overlapPercent": 51}}"#);
    tree.haft(&["config", "check"]).output().expect_code(42);
}

/// The header of a PNG picture of 640 by 480 pixels, followed by zeros.
const PICTURE: &str =
    r"printf '\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0'; head -c 40000 /dev/zero";

#[test]
fn binary_output_is_described_and_can_be_exported() {
    let tree = tree();
    let mut session = OutputCallSession::start(&tree);
    let handle = handle_in(&session.said("bash", &json!({"command": PICTURE})));
    let described = session.said("tool_output", &json!({"handle": handle}));
    assert!(described.starts_with("binary: image/png, 640x480 pixels, 40024 bytes, sha256 "), "{described}");
    let grep = session.call("tool_output", &json!({"handle": handle, "extract": "grep PNG"}));
    assert_eq!(grep["error_kind"], "invalid_arguments", "{grep}");
    assert_eq!(
        tree.haft(&["output", &handle]).output().expect_code(0).stdout,
        described.lines().next().unwrap().to_owned() + "\n"
    );
    let raw = tree.haft(&["output", &handle, "--raw"]).output().expect_code(0);
    assert!(raw.stdout.contains("PNG") && raw.stdout.len() > 40_000);
    tree.file("ws/picture.png", "old");
    tree.haft(&["output", &handle, "-o", "picture.png"]).output().expect_code(0);
    let written = std::fs::read(tree.path("ws/picture.png")).unwrap();
    assert!(written.starts_with(b"\x89PNG") && written.len() == 40_024);
    let names: Vec<_> =
        std::fs::read_dir(tree.path("ws")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["picture.png"], "haft leaves no temporary file");
    tree.directory("ws/directory");
    tree.haft(&["output", &handle, "-o", "directory"]).output().expect_code(42);
    tree.haft(&["output", &handle, "-o", "none/picture.png"]).output().expect_code(42);
    tree.haft(&["output", &handle, "--raw", "stats"]).output().expect_code(2);
}

#[test]
fn invalid_handle_gives_the_same_error_as_an_expired_one() {
    let tree = tree();
    let mut session = OutputCallSession::start(&tree);
    let name = "00000000-0000-4000-8000-000000000000";
    let kept = handle_in(&session.said("bash", &json!({"command": "seq 1 20000"})));
    let (mine, _) = kept.split_once('/').unwrap();
    for handle in [
        "..",
        "session-../../haft.json",
        &format!("{mine}/.."),
        &format!("{mine}/../../accounting.jsonl"),
        &format!("{kept}\0"),
        &format!("{kept}.part"),
        &format!("{mine}/{name}"),
        &format!("session-{name}/{name}"),
        &"x".repeat(100_000),
    ] {
        let answer = session.call("tool_output", &json!({"handle": handle}));
        let text = answer["content"].as_str().unwrap();
        assert!(
            text.starts_with("no stored output has this handle; it may have expired: ") && text.len() < 300,
            "{text}"
        );
        assert_eq!(answer["error_kind"], "failed");
    }
    assert_eq!(session.call("tool_output", &json!({"handle": ""}))["error_kind"], "invalid_arguments");
}

#[test]
fn full_disk_loses_only_the_truncated_output() {
    let tree = tree();
    // Limits files to 64 KiB. The signal is ignored, so that a longer write fails as on a full disk and does not kill
    // the writer.
    let full = ["bash", "-c", r#"trap '' XFSZ; ulimit -S -f 64; exec "$0" "$@""#];
    tree.file("ws/long", &numbers(20_000));
    let calls = [
        json!({"id": 1, "tool": "bash", "args": {"command": "seq 1 20000"}}),
        json!({"id": 2, "tool": "read", "args": {"file_path": "long"}}),
        json!({"id": 3, "tool": "current_date", "args": {}}),
    ];
    let lines: String = calls.map(|call| format!("{call}\n")).concat();
    let ran =
        tree.haft(&["call", "--stdin", "--jobs", "1"]).through(&full).stdin(lines).output().expect_code(0);
    let answers: Vec<Value> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (answer, shown) in answers.iter().zip(["first 30000)", "first 50000)"]) {
        assert_eq!(answer["is_error"], false, "{answer}");
        assert!(answer["content"].as_str().unwrap().ends_with(shown), "{answer}");
    }
    assert_eq!(answers[2]["is_error"], false);
    let left: Vec<_> = std::fs::read_dir(tree.path("home/data/outputs")).unwrap().flatten().collect();
    assert!(
        left.iter().all(|session| std::fs::read_dir(session.path()).unwrap().next().is_none()),
        "{left:?}"
    );
    let ran = tree.haft(&["call", "--json", "bash", r#"{"command":"seq 1 20000"}"#]).through(&full).output();
    assert!(
        ran.stdout.contains("the output store failed: File too large"),
        "the receipt says why: {}",
        ran.stdout
    );
}

#[test]
fn unusable_output_store_fails_at_start() {
    let tree = tree();
    tree.file("home/data/outputs", "");
    let ran = tree.haft(&["call", "current_date"]).output().expect_code(1);
    assert!(
        ran.stderr.contains("haft cannot open the store of tool outputs") && ran.stderr.contains("hint: "),
        "{}",
        ran.stderr
    );
}

#[test]
fn concurrent_processes_share_one_output_store() {
    let tree = tree();
    let runs: Vec<Child> =
        (0..6).map(|_| tree.haft(&["call", "bash", r#"{"command":"seq 1 20000"}"#]).start()).collect();
    for run in runs {
        let output = run.wait_with_output().unwrap();
        let handle = handle_in(&String::from_utf8_lossy(&output.stdout));
        assert_eq!(
            tree.haft(&["output", &handle, "last", "1", "lines"]).output().expect_code(0).stdout,
            "20000\n"
        );
    }
}

/// Returns the part of a sentence with the numbers of lines and tokens.
fn counts<'a>(text: &'a str, nouns: [&str; 2]) -> Vec<&'a str> {
    let words: Vec<&str> = text.split([',', ';', '(', ')']).map(str::trim).collect();
    words.into_iter().filter(|part| nouns.iter().any(|noun| part.ends_with(noun))).collect()
}

#[test]
fn notice_and_stats_count_the_same_lines_and_tokens() {
    let tree = tree();
    for command in ["seq 1 20000", "printf 'ein Wört %.0s' $(seq 1 9000)", "seq 1 20000 | tr '\\n' '\\r'"] {
        let mut session = OutputCallSession::start(&tree);
        let notice = session.said("bash", &json!({"command": command}));
        let handle = handle_in(&notice);
        let line = notice.lines().find(|line| line.contains("is stored (")).unwrap();
        let stats = tree.haft(&["output", &handle, "stats"]).output().expect_code(0).stdout;
        let nouns = [" line", " lines"];
        let lines: Vec<&str> =
            counts(&stats, nouns).into_iter().filter(|part| !part.starts_with("longest")).collect();
        assert_eq!(counts(line, nouns), lines, "{command}: {line}\n{stats}");
        let tokens = [" tokens", " token"];
        assert_eq!(counts(line, tokens), counts(stats.trim(), tokens), "{command}: {line}\n{stats}");
        let told = session.said("tool_output", &json!({"handle": handle, "extract": "stats"}));
        assert!(told.contains(stats.trim()), "{told}\n{stats}");
    }
}

#[test]
fn tools_tokens_prints_token_count_per_definition() {
    let tree = tree();
    let table = tree.haft(&["tools", "--tokens"]).output().expect_code(0).stdout;
    // Skip the tool name, which is the first word of a line. The number follows the word `about`.
    let cost =
        |line: &str| line.split_whitespace().skip(1).find_map(|word| word.parse::<u64>().ok()).unwrap();
    let (sum, rows) = table
        .lines()
        .skip(1)
        .map(|line| (line, cost(line)))
        .collect::<Vec<_>>()
        .split_last()
        .map(|(last, rows)| (*last, rows.to_vec()))
        .unwrap();
    assert!(sum.0.starts_with("sum "), "{table}");
    assert_eq!(sum.1, rows.iter().map(|row| row.1).sum::<u64>());
    assert!(rows.iter().all(|row| (30..1_000).contains(&row.1)), "{table}");
    let json = tree.haft(&["tools", "--tokens", "--json"]).output().expect_code(0).stdout;
    let json: Vec<Value> = serde_json::from_str(&json).unwrap();
    assert_eq!(json.iter().map(|tool| tool["tokens"].as_u64().unwrap()).sum::<u64>(), sum.1);
    let plain = tree.haft(&["tools", "--json"]).output().expect_code(0).stdout;
    assert!(!plain.contains("\"tokens\""));
}

#[test]
fn tool_output_tool_is_offered_to_every_run_that_stores_outputs() {
    let tree = tree();
    let store = Arc::new(FileStore::open(&tree.path("home/data/outputs"), StoreLimits::default()).unwrap());
    let home = Home::at(&tree.path("home"));
    let orchestrator = wiring::orchestrator(ToolSettings {
        policy: SandboxPolicy::new(SandboxMode::Workspace, &tree.path("ws"), &home, None).unwrap(),
        timeout: None,
        config: haft_config::defaults().unwrap(),
    });
    let outputs = Some(store as Arc<dyn OutputStore>);
    let run = RunContext { outputs, ..RunContext::default() };
    let is_shown = |run: &RunContext| {
        let shown = orchestrator.tools(&haft_engine::ToolFilter::default(), run);
        shown.iter().any(|tool| tool.entry.exposed().as_str() == "tool_output")
    };
    assert!(is_shown(&run), "the list has `tool_output` from the start, because it must not change");
    assert!(!is_shown(&RunContext::default()));
    assert!(
        orchestrator.catalog().resolve("tool_output").is_ok(),
        "the catalog has `tool_output` even if a run does not list it"
    );
}
