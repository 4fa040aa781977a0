//! Tests of `haft call --stdin`: many calls through one process, each answered independently of the others.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use haft_testkit::{TestTree, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::call::here;

/// A stream of calls that stays open, for tests in which one event must happen before another.
pub(super) struct StdinCallStream {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
}

impl StdinCallStream {
    pub(super) fn start(tree: &TestTree, flags: &[&str]) -> Self {
        let mut child = tree.haft(&[&["call", "--stdin"], flags].concat()).start();
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Self { child, input, output }
    }

    pub(super) fn send(&mut self, id: u64, tool: &str, args: &Value) {
        let line = json!({ "id": id, "tool": tool, "args": args });
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn send_bash(&mut self, id: u64, command: &str) {
        self.send(id, "bash", &json!({ "command": command }));
    }

    /// Waits for the next result.
    pub(super) fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.as_mut().unwrap().read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn end_input(&mut self) {
        self.input = None;
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    #[track_caller]
    fn expect_end(mut self, code: i32) {
        let mut ended = None;
        eventually("haft ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!(ended.and_then(|status| status.code()), Some(code));
    }
}

/// Kills haft, so that a failing test leaves no process behind.
impl Drop for StdinCallStream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends the whole input at once, expects success, and returns all results in the order of their arrival.
#[track_caller]
pub(super) fn answers(tree: &TestTree, flags: &[&str], input: impl Into<Vec<u8>>) -> Vec<Value> {
    let ran = tree.haft(&[&["call", "--stdin"], flags].concat()).stdin(input).output().expect_code(0);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lines(calls: impl IntoIterator<Item = Value>) -> String {
    calls.into_iter().map(|call| format!("{call}\n")).collect::<Vec<_>>().concat()
}

fn bash(id: u64, command: &str) -> Value {
    json!({ "id": id, "tool": "bash", "args": { "command": command } })
}

fn by_id(answers: &[Value], id: u64) -> &Value {
    answers.iter().find(|answer| answer["id"] == id).unwrap()
}

/// Returns a shell command that waits in the sandbox for a file that another process creates.
fn wait_for(name: &str) -> String {
    format!("until [ -e {name} ]; do sleep 0.02; done")
}

#[test]
fn call_ids_are_echoed_verbatim() {
    let tree = here();
    for id in [
        "1",
        "-7",
        "1.50",
        "123456789012345678901234567890",
        "\"text ä\"",
        "null",
        "true",
        "[1,[2]]",
        "{\"b\":1,\"a\":{}}",
    ] {
        let ran = tree
            .haft(&["call", "--stdin"])
            .stdin(format!("{{\"id\":{id},\"tool\":\"current_date\"}}"))
            .output();
        let answer = ran.expect_code(0).stdout;
        assert!(answer.starts_with(&format!("{{\"id\":{id},\"content\":")), "{answer}");
    }
    assert_eq!(answers(&tree, &[], "{\"tool\":\"current_date\"}\n")[0]["id"], Value::Null);
}

#[test]
fn each_result_line_of_a_stream_has_exactly_five_keys() {
    let calls = lines([bash(1, "echo ok"), bash(2, "exit 3"), json!({ "id": 3, "tool": "nosuch" })]);
    let answers = answers(&here(), &[], calls + "broken\n");
    assert_eq!(answers.len(), 4);
    for answer in &answers {
        let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["content", "error_kind", "id", "is_error", "latency_ms"], "{answer}");
        assert!(answer["latency_ms"].is_u64());
        assert_eq!(answer["is_error"], !answer["error_kind"].is_null());
    }
    let check = |id: u64, kind: Value, content: &str| {
        let answer = by_id(&answers, id);
        assert_eq!((&answer["error_kind"], &answer["content"]), (&kind, &json!(content)));
    };
    check(1, Value::Null, "ok\n");
    check(2, json!("failed"), "(exit code: 3)");
    check(3, json!("unknown_tool"), "Unknown tool: nosuch");
}

#[test]
fn invalid_line_gets_an_error_and_the_stream_continues() {
    let deep = "[".repeat(1_000_000);
    let check = |line: &[u8], id: Value, fragment: &str| {
        let good = br#"{"id":"good","tool":"current_date","args":{}}"#.as_slice();
        let input = [line, good].join(&b'\n');
        let answers = answers(&here(), &["--jobs", "1"], input);
        let shown = String::from_utf8_lossy(&line[..line.len().min(80)]).into_owned();
        assert_eq!(answers.len(), 2, "{shown}");
        assert_eq!(answers[0]["id"], id, "{shown}");
        assert_eq!(answers[0]["error_kind"], "invalid_arguments", "{shown}");
        let content = answers[0]["content"].as_str().unwrap();
        assert!(content.contains(fragment) && content.len() < 1000, "{shown}: {content}");
        assert_eq!(answers[1]["id"], "good", "{shown}");
        assert_eq!(answers[1]["is_error"], false, "{shown}");
    };
    check(b"nonsense", Value::Null, "not a tool call");
    check(b"{\"id\":1,\"tool\":\"bash\"", Value::Null, "not a tool call");
    check(b"[1,\"current_date\",{}]", Value::Null, "not a JSON object");
    check(b"\"text\"", Value::Null, "not a JSON object");
    check(br#"{"id":1}"#, json!(1), "missing field `tool`");
    check(br#"{"id":"a","tool":"current_date","extra":1}"#, json!("a"), "unknown field `extra`");
    check(br#"{"id":2,"tool":7}"#, json!(2), "expected a string");
    check(br#"{"id":3,"tool":"current_date","args":[1]}"#, json!(3), "must be a JSON object; got an array");
    check(
        br#"{"id":4,"tool":"bash","args":{"command":5}}"#,
        json!(4),
        "'command' must be string; got number 5",
    );
    check(b"{\"id\":5,\"tool\":\"bash\",\"args\":{\"command\":\"\xff\"}}", json!(5), "not a tool call");
    let nested = format!("{{\"id\":6,\"tool\":\"bash\",\"args\":{deep}{}}}", "]".repeat(1_000_000));
    check(nested.as_bytes(), json!(6), "nest too deep");
    check(format!("{{\"id\":7,\"tool\":\"bash\",\"args\":{deep}").as_bytes(), Value::Null, "not a tool call");
    let long = json!({ "id": 8, "tool": "bash", "args": { "command": "x".repeat(9 << 20) } });
    check(long.to_string().as_bytes(), Value::Null, "bytes; the limit is");
}

#[test]
fn all_line_endings_are_accepted() {
    let date = |id: u64| json!({ "id": id, "tool": "current_date" }).to_string();
    let input = format!("\n  \n{}\r\n\r\n{}\n\n{}", date(1), date(2), date(3));
    let mut ids: Vec<u64> =
        answers(&here(), &[], input).iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
    assert!(answers(&here(), &[], "").is_empty());
}

#[test]
fn jobs_1_runs_calls_sequentially() {
    let tree = here();
    let calls =
        (0..6).map(|id| bash(id, &format!("echo start {id} >> log; sleep 0.02; echo end {id} >> log")));
    answers(&tree, &["--jobs", "1"], lines(calls));
    let expected = (0..6).map(|id| format!("start {id}\nend {id}\n")).collect::<Vec<_>>().concat();
    assert_eq!(tree.text("ws/log"), expected);
}

/// Each call waits for all other calls: with one job fewer, the first call would wait until its timeout.
#[test]
fn jobs_8_runs_eight_calls_concurrently() {
    let tree = here();
    let command = |id: u64| {
        let others: Vec<String> = (0..8).map(|other| wait_for(&format!("here-{other}"))).collect();
        format!("touch here-{id}; {}; echo met", others.join("; "))
    };
    let answers =
        answers(&tree, &["--jobs", "8", "--timeout", "20s"], lines((0..8).map(|id| bash(id, &command(id)))));
    assert_eq!(answers.len(), 8);
    assert!(answers.iter().all(|answer| answer["content"] == "met\n"), "{answers:?}");
}

#[test]
fn ordered_read_waits_for_the_preceding_write() {
    let tree = here();
    let mut stream = StdinCallStream::start(&tree, &["--ordered"]);
    stream.send_bash(1, &format!("touch started; {}; echo changed > file", wait_for("go")));
    stream.send(2, "read", &json!({ "file_path": "file" }));
    eventually("the change runs", || tree.exists("ws/started"));
    tree.file("ws/go", "");
    let (first, second) = (stream.answer(), stream.answer());
    assert_eq!((&first["id"], &second["id"]), (&json!(1), &json!(2)));
    assert_eq!(second["content"], "changed\n");
    stream.end_input();
    stream.expect_end(0);
}

#[test]
fn ordered_reads_run_concurrently() {
    let tree = here();
    for number in 0..400 {
        tree.file(&format!("ws/src/{number}.txt"), "some text\n");
    }
    let mut stream = StdinCallStream::start(&tree, &["--ordered"]);
    // Starting a confined worker and visiting a tree takes long; returning the date does not.
    stream.send(1, "introspect", &json!({ "level": "all" }));
    stream.send(2, "current_date", &json!({}));
    stream.send(3, "write", &json!({ "file_path": "after", "content": "" }));
    let ids: Vec<Value> = (0..3).map(|_| stream.answer()["id"].clone()).collect();
    assert_eq!(ids, [2, 1, 3]);
    stream.end_input();
    stream.expect_end(0);
}

#[test]
fn stream_results_are_printed_in_the_order_of_completion() {
    let tree = here();
    let mut stream = StdinCallStream::start(&tree, &[]);
    stream.send_bash(1, &wait_for("go"));
    stream.send_bash(2, "echo quick");
    assert_eq!(stream.answer()["id"], 2);
    tree.file("ws/go", "");
    assert_eq!(stream.answer()["id"], 1);
    stream.end_input();
    stream.expect_end(0);
}

#[test]
fn each_of_500_streamed_calls_gets_its_result() {
    let tree = here();
    for number in 0..50 {
        tree.file(&format!("ws/{number}.txt"), &format!("file {number}"));
    }
    let calls = (0..500)
        .map(|id| json!({ "id": id, "tool": "read", "args": { "file_path": format!("{}.txt", id % 50) } }));
    let answers = answers(&tree, &["--jobs", "8"], lines(calls));
    assert_eq!(answers.len(), 500);
    for id in 0..500 {
        assert_eq!(by_id(&answers, id)["content"], format!("file {}", id % 50));
    }
}

#[test]
fn failed_or_hanging_call_does_not_affect_others() {
    let calls = [
        bash(1, "echo waiting; sleep 60"),
        bash(2, "false"),
        json!({ "id": 3, "tool": "nosuch" }),
        bash(4, "echo ok"),
    ];
    let answers = answers(&here(), &["--timeout", "1s"], lines(calls));
    let check = |id: u64, kind: Value, content: &str| {
        let answer = by_id(&answers, id);
        assert_eq!((&answer["error_kind"], &answer["content"]), (&kind, &json!(content)));
    };
    check(1, json!("timeout"), "Command timed out after 1 s\nwaiting\n");
    check(2, json!("failed"), "(exit code: 1)");
    check(3, json!("unknown_tool"), "Unknown tool: nosuch");
    check(4, Value::Null, "ok\n");
}

#[test]
fn end_of_input_waits_for_running_calls() {
    let tree = here();
    let mut stream = StdinCallStream::start(&tree, &[]);
    stream.send_bash(1, &format!("touch started; {}; echo drained", wait_for("go")));
    stream.end_input();
    eventually("the call runs", || tree.exists("ws/started"));
    tree.file("ws/go", "");
    assert_eq!(stream.answer()["content"], "drained\n");
    stream.expect_end(0);
}

#[test]
fn verbose_logs_every_call_of_a_stream() {
    let tree = here();
    let ran = tree.haft(&["call", "--stdin", "-v"]).stdin(lines([bash(1, "true"), bash(2, "true")])).output();
    assert_eq!(ran.expect_code(0).stderr.matches("← builtin builtin:bash [").count(), 2);
}

#[test]
fn signals_end_the_stream_with_their_exit_codes() {
    let check = |signal: Signal, code: i32| {
        let tree = here();
        let mut stream = StdinCallStream::start(&tree, &[]);
        stream.send_bash(1, "touch started; sleep 60; touch survived");
        eventually("the call runs", || tree.exists("ws/started"));
        stream.signal(signal);
        stream.expect_end(code);
        assert!(!tree.exists("ws/survived"));
    };
    check(Signal::INT, 130);
    check(Signal::TERM, 143);
}

/// A writer that blocks on a full pipe must still handle a signal.
#[test]
fn interrupt_works_while_stdout_is_blocked() {
    const PIPE_BYTES: u64 = 64 << 10;
    let tree = here();
    let mut stream = StdinCallStream::start(&tree, &["--jobs", "1"]);
    let line = json!({ "tool": "current_date", "args": {} });
    let mut input = stream.input.take().unwrap();
    let feeder = std::thread::spawn(move || while writeln!(input, "{line}").is_ok() {});
    let pipe = stream.output.as_ref().unwrap();
    // The kernel does not split a line over two pages of the pipe. A part of each page stays free, so a full pipe
    // contains fewer than `PIPE_BYTES` bytes.
    eventually("the pipe is full", || {
        rustix::io::ioctl_fionread(pipe.get_ref()).unwrap() + 4096 > PIPE_BYTES
    });
    stream.signal(Signal::INT);
    stream.expect_end(130);
    feeder.join().unwrap();
}

#[test]
fn closed_stdout_ends_the_stream() {
    let tree = here();
    let mut stream = StdinCallStream::start(&tree, &[]);
    stream.send_bash(1, "touch started; sleep 60");
    eventually("the call runs", || tree.exists("ws/started"));
    stream.output = None;
    stream.expect_end(141);
}

#[test]
fn unreadable_stdin_exits_with_1() {
    let tree = here();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_haft"));
    command.args(["call", "--stdin"]).env("HAFT_HOME", tree.path("home")).current_dir(tree.path("ws"));
    let output = command.stdin(fs::File::open(tree.root()).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("error: haft cannot read standard input: "));
}

/// Users often move a project away and clone it again while an editor keeps haft running.
#[test]
fn workspace_replaced_during_a_stream_stays_writable() {
    let tree = here();
    let workspace = tree.path("ws");
    let mut stream = StdinCallStream::start(&tree, &["--workspace", workspace.to_str().unwrap()]);
    for round in ["first", "second"] {
        let args = json!({"file_path": workspace.join("note"), "content": round});
        stream.send(1, "write", &args);
        let answer = stream.answer();
        assert_eq!(answer["is_error"], json!(false), "{answer}");
        assert_eq!(tree.text("ws/note"), round);
        fs::rename(&workspace, tree.path("old").with_extension(round)).unwrap();
        tree.directory("ws");
    }
    stream.end_input();
    stream.expect_end(0);
}

/// A file that is created later next to a secret is an ordinary file.
#[test]
fn file_created_next_to_a_secret_can_be_read() {
    let tree = here();
    tree.file("user/.netrc", "secret");
    let mut stream = StdinCallStream::start(&tree, &[]);
    for name in ["user/first", "user/second"] {
        tree.file(name, "plain");
        stream.send(1, "read", &json!({"file_path": tree.path(name)}));
        let answer = stream.answer();
        assert!(answer["content"].as_str().unwrap().contains("plain"), "{answer}");
    }
    stream.end_input();
    stream.expect_end(0);
}
