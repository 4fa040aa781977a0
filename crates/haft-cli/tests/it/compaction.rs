//! Tests of compaction in long runs: every request fits, early content is not lost, and a killed or replayed run has
//! the same result.

use haft_model_server::{
    ErrorResponse, ModelServer, RequestExpectation, ResponsePace, Script, ScriptConversation, ScriptPart,
    ScriptReasoning, ScriptStep, StepOrder,
};
use haft_testkit::{HaftOutput, TestTree};
use serde_json::{Value, json};

use super::call::here;
use super::run::{FORMATS, haft, told};
use super::sessions::kill;

/// The text by which the server recognises a request for a summary.
const SUMMARY_REQUEST: &str = "Summarize the record below";

const SMALL_WINDOW: &str = "contextTokens=8192";

/// Starts a server with this context window. It refuses each request that does not fit, as a provider does, and reports
/// its own token counts.
fn server(window: u64, steps: Vec<ScriptStep>, summaries: Vec<ScriptStep>) -> ModelServer {
    let summaries = ScriptConversation { about: SUMMARY_REQUEST.into(), steps: summaries };
    let script = Script { context_window: Some(window), conversations: vec![summaries], ..Script::of(steps) };
    ModelServer::start(script.in_order(StepOrder::Strict)).unwrap()
}

fn read(number: usize) -> ScriptPart {
    ScriptPart::call("read", json!({ "file_path": format!("f{number}.txt") }))
}

fn code(number: usize) -> String {
    format!("CODE-{number} is {}", 7_919 * (number + 1))
}

/// Writes files of this many bytes. Each file has a code word in its middle.
fn files(tree: &TestTree, count: usize, bytes: usize) {
    for number in 0..count {
        let line = format!("Line of prose number {number}, as a tool might print it.\n");
        let half = line.repeat(bytes / 2 / line.len());
        tree.file(&format!("ws/f{number}.txt"), &format!("{half}{}\n{half}", code(number)));
    }
}

fn run(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftOutput {
    let first = ["run", "--max-turns", "1000", "--tools", "read,tool_output", "--timeout", "30m"];
    haft(tree, server, &[&first, words].concat()).output()
}

/// Returns the `stream-json` output of a run that compacts its conversation.
pub(super) fn compacted_stream() -> HaftOutput {
    let tree = here();
    files(&tree, 20, 1_500);
    let steps = (0..20).map(|number| ScriptStep::say([read(number)])).chain([ScriptStep::text("done")]);
    let server = server(8_192, steps.collect(), vec![ScriptStep::text("The files were read."); 80]);
    let words = ["-m", "openai/m", "--override", SMALL_WINDOW, "--output-format", "stream-json", "go"];
    run(&tree, &server, &words).expect_code(0)
}

fn journal(tree: &TestTree) -> Vec<String> {
    let mut paths = std::fs::read_dir(tree.path("home/data/sessions")).unwrap();
    let text = std::fs::read_to_string(paths.next().unwrap().unwrap().path()).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// Returns the archive of the last compaction.
fn archive(tree: &TestTree) -> String {
    let lines = journal(tree);
    let mut stored = lines.iter().rev().map(|line| parsed(line)["told"]["archived"]["stored"].clone());
    let last = stored.find(|entry| !entry.is_null()).unwrap();
    last["handle"].as_str().unwrap().to_owned()
}

fn inputs(tree: &TestTree, name: &str) -> usize {
    journal(tree).iter().filter(|line| !parsed(line)["told"][name].is_null()).count()
}

/// Returns the handle of the stored output that contains a code. This is the archive of the compaction, or an output
/// that did not fit into the context, so that haft stored it separately. The archive contains the handle of that
/// output.
fn holder(archived: &str, archive: &str, number: usize) -> String {
    if archived.contains(&code(number)) {
        return archive.to_owned();
    }
    let (_, after) = archived.split_once(&format!("f{number}.txt\"")).unwrap();
    let (_, handle) = after.split_once("tool_output(handle = \"").unwrap();
    handle.split('"').next().unwrap().to_owned()
}

/// This test shows that every request of a long run fits, and that the text of its first turns can still be queried at
/// its end. It does not show that a model would query it: the script makes the query, with the handle in its last
/// request.
#[test]
fn run_of_500_turns_fits_any_window_and_keeps_its_first_facts_readable() {
    for window in [8_192, 131_072] {
        let tree = here();
        files(&tree, 500, 4_000);
        let steps = (0..500).map(|number| ScriptStep::say([read(number)]));
        let steps = steps.chain([ScriptStep::text("read all of it")]).collect();
        let summaries = vec![ScriptStep::text("The user wants all files read."); 500];
        let first = server(window, steps, summaries);
        let context = format!("contextTokens={window}");
        let ran = run(&tree, &first, &["-m", "openai/m", "--override", &context, "go"]).expect_code(0);
        assert_eq!(ran.stdout, "read all of it\n", "{window}");
        assert!(ran.stderr.contains("! haft compacted the context from "), "{}", ran.stderr);
        let handle = archive(&tree);
        let archived = tree.haft(&["output", &handle]).output().expect_code(0).stdout;
        let query = |number: usize| {
            let extract = format!("grep CODE-{number} is");
            ScriptStep::call(
                "tool_output",
                json!({ "handle": holder(&archived, &handle, number), "extract": extract }),
            )
        };
        let mut questions = vec![query(0).expecting(RequestExpectation {
            body_contains: vec![handle.clone()],
            ..RequestExpectation::default()
        })];
        questions.extend((1..10).map(|number| told(query(number), &code(number - 1))));
        questions.push(told(ScriptStep::text("all ten known"), &code(9)));
        let second = server(window, questions, vec![ScriptStep::text("Ten codes were asked for."); 20]);
        let ran =
            haft(&tree, &second, &["resume", "last", "Which codes do the first ten files have?"]).output();
        assert_eq!(ran.expect_code(0).stdout, "all ten known\n", "{window}");
    }
}

/// The server checks that each tool result answers a call, and that reasoning signatures are sent back unchanged.
#[test]
fn compacted_conversations_are_valid_in_every_format() {
    for model in FORMATS {
        let tree = here();
        files(&tree, 40, 1_500);
        let thought = |number: usize| {
            let (text, state) = (format!("thought {number}"), Some(format!("c2lnbmF0dXJl{number:04}")));
            ScriptPart::Reasoning(ScriptReasoning { text, state })
        };
        let steps = (0..20).map(|turn| ScriptStep::say([thought(turn), read(2 * turn), read(2 * turn + 1)]));
        let steps = steps.chain([ScriptStep::text("done")]).collect();
        let server = server(8_192, steps, vec![ScriptStep::text("Some files were read."); 40]);
        let ran = run(&tree, &server, &["-m", model, "--override", SMALL_WINDOW, "go"]).expect_code(0);
        assert_eq!(ran.stdout, "done\n", "{model}");
        assert!(inputs(&tree, "summarized") > 0 && inputs(&tree, "archived") > 1, "{model}: {}", ran.stderr);
    }
}

#[test]
fn compaction_is_shown_with_its_tokens_and_counts_towards_the_cost() {
    let tree = here();
    files(&tree, 20, 1_500);
    let steps = (0..20).map(|number| ScriptStep::say([read(number)]));
    let steps: Vec<ScriptStep> = steps.chain([ScriptStep::text("done")]).collect();
    let server = server(8_192, steps, vec![ScriptStep::text("Some files were read."); 40]);
    let words = ["-m", "openai/m", "--override", SMALL_WINDOW, "--output-format", "stream-json", "go"];
    let ran = run(&tree, &server, &words).expect_code(0);
    let events = ran.events();
    let compacted: Vec<&Value> = events.iter().filter(|event| event["type"] == "context_compacted").collect();
    assert!(compacted.len() > 1, "{}", ran.stdout);
    for event in &compacted {
        let tokens = |key: &str| event[key].as_u64().unwrap();
        assert!(tokens("after_tokens") < tokens("before_tokens") && tokens("items") > 0, "{event}");
    }
    let asked = events.iter().filter(|event| event["type"] == "model_finished").count();
    let summaries = inputs(&tree, "summarized");
    assert_eq!(asked, 21 + summaries, "each request for a summary is an attempt of the run");
    assert!(
        !ran.stdout.contains("Some files were read"),
        "the summary is not printed as an answer: {}",
        ran.stdout
    );
    let drawn = tree.haft(&["sessions", "show", "last"]).output().expect_code(0).stdout;
    assert!(
        drawn.contains("compacted the context from ") && drawn.contains(" old messages summarized"),
        "{drawn}"
    );
    assert!(drawn.contains(&format!("models: {asked}, ")), "{drawn}");
}

#[test]
fn run_ends_with_context_full_when_compaction_is_off() {
    let tree = here();
    files(&tree, 20, 4_000);
    let steps = || (0..20).map(|number| ScriptStep::say([read(number)])).collect::<Vec<_>>();
    let ends = |off: &[&str]| {
        let server = server(8_192, steps(), Vec::new());
        let words = ["-m", "openai/m", "--override", SMALL_WINDOW, "--output-format", "json", "go"];
        run(&tree, &server, &[off, &words].concat())
    };
    let ran = ends(&["--override", "compaction=off"]);
    assert!(ran.stdout.contains("context_full"), "{} {}", ran.stdout, ran.stderr);
    tree.file("home/haft.json", r#"{"compaction": {"at": "off"}}"#);
    assert!(ends(&[]).stdout.contains("context_full"));
    assert!(!journal(&tree).iter().any(|line| line.contains("\"archived\"")));
}

#[test]
fn configured_compaction_model_writes_the_summaries() {
    let tree = here();
    files(&tree, 40, 500);
    tree.file("home/haft.json", r#"{"compaction": {"model": "anthropic/small", "keep": 2}}"#);
    let steps = (0..40).map(|number| ScriptStep::say([read(number)]));
    let steps = steps.chain([ScriptStep::text("done")]).collect();
    let small = RequestExpectation { model: Some("small".into()), ..RequestExpectation::default() };
    let summary = ScriptStep::text("Some files were read.").expecting(small);
    let server = server(8_192, steps, vec![summary; 20]);
    let ran = run(&tree, &server, &["-m", "openai/m", "--override", SMALL_WINDOW, "go"]).expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    assert!(!ran.stderr.contains("no summary"), "{}", ran.stderr);
    assert!(inputs(&tree, "summarized") > 0);
}

#[test]
fn unusable_compaction_summaries_do_not_end_the_run() {
    let long = ScriptStep::text(&"blah ".repeat(4_000));
    let refusal = ScriptStep::say([ScriptPart::Refusal("no".into())]);
    let cases = [
        ("the summary was empty", ScriptStep::text("")),
        ("the model called tools", ScriptStep::say([read(0)])),
        ("the model refused", refusal),
        ("the summary is not shorter than the turns", long),
        ("the summary request failed: forbidden: no", ScriptStep::fail(ErrorResponse::new(403, "no"))),
    ];
    for (why, bad) in cases {
        let tree = here();
        files(&tree, 20, 1_500);
        let steps = (0..20).map(|number| ScriptStep::say([read(number)]));
        let steps = steps.chain([ScriptStep::text("done")]).collect();
        let server = server(8_192, steps, vec![bad; 80]);
        let ran = run(&tree, &server, &["-m", "openai/m", "--override", SMALL_WINDOW, "go"]).expect_code(0);
        assert_eq!(ran.stdout, "done\n", "{why}");
        let shown = format!("! haft could not summarize the old turns: {why}");
        assert!(ran.stderr.contains(&shown), "{why}: {}", ran.stderr);
        assert!(ran.stderr.contains("moved to the archive, without a summary"), "{why}: {}", ran.stderr);
    }
}

/// The number of turns of a run that compacts once by a summary. Its outputs are too small to be stored alone.
const TURNS: usize = 40;

/// Returns the steps of a run that compacts once by a summary, well before its end.
fn one_summary() -> Vec<ScriptStep> {
    let steps = (0..TURNS).map(|number| ScriptStep::say([read(number)]));
    steps.chain([ScriptStep::text("done")]).collect()
}

#[test]
fn run_killed_during_a_compaction_repeats_only_its_pending_request() {
    let tree = here();
    files(&tree, TURNS, 500);
    let whole = server(8_192, one_summary(), vec![ScriptStep::text("Files were read."); 9]);
    let words = ["-m", "openai/m", "--override", SMALL_WINDOW, "--override", "compaction.keep=1", "go"];
    run(&tree, &whole, &words).expect_code(0);
    let lines = journal(&tree);
    let is = |line: &String, name: &str| !parsed(line)["told"][name].is_null();
    let first = lines.iter().position(|line| is(line, "archived")).unwrap();
    let last = lines.iter().position(|line| is(line, "summarized")).unwrap();
    let path = std::fs::read_dir(tree.path("home/data/sessions")).unwrap().next().unwrap().unwrap().path();
    for kept in first - 3..(last + 5).min(lines.len()) {
        for torn in ["", "{\"type\":\"told\",\"at_ms\":1,\"to"] {
            let before: Vec<&String> = lines[..kept].iter().collect();
            let text: String = before.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            std::fs::write(&path, text + torn).unwrap();
            let count = |name: &str| before.iter().filter(|line| is(line, name)).count();
            let (replied, summarized) = (count("replied"), count("summarized"));
            let rest = one_summary().split_off(replied);
            let second = server(8_192, rest, vec![ScriptStep::text("Files were read."); 9]);
            let case = format!("killed after line {kept}: {}", lines[kept]);
            let ran = haft(&tree, &second, &["resume", "last"]).output().expect_code(0);
            assert_eq!(ran.stdout, "done\n", "{case}");
            let requests = second.requests();
            let is_summary = |raw: &str| raw.contains(SUMMARY_REQUEST);
            let asked = requests.iter().filter(|request| is_summary(&request.raw)).count();
            assert_eq!(
                requests.len() - asked,
                TURNS + 1 - replied,
                "{case}: one request for each missing reply"
            );
            assert_eq!(
                asked,
                inputs(&tree, "summarized") - summarized,
                "{case}: haft requests each summary once"
            );
            if summarized == 0 && count("archived") > 0 && kept > first {
                assert!(is_summary(&requests[0].raw), "{case}: only the pending request is repeated");
            }
        }
    }
}

/// The process gets SIGKILL while it waits for the model that writes the summary: the archive is written, the summary
/// is not.
#[test]
fn run_killed_while_it_waits_for_a_summary_continues_when_resumed() {
    let tree = here();
    files(&tree, TURNS, 500);
    let slow = ResponsePace { first_byte_milliseconds: 600_000, ..ResponsePace::default() };
    let silent = ScriptStep::text("Files were read.").at_pace(slow);
    let first = server(8_192, one_summary(), vec![silent]);
    let words = ["run", "--max-turns", "1000", "--tools", "read,tool_output", "-m", "openai/m"];
    let words = [&words[..], &["--override", SMALL_WINDOW, "--override", "compaction.keep=1", "go"]].concat();
    let asks = || first.requests().iter().any(|request| request.raw.contains(SUMMARY_REQUEST));
    kill(&tree, &first, &words, "the request for a summary", asks);
    assert_eq!((inputs(&tree, "archived"), inputs(&tree, "summarized")), (1, 0));
    let replied = inputs(&tree, "replied");
    let rest = one_summary().split_off(replied);
    let second = server(8_192, rest, vec![ScriptStep::text("Files were read."); 9]);
    let ran = haft(&tree, &second, &["resume", "last"]).output().expect_code(0);
    assert_eq!(ran.stdout, "done\n");
    let requests = second.requests();
    assert!(requests[0].raw.contains(SUMMARY_REQUEST), "only the pending request is repeated");
    assert!(requests[0].raw.contains("f0.txt"), "the record has the first turns: {}", requests[0].raw);
    let summaries = requests.iter().filter(|request| request.raw.contains(SUMMARY_REQUEST)).count();
    assert_eq!(requests.len() - summaries, TURNS + 1 - replied, "one request for each missing reply");
    let archived = tree.haft(&["output", &archive(&tree)]).output().expect_code(0).stdout;
    assert_eq!(archived.matches(&format!("{}\n", code(0))).count(), 1, "the archive has each turn once");
}

#[test]
fn replay_of_a_compacted_run_writes_the_same_bytes() {
    let tree = here();
    files(&tree, 20, 1_500);
    let steps = (0..20).map(|number| ScriptStep::say([read(number)]));
    let steps = steps.chain([ScriptStep::text("done")]).collect();
    let bad = ScriptStep::text("");
    let summaries = [bad].into_iter().chain(vec![ScriptStep::text("Some files were read."); 40]).collect();
    let server = server(8_192, steps, summaries);
    let stream = ["--output-format", "stream-json"];
    let words = ["-m", "openai/m", "--override", SMALL_WINDOW, "--record", "r.jsonl", "go"];
    let ran = run(&tree, &server, &[&stream[..], &words].concat()).expect_code(0);
    assert!(
        ran.stdout.contains("context_compacted") && ran.stdout.contains("compaction_fault"),
        "{}",
        ran.stdout
    );
    let again = tree.haft(&[&["replay", "r.jsonl"], &stream[..]].concat()).output().expect_code(0);
    assert_eq!(again.stdout, ran.stdout);
}
