//! Tests of standard input together with a request.

use haft_model_server::{ModelServer, RequestExpectation, ScriptStep};
use haft_testkit::{HaftCommand, TestTree};
use serde_json::json;

use super::call::here;
use super::run::{haft, server};

fn user(text: &str) -> RequestExpectation {
    RequestExpectation { user: Some(text.into()), ..RequestExpectation::default() }
}

fn run(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftCommand {
    haft(tree, server, &[&["run", "-q", "-m", "openai/m"], words].concat())
}

const FRAMED: &str =
    "Review\n\nText that the user piped in with this request, 10 bytes:\n<stdin>\n+new line\n</stdin>";

#[test]
fn piped_input_is_added_to_the_request() {
    let tree = here();
    let server =
        server([ScriptStep::text("a"), ScriptStep::text("b")].map(|step| step.expecting(user(FRAMED))));
    run(&tree, &server, &["Review"]).stdin("+new line\n").output().expect_code(0);
    let ask = haft(&tree, &server, &["ask", "-m", "openai/m", "Review"]).stdin("+new line\n").output();
    assert_eq!(ask.expect_code(0).stdout, "a\n");
    let resumed = haft(&tree, &server, &["resume", "-q", "last", "Review"]).stdin("+new line\n");
    assert_eq!(resumed.output().expect_code(0).stdout, "b\n");
}

/// A terminal shows the run, while the input comes from a pipe.
#[test]
fn redirected_input_is_added_to_the_request_on_a_terminal() {
    let tree = here();
    let server =
        server([ScriptStep::text("Looks good.")
            .expecting(user("Review the change\n\nText that the user piped in"))]);
    tree.file("ws/change", "+new line\n");
    let words = ["run", "-m", "openai/m", "Review", "the", "change"];
    let ran = haft(&tree, &server, &words).on_terminal_with(80, "< change").finish().expect_code(0);
    assert!(ran.stdout.contains("Looks good."), "{}", ran.stdout);
}

#[test]
fn long_piped_input_is_stored_and_read_through_its_handle() {
    let tree = here();
    let lines = (1..=20_000).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat();
    let server = server([ScriptStep::text("It has 20,000 lines.").expecting(user("It is stored."))]);
    run(&tree, &server, &["Count"]).stdin(lines).output().expect_code(0);
    let body = server.requests()[0].body.to_string();
    assert!(body.contains("line 1\\n") && !body.contains("line 19999"), "{}", body.len());
    assert!(
        body.contains("\"name\":\"tool_output\""),
        "the request offers `tool_output` to the model: {body}"
    );
    let begin = body.find("session-").unwrap();
    let handle = &body[begin..begin + "session-/".len() + 72];
    let last = tree.haft(&["output", handle, "last 1 lines"]).output().expect_code(0);
    assert_eq!(last.stdout, "line 20000\n");
}

#[test]
fn missing_stdin_leaves_the_request_unchanged() {
    let tree = here();
    let server = server(vec![ScriptStep::text("x"); 3]);
    for stdin in ["", " \n"] {
        run(&tree, &server, &["Review"]).stdin(stdin).output().expect_code(0);
    }
    // Keep the pipe open without data: haft must stop waiting after `--stdin-wait`.
    let mut child = run(&tree, &server, &["--stdin-wait", "100ms", "Review"]).start();
    let stdin = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    drop(stdin);
    let mut stderr = String::new();
    std::io::Read::read_to_string(&mut child.stderr.unwrap(), &mut stderr).unwrap();
    assert!(stderr.contains("standard input is open but had no data for 0.1 s"), "{stderr}");
    for request in server.requests() {
        assert!(request.body.to_string().contains("\"Review\""), "{}", request.body);
    }
    let off = run(&tree, &server, &["--stdin-wait", "off", "Review"]).stdin("not read").output();
    assert!(!server.requests()[3].body.to_string().contains("not read"), "{off:?}");
}

#[test]
fn piped_input_that_is_not_text_or_too_long_is_an_error() {
    let tree = here();
    let server = server([]);
    let ran = run(&tree, &server, &["Review"]).stdin(b"\xff\xfe".as_slice()).output().expect_code(42);
    assert!(
        ran.stderr.contains("haft cannot use standard input") && ran.stderr.contains("hint: "),
        "{}",
        ran.stderr
    );
    assert!(server.requests().is_empty());
}

#[test]
fn piped_input_is_not_added_to_a_json_request() {
    let tree = here();
    tree.file("ws/a.md", "---\ninput: {format: json}\n---\n");
    let server = server([ScriptStep::text("x")]);
    run(&tree, &server, &["@a.md", &json!({"n": 1}).to_string()]).stdin("more").output().expect_code(0);
    assert!(!server.requests()[0].body.to_string().contains("more"));
}

#[test]
fn request_may_be_several_words() {
    let tree = here();
    tree.file("ws/a.md", "You are A.\n");
    let server = server([
        ScriptStep::text("x").expecting(user("fix the tests")),
        ScriptStep::text("x")
            .expecting(RequestExpectation { system: Some("You are A.".into()), ..user("fix the tests") }),
    ]);
    run(&tree, &server, &["fix", "the", "tests"]).output().expect_code(0);
    run(&tree, &server, &["@a.md", "fix", "the", "tests"]).output().expect_code(0);
    run(&tree, &server, &["@a.md"]).output().expect_code(2);
}
