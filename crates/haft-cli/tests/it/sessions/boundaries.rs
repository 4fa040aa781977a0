use std::collections::BTreeSet;
use std::path::PathBuf;

use haft_model_server::{ModelServer, ScriptPart, ScriptStep};
use haft_testkit::TestTree;
use serde_json::{Value, json};

use super::{bash, events, here, journals, resume, run, server};

/// The number of test directories in which cases run concurrently.
const PLACES: usize = 3;

const MARKS: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

fn mark(number: usize) -> ScriptPart {
    bash(&format!("echo {} >> marks", MARKS[number]))
}

fn read() -> ScriptPart {
    ScriptPart::call("read", json!({"file_path": "given.txt"}))
}

/// Scripts ten calls: six that create a mark file, three that only read, and one that writes the same content every
/// time.
fn script() -> Vec<ScriptStep> {
    let write = ScriptPart::call("write", json!({"file_path": "same.txt", "content": "same"}));
    vec![
        ScriptStep::say([mark(0)]),
        ScriptStep::say([read(), mark(1), read()]),
        ScriptStep::say([mark(2), mark(3), write]),
        ScriptStep::say([mark(4), read()]),
        ScriptStep::say([mark(5)]),
        ScriptStep::text("all ten"),
    ]
}

/// A complete run, and its journal.
struct CompleteRun {
    tree: TestTree,
    server: ModelServer,
    journal: PathBuf,
    lines: Vec<String>,
}

impl CompleteRun {
    fn new() -> Self {
        let tree = here();
        tree.file("ws/given.txt", "given");
        let server = server(script());
        let ran = run(&tree, &server, &["go"]).expect_code(0);
        assert_eq!(ran.stdout, "all ten\n");
        let [journal] = journals(&tree).try_into().unwrap();
        let lines = std::fs::read_to_string(&journal).unwrap().lines().map(str::to_owned).collect();
        let whole = Self { tree, server, journal, lines };
        whole.check_marks("the whole run", &BTreeSet::new());
        whole
    }

    /// Resumes the run as if haft had been killed after this many lines, or in the middle of the next line. The
    /// workspace then contains the marks of all calls that had begun before the kill.
    fn check(&self, lines: usize, part: NextLinePart) {
        let case = format!("killed after line {lines} of {} ({part:?})", self.lines.len());
        let kept = &self.lines[..lines];
        let (begun, ended) = (ids(kept, begun), ids(kept, ended));
        let calls = self.marks_by_call();
        let left: Vec<&str> =
            calls.iter().filter(|(id, _)| begun.contains(id)).flat_map(|(_, mark)| [*mark, "\n"]).collect();
        self.tree.file("ws/marks", &left.concat());
        let torn = match (part, self.lines.get(lines)) {
            (NextLinePart::Half, Some(next)) => &next[..next.floor_char_boundary(next.len() / 2)],
            (NextLinePart::Half, None) | (NextLinePart::Nothing, _) => "",
        };
        let text: String = kept.iter().flat_map(|line| [line.as_str(), "\n"]).chain([torn]).collect();
        std::fs::write(&self.journal, text).unwrap();
        let unknown: BTreeSet<&String> =
            begun.difference(&ended).filter(|id| calls.iter().any(|(call, _)| call == *id)).collect();
        self.go_on(&case, kept, &unknown);
    }

    fn go_on(&self, case: &str, kept: &[String], unknown: &BTreeSet<&String>) {
        let finished = kept.iter().any(|line| line.starts_with(r#"{"type":"finished""#));
        let ran = resume(&self.tree, &self.server, &["--output-format", "stream-json"]);
        if finished {
            ran.expect_code(42);
        } else {
            let ran = ran.expect_code(0);
            let seen = events(&ran);
            assert_eq!(seen.last().unwrap()["answer"], "all ten", "{case}");
            let told: BTreeSet<String> =
                seen.iter().filter(|event| event["error_kind"] == "unknown_outcome").map(id).collect();
            assert_eq!(told.iter().collect::<BTreeSet<_>>(), *unknown, "{case}");
        }
        self.check_marks(case, unknown);
    }

    /// Checks that every mark exists exactly once, created either before or after the kill.
    fn check_marks(&self, case: &str, unknown: &BTreeSet<&String>) {
        let found = self.tree.text("ws/marks");
        let mut marks: Vec<&str> = found.lines().collect();
        marks.sort_unstable();
        let mut expected = MARKS.to_vec();
        expected.sort_unstable();
        assert_eq!(marks, expected, "{case}, not known: {unknown:?}");
    }

    /// Returns the calls that create a mark file.
    fn marks_by_call(&self) -> Vec<(String, &'static str)> {
        let replies =
            self.lines.iter().map(|line| parsed(line)).filter(|line| !line["told"]["replied"].is_null());
        let parts = replies.flat_map(|line| line["told"]["replied"]["parts"].as_array().cloned().unwrap());
        let marked = parts.filter_map(|part| {
            let call = &part["body"]["call"];
            let arguments = call["arguments"].as_str()?;
            let mark = MARKS.into_iter().find(|mark| arguments.contains(&format!("echo {mark} >>")))?;
            Some((call["id"].as_str()?.to_owned(), mark))
        });
        marked.collect()
    }
}

/// Selects how much of the next journal line was written before the kill.
#[derive(Debug, Clone, Copy)]
enum NextLinePart {
    Nothing,
    Half,
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn id(event: &Value) -> String {
    event["id"].as_str().unwrap().to_owned()
}

fn ids(lines: &[String], of: fn(&Value) -> Option<String>) -> BTreeSet<String> {
    lines.iter().filter_map(|line| of(&parsed(line))).collect()
}

fn begun(line: &Value) -> Option<String> {
    (line["type"] == "begun").then(|| line["call"].as_str().unwrap().to_owned())
}

fn ended(line: &Value) -> Option<String> {
    line["told"]["ended"][0]["replied"]["call"].as_str().map(str::to_owned)
}

/// Every boundary between two lines is a case; in every fourth case, half of the next line is written. The tests of the
/// journal reader show that a partial line, cut at any byte, is ignored.
#[test]
fn run_resumes_from_every_journal_line() {
    std::thread::scope(|scope| {
        for tree in 0..PLACES {
            scope.spawn(move || {
                let whole = CompleteRun::new();
                assert!(whole.lines.len() > 40, "{}", whole.lines.len());
                for lines in (1..=whole.lines.len()).filter(|lines| lines % PLACES == tree) {
                    whole
                        .check(lines, if lines % 4 < 3 { NextLinePart::Nothing } else { NextLinePart::Half });
                }
            });
        }
    });
}
