//! Runs every command in the documentation, and checks its documented exit code.

use std::fs;
use std::path::{Path, PathBuf};

use haft_model_server::{ModelServer, Script, ScriptPart, ScriptStep};

use super::call::here;

/// The ways to invoke haft in the documentation.
const PROMPTS: [&str; 3] = ["haft ", "cargo run --release -- ", "cargo run -q --release -- "];

/// Marks a line that a test cannot run; the reason follows.
const NOT_RUN: &str = "# not run: ";

/// The maximum number of lines that may be skipped. Skipped lines are unchecked, so there should be few.
const NOT_RUN_MAX: usize = 9;

/// A command in the documentation.
struct DocumentedCommand {
    tree: String,
    words: String,
    ends: DocumentedEnd,
}

enum DocumentedEnd {
    Code(i32),
    NotRun(String),
}

#[test]
fn readme_states_the_number_of_providers() {
    const WORDS: [(usize, &str); 4] =
        [(16, "sixteen"), (17, "seventeen"), (18, "eighteen"), (19, "nineteen")];
    let listed = here().haft(&["models"]).output().expect_code(0).stdout;
    let count = listed.lines().count() - 1;
    let word = WORDS.iter().find(|(number, _)| *number == count).map(|(_, word)| *word).unwrap();
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    assert!(readme.contains(&format!("[{word} providers]")), "{count} providers: {listed}");
}

/// Each block runs in its own directory. The lines of a block run in order, as a reader would type them.
#[test]
fn documented_commands_exit_with_documented_code() {
    let blocks: Vec<Vec<DocumentedCommand>> =
        documents().iter().flat_map(|document| blocks(document)).collect();
    assert!(blocks.iter().flatten().count() >= 10, "the documents show fewer commands than they should");
    let failures: Vec<String> = blocks.iter().flat_map(|block| run(block)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn few_documented_commands_are_skipped_each_with_reason() {
    let blocks: Vec<Vec<DocumentedCommand>> =
        documents().iter().flat_map(|document| blocks(document)).collect();
    let not_run: Vec<String> = blocks.iter().flatten().filter_map(reason).collect();
    assert!(
        not_run.len() <= NOT_RUN_MAX,
        "more than {NOT_RUN_MAX} commands are not run:\n{}",
        not_run.join("\n")
    );
    assert!(
        not_run.iter().all(|line| line.contains(" needs ")),
        "say what is needed:\n{}",
        not_run.join("\n")
    );
}

/// The documentation must show exactly the text of the compiled example, and the example must be as short as the
/// documentation claims.
#[test]
fn documented_tool_code_matches_example_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../haft");
    let example = fs::read_to_string(root.join("examples/own_tool.rs")).unwrap();
    let (_, rest) = example.split_once("// The fifteen lines that the documents show.\n").unwrap();
    let shown = rest.split_once("// To here.").unwrap().0.trim();
    assert!(shown.lines().count() <= 15, "{shown}");
    for document in ["README.md", "../../docs/embedding.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        assert!(text.contains(shown), "{document} does not show:\n{shown}");
    }
}

fn reason(shown: &DocumentedCommand) -> Option<String> {
    match &shown.ends {
        DocumentedEnd::Code(_) => None,
        DocumentedEnd::NotRun(reason) => Some(format!("{}: {}: {reason}", shown.tree, shown.words)),
    }
}

/// Returns the commands that did not end as documented. A shell runs each line, as it would for a reader.
fn run(block: &[DocumentedCommand]) -> Vec<String> {
    let tree = here();
    let models = model_server();
    tree.file("ws/README.md", "# A project\n");
    let mut failures = Vec::new();
    for shown in block {
        let DocumentedEnd::Code(expected) = shown.ends else { continue };
        let mut shell = std::process::Command::new("bash");
        // `haft` and the ways to run it from source all run the binary under test.
        let script = format!("haft() {{ \"$HAFT_BINARY\" \"$@\"; }}\n{}", shown.words);
        shell.args(["-c", &script]).current_dir(tree.path("ws")).env_clear();
        shell.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HAFT_BINARY", env!("CARGO_BIN_EXE_haft"));
        shell
            .env("HAFT_HOME", tree.path("home"))
            .env("HOME", tree.path("user"))
            .stdin(std::process::Stdio::null());
        // Set the variables that a reader would have exported for a provider.
        shell.env("OPENAI_BASE_URL", format!("{}/v1", models.url())).env("OPENAI_API_KEY", "example");
        shell.env("ANTHROPIC_BASE_URL", models.url()).env("ANTHROPIC_API_KEY", "example");
        shell.env("OLLAMA_HOST", models.url());
        let output = shell.output().unwrap();
        if output.status.code() != Some(expected) {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            failures.push(format!(
                "{}: `{}` ended with {:?}, not {expected}: {said}\nhint: write `# exit N` or `{NOT_RUN}needs …` after it",
                shown.tree,
                shown.words,
                output.status.code()
            ));
        }
    }
    failures
}

/// Starts a server that replaces every provider in the documentation.
fn model_server() -> ModelServer {
    let say = ScriptStep::text("The part of a tool that the hand holds.");
    let long = ScriptStep::say([ScriptPart::Json(serde_json::json!({ "centimetres": 30 }))]);
    ModelServer::start(Script::of([say.clone(), say]).about("How long is a haft?", [long])).unwrap()
}

/// Returns README.md and all files below docs.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = markdown_below(&root.join("docs"));
    found.extend(Some(root.join("README.md")).filter(|readme| readme.exists()));
    found.sort();
    found
}

fn markdown_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.extension().and_then(|extension| extension.to_str()) {
            Some("md") => vec![path],
            _ if path.is_dir() => markdown_below(&path),
            _ => Vec::new(),
        })
        .collect()
}

/// Returns the commands of each fenced shell block of a document.
fn blocks(document: &Path) -> Vec<Vec<DocumentedCommand>> {
    let text = fs::read_to_string(document).unwrap();
    let name = document.file_name().unwrap().to_string_lossy().into_owned();
    let mut blocks = Vec::new();
    let mut open: Option<Vec<DocumentedCommand>> = None;
    let mut other = false;
    for (number, line) in text.lines().enumerate() {
        match (line.trim(), &mut open) {
            ("```console" | "```sh", None) if !other => open = Some(Vec::new()),
            (fence, Some(_)) if fence.starts_with("```") => blocks.extend(open.take()),
            (fence, None) if fence.starts_with("```") => other = !other,
            (line, Some(block)) => block.extend(shown(format!("{name}:{}", number + 1), line)),
            (_, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: a block is not closed");
    blocks
}

/// Parses a line that calls haft or creates a file for it. Other lines show output or other programs.
fn shown(tree: String, line: &str) -> Option<DocumentedCommand> {
    let typed = line.strip_prefix("$ ").unwrap_or(line);
    let called =
        PROMPTS.iter().find_map(|prompt| typed.strip_prefix(prompt)).map(|words| format!("haft {words}"));
    let typed = called.or_else(|| {
        Some(typed.to_owned()).filter(|typed| typed.contains(" | haft ") || typed.starts_with("echo "))
    })?;
    let (words, ends) = match (typed.split_once(NOT_RUN), typed.rsplit_once("# exit ")) {
        (Some((words, reason)), _) => (words, DocumentedEnd::NotRun(format!("{NOT_RUN}{reason}"))),
        (None, Some((words, code))) => (words, DocumentedEnd::Code(code.trim().parse().unwrap())),
        (None, None) => (typed.as_str(), DocumentedEnd::Code(0)),
    };
    Some(DocumentedCommand { tree, words: words.trim().to_owned(), ends })
}

#[test]
fn documentation_lines_parse_into_commands_and_exit_codes() {
    let check = |line: &str, expected: Option<(&str, Option<i32>)>| {
        let found = shown("x:1".into(), line);
        let found = found.as_ref().map(|shown| match shown.ends {
            DocumentedEnd::Code(code) => (shown.words.as_str(), Some(code)),
            DocumentedEnd::NotRun(_) => (shown.words.as_str(), None),
        });
        assert_eq!(found, expected, "{line}");
    };
    check("$ haft tools", Some(("haft tools", Some(0))));
    check("haft call x '{}'   # exit 42", Some(("haft call x '{}'", Some(42))));
    check(
        "cargo run --release -- doctor  # what works here",
        Some(("haft doctor  # what works here", Some(0))),
    );
    check("$ haft serve  # not run: needs a network", Some(("haft serve", None)));
    check("$ echo '{}' | haft call x -", Some(("echo '{}' | haft call x -", Some(0))));
    check("hello from /srv", None);
    check("$ git clone …", None);
}
