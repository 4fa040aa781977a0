//! Tests of `haft run` in a terminal of eighty columns: the final screen, and the screens before it.

use haft_model_server::{
    ErrorResponse, ModelServer, RequestExpectation, ResponsePace, Script, ScriptPart, ScriptStep,
};
use haft_testkit::{TerminalRun, TestTree};
use serde_json::json;

use super::call::here;
use super::run::{haft, server};

const ANSWER: &str = "\
# Found it

The build is **red** because `tests/a.rs` says *no*:

```text
assert **left** == right
```

- one test fails
- the others pass
";

const SCREEN: &str = "\
Let me look.
✓ bash sleep 0.7; echo red TIME, 4 bytes
✗ write /etc/haft TIME, denied: /etc/haft is a protected path
Found it

The build is red because tests/a.rs says no:

```text
assert **left** == right
```

• one test fails
• the others pass
2 turns, 2 calls (1 denied), 20 tokens read, 10 written, TIME";

/// Returns the whole output to the terminal, which `script` provides.
fn typescript(tree: &TestTree, words: &str, steps: impl IntoIterator<Item = ScriptStep>) -> Vec<u8> {
    typed(tree, &server(steps), &format!("run -m openai/m {words} go"))
}

fn typed(tree: &TestTree, server: &ModelServer, words: &str) -> Vec<u8> {
    let script = format!(r#"script -qec "stty cols 80 rows 24; $0 {words}" typescript"#);
    let run = haft(tree, server, &[]).env("TERM", "xterm").through(&["bash", "-c", &script]);
    run.output().expect_code(0);
    let written = std::fs::read(tree.root().join("ws/typescript")).unwrap();
    // `script` adds a first and a last line.
    let begin = written.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let last = b"\nScript done on";
    let end = written.windows(last.len()).rposition(|window| window == last).unwrap();
    written[begin..end].to_vec()
}

fn steps() -> [ScriptStep; 2] {
    let calls = [
        ScriptPart::Text("Let me look.".into()),
        ScriptPart::call("bash", json!({"command": "sleep 0.7; echo red"})),
        ScriptPart::call("write", json!({"file_path": "/etc/haft", "content": "x"})),
    ];
    [ScriptStep::say(calls), ScriptStep::text(ANSWER)]
}

fn screen(written: &[u8]) -> vt100::Parser {
    let mut terminal = vt100::Parser::new(24, 80, 0);
    terminal.process(written);
    terminal
}

/// Returns the text of the screen with durations masked, because they differ between runs.
fn text(terminal: &vt100::Parser) -> String {
    let times = regex::Regex::new(r"[0-9.]+ (ms|s|µs)\b").unwrap();
    times.replace_all(&terminal.screen().contents(), "TIME").trim_end().to_owned()
}

#[test]
fn finished_run_shows_calls_answer_and_cost() {
    let written = typescript(&here(), "", steps());
    let terminal = screen(&written);
    assert_eq!(text(&terminal), SCREEN);
    // Bold, italic and colour are in the right cells.
    let cell_of = |word: &str| {
        let contents = terminal.screen().contents();
        let (row, line) = contents.lines().enumerate().find(|(_, line)| line.contains(word)).unwrap();
        let column = line[..line.find(word).unwrap()].chars().count();
        terminal.screen().cell(row.try_into().unwrap(), column.try_into().unwrap()).unwrap().clone()
    };
    assert!(cell_of("Found").bold());
    assert!(cell_of("red because").bold());
    assert!(cell_of("no:").italic());
    assert!(!cell_of("**left**").bold());
    assert_eq!(cell_of("✓").fgcolor(), vt100::Color::Idx(2));
    assert_eq!(cell_of("✗").fgcolor(), vt100::Color::Idx(1));
}

#[test]
fn running_call_has_a_progress_line() {
    let written = typescript(&here(), "", steps());
    let moving = b"bash sleep 0.7; echo red";
    let at = written.windows(moving.len()).position(|window| window == moving).unwrap();
    let seen = text(&screen(&written[..at + moving.len()]));
    assert!(seen.starts_with("Let me look.\n"), "{seen}");
    assert!(seen.lines().last().unwrap().contains("bash sleep"), "{seen}");
}

/// If the line wrapped, haft could clear only its last row.
#[test]
fn progress_line_is_no_wider_than_the_terminal() {
    let command = format!("sleep 0.5; echo {}", "word ".repeat(20));
    let steps = [ScriptStep::call("bash", json!({ "command": command })), ScriptStep::text("done")];
    let written = typescript(&here(), "--override budget.calls=9", steps);
    let seen = text(&screen(&written));
    assert!(seen.starts_with("✓ bash sleep 0.5; echo word"), "{seen}");
    assert_eq!(seen.lines().count(), 3, "{seen}");
    let spent = b" of the budget";
    assert!(written.windows(spent.len()).any(|window| window == spent), "{seen}");
}

/// haft shows neither a draft nor an unfinished report as the answer.
#[test]
fn only_the_last_agent_of_a_handoff_is_printed() {
    let tree = here();
    tree.file("ws/writer.md", "---\nhandoff: editor.md\n---\n");
    tree.file("ws/editor.md", "");
    let drafted = Script::of([ScriptStep::text("a draft")])
        .about("The request was", [ScriptStep::text("It is *edited*.")]);
    let drafted = ModelServer::start(drafted).unwrap();
    let seen = |server: &ModelServer, words: &str| text(&screen(&typed(&tree, server, words)));
    let heard = "It is edited.\n1 turn, 0 calls, 20 tokens read, 10 written, TIME";
    assert_eq!(seen(&drafted, "run -m openai/m --record r.jsonl @writer.md go"), heard);
    assert_eq!(seen(&drafted, "replay r.jsonl"), heard);
    // The router replies in plain text, and the agent that receives the request submits a report.
    tree.file("ws/router.md", "---\nrouter: {destinations: [clerk.md]}\n---\n");
    tree.file("ws/clerk.md", "---\noutput: {format: markdown}\n---\nYou are the clerk.\n");
    let report = json!({"status": "success", "format": "markdown", "content": "It is **filed**."});
    let for_clerk =
        RequestExpectation { system: Some("You are the clerk.".into()), ..RequestExpectation::default() };
    let file = [ScriptPart::Text("I file it.".into()), ScriptPart::call("agent__final_report", report)];
    let routed =
        Script::of([ScriptStep::call("router__handoff-to", json!({"agent": "clerk", "message": "FILE"}))])
            .about("FILE", [ScriptStep::say(file).expecting(for_clerk)]);
    let shown = seen(&ModelServer::start(routed).unwrap(), "run -m openai/m @router.md go");
    assert!(shown.starts_with("It is filed.\n"), "{shown}");
}

/// A report is as untrusted as any other text of a model.
#[test]
fn report_is_rendered_by_format_without_escapes() {
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2J";
    let seen = |format: &str, content: serde_json::Value, words: &str| {
        let field = if content.is_string() { "content" } else { "content_json" };
        let report = json!({"status": "success", "format": format, field: content});
        let words = format!("--override output.format={format} {words}");
        let written = typescript(&here(), &words, [ScriptStep::call("agent__final_report", report)]);
        assert!(!written.windows(4).any(|window| window == b"\x1b]0;"), "{format}");
        (text(&screen(&written)), String::from_utf8_lossy(&written).into_owned())
    };
    let (shown, written) = seen("markdown", json!(format!("{evil}It is **red**.")), "");
    assert!(
        shown.starts_with("]0;owned[2JIt is red.\n") && written.contains("\u{1b}[1m"),
        "{shown} {written:?}"
    );
    let (shown, _) = seen("sub-agent", json!(format!("{evil}**red**")), "--no-color");
    assert!(shown.starts_with("]0;owned[2J**red**\n"), "{shown}");
    let (shown, _) = seen("json", json!({"a": "**b** \u{9b}2J"}), "");
    assert!(shown.starts_with(r#"{"a":"**b** 2J"}"#), "{shown}");
    let red = json!("\u{1b}[31mred\u{1b}[0m");
    let (shown, written) = seen("tty", red.clone(), "");
    assert!(shown.starts_with("red\n") && written.contains("\u{1b}[31mred"), "{shown}");
    let (shown, written) = seen("tty", red, "--no-color");
    assert!(shown.starts_with("red\n") && !written.contains("\u{1b}[31m"), "{shown}");
}

#[test]
fn no_color_prints_markdown_marks_unchanged() {
    let terminal = screen(&typescript(&here(), "--no-color", steps()));
    let seen = text(&terminal);
    assert!(seen.contains(ANSWER.trim_end()), "{seen}");
    assert!(!terminal.screen().contents_formatted().windows(4).any(|window| window == b"\x1b[32"));
}

/// U+202E shows the text after it from right to left, so that a user reads another command than the one that runs.
#[test]
fn no_bidirectional_control_reaches_the_terminal() {
    let evil = "\u{202e}\u{2066}fr mr\u{2069}\u{200f}";
    let found = |written: &[u8]| {
        String::from_utf8_lossy(written)
            .chars()
            .any(|c| matches!(c, '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
    };
    let tree = here();
    let calls = [
        ScriptPart::Text(format!("Look: {evil}")),
        ScriptPart::call("bash", json!({"command": format!("echo {evil}")})),
        ScriptPart::call(&format!("no_{evil}_tool"), json!({})),
    ];
    let written =
        typescript(&tree, "", [ScriptStep::say(calls), ScriptStep::text(&format!("# {evil} done"))]);
    assert!(String::from_utf8_lossy(&written).contains("fr mr done") && !found(&written), "{written:?}");
    for words in ["tools --group x\u{202e}y", "call bash '{\"command\":\"printf x\u{202e}y\"}'"] {
        let quoted = words.replace('"', "\\\"");
        let script = format!(r#"script -qec "$0 {quoted}" typescript; true"#);
        haft(&tree, &server([]), &[]).env("TERM", "xterm").through(&["bash", "-c", &script]).output();
        let written = std::fs::read(tree.root().join("ws/typescript")).unwrap();
        // The first line is the command, which `script` repeats.
        let begin = written.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let shown = String::from_utf8_lossy(&written[begin..]).into_owned();
        assert!(shown.contains("xy") && !found(&written[begin..written.len()]), "{words}: {shown:?}");
    }
}

fn on_terminal(tree: &TestTree, server: &ModelServer) -> TerminalRun {
    haft(tree, server, &["run", "-m", "openai/m", "go"]).on_terminal()
}

#[test]
fn wait_for_the_model_shows_a_moving_line() {
    let tree = here();
    let slow = ResponsePace { first_byte_milliseconds: 1500, ..ResponsePace::default() };
    let server = server([ScriptStep::text("Hello there.").at_pace(slow)]);
    let mut run = on_terminal(&tree, &server);
    run.wait_for("waiting for openai/m");
    let written = run.finish().expect_code(0).stdout;
    let seen = text(&screen(written.as_bytes()));
    assert_eq!(seen, "Hello there.\n1 turn, 0 calls, 10 tokens read, 5 written, TIME");
}

#[test]
fn retry_line_states_the_reason_and_the_delay() {
    let tree = here();
    let server =
        server([ScriptStep::fail(ErrorResponse::new(503, "busy")), ScriptStep::text("Hello there.")]);
    let mut run = on_terminal(&tree, &server);
    run.wait_for("next attempt in");
    let seen = text(&screen(run.finish().expect_code(0).stdout.as_bytes()));
    let first = seen.lines().next().unwrap();
    assert!(first.starts_with("! openai/m: ") && first.contains("next attempt in"), "{seen}");
    let piped = haft(&tree, &server, &["run", "-q", "-m", "openai/m", "go"]).output();
    assert!(!piped.stderr.contains("next attempt"), "{}", piped.stderr);
}

#[test]
fn long_call_shows_its_newest_line_of_output() {
    let tree = here();
    let wait = "echo step one; until test -e go; do sleep 0.05; done; echo step two";
    let server = server([ScriptStep::call("bash", json!({ "command": wait })), ScriptStep::text("done")]);
    let mut run = on_terminal(&tree, &server);
    run.wait_for("│ step one");
    tree.file("ws/go", "");
    let seen = text(&screen(run.finish().expect_code(0).stdout.as_bytes()));
    assert!(
        !seen.contains("step one\n") && !seen.contains('│'),
        "only the status line shows the output: {seen}"
    );
}

#[test]
fn interrupt_shows_the_partial_output_and_leaves_clean_lines() {
    let tree = here();
    let wait = "echo half done; sleep 300";
    let server = server([ScriptStep::call("bash", json!({ "command": wait })), ScriptStep::text("done")]);
    let mut run = on_terminal(&tree, &server);
    run.wait_for("│ half done");
    run.type_keys("\x03");
    let shown = run.finish().expect_code(130).stdout;
    let seen = text(&screen(shown.as_bytes()));
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[..2], ["✗ bash echo half done; sleep 300 TIME, interrupted", "  half done"], "{seen}");
    assert!(
        seen.contains("the run is stored with 1 turn and 1 call; `haft resume last` continues it"),
        "{seen}"
    );
    assert!(!seen.contains("^C"), "{seen}");
}

#[test]
fn hint_about_a_sandbox_refusal_is_printed_once() {
    let tree = here();
    let file = tree.path("outside/x");
    let write = || ScriptStep::call("write", json!({"file_path": file, "content": ""}));
    let fetch =
        ScriptStep::call("bash", json!({"command": "echo 'Could not resolve host: example.org'; exit 6"}));
    let server = server([write(), write(), fetch, ScriptStep::text("done")]);
    let ran = haft(&tree, &server, &["run", "-m", "openai/m", "go"]).output().expect_code(0);
    let count = |words: &str| ran.stderr.matches(words).count();
    assert_eq!(
        (count("hint: the sandbox refused a write; --writable DIR"), count("--network allow")),
        (1, 1),
        "{}",
        ran.stderr
    );
    let open =
        haft(&tree, &server, &["call", "bash", r#"{"command": "echo Network is unreachable; exit 1"}"#]);
    let open = open.output().expect_code(3);
    assert!(
        open.stderr.contains("hint: commands have no network access; --network allow enables it"),
        "{}",
        open.stderr
    );
}

#[test]
fn start_of_a_run_names_the_servers_that_it_waits_for() {
    let tree = here();
    let command = json!({"command": "bash", "args": ["-c", "until test -e go; do sleep 0.05; done"], "startup": "required"});
    tree.file("home/haft.json", &json!({"mcpServers": {"downloads": command}}).to_string());
    let server = server([ScriptStep::text("done")]);
    let mut run = on_terminal(&tree, &server);
    run.wait_for("preparing tools: downloads");
    tree.file("ws/go", "");
    run.finish();
}

#[test]
fn reasoning_model_is_shown_as_thinking() {
    let tree = here();
    let slow = ResponsePace { between_milliseconds: 300, ..ResponsePace::default() };
    let steps = ScriptStep::say([
        ScriptPart::reasoning("Let me see.", "sig"),
        ScriptPart::Text("Hello there.".into()),
    ]);
    let server = server([steps.at_pace(slow)]);
    let mut run = haft(
        &tree,
        &server,
        &["run", "-m", "anthropic/claude-sonnet-4-5", "--override", "reasoning=low", "go"],
    )
    .on_terminal();
    run.wait_for("claude-sonnet-4-5 is thinking");
    run.finish().expect_code(0);
}

#[test]
fn table_in_an_answer_is_aligned_for_the_terminal() {
    let tree = here();
    let table = "| name | meaning |\n|---|---|\n| one | reads a whole text file or an image for the model that asked for it |\n";
    let server = server([ScriptStep::text(table)]);
    let run = haft(&tree, &server, &["run", "-q", "-m", "openai/m", "go"]).on_terminal_with(60, "");
    let written = run.finish().expect_code(0).stdout;
    let mut terminal = vt100::Parser::new(20, 60, 0);
    terminal.process(written.as_bytes());
    let seen = terminal.screen().contents();
    assert!(seen.contains("one  │ reads a whole text file or an image for the model\n"), "{seen}");
    assert!(seen.contains("     │ that asked for it"), "{seen}");
}
