//! Every example runs and prints its answer.

use std::path::PathBuf;
use std::process::Command;

use haft_model_server::{ModelServer, RequestExpectation, Script, ScriptStep};
use serde_json::json;

struct ExampleFixture {
    directory: tempfile::TempDir,
    model: ModelServer,
}

impl ExampleFixture {
    fn new(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::create_dir(directory.path().join("ws")).unwrap();
        Self { directory, model: ModelServer::start(Script::of(steps)).unwrap() }
    }

    /// Runs an example, and returns its standard output.
    fn run(&self, example: &str, words: &[&str]) -> String {
        let mut command = Command::new(program(example));
        command.args(words).env_clear().current_dir(self.directory.path().join("ws"));
        command
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HAFT_HOME", self.directory.path().join("home"));
        command.env("OPENAI_BASE_URL", format!("{}/v1", self.model.url())).env("OPENAI_API_KEY", "k");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Returns the path of an example program. Cargo builds examples before it runs tests, next to the test binaries.
fn program(example: &str) -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    deps.ancestors().nth(2).unwrap().join("examples").join(example)
}

fn told(step: ScriptStep, text: &str) -> ScriptStep {
    step.expecting(RequestExpectation {
        last_tool_result: Some(text.to_owned()),
        ..RequestExpectation::default()
    })
}

#[test]
fn own_tool_example_calls_its_tool() {
    assert_eq!(ExampleFixture::new([]).run("own_tool", &[]), "3\n");
}

#[test]
fn ask_example_answers_with_the_result_of_its_tool() {
    let call = ScriptStep::call("count_words", json!({"text": "one two three"}));
    let place = ExampleFixture::new([call, told(ScriptStep::text("Three."), "3")]);
    assert_eq!(place.run("ask", &["openai/gpt-4o", "How many words are `one two three`?"]), "Three.\n");
}

#[test]
fn own_model_example_answers_with_its_own_provider() {
    assert_eq!(ExampleFixture::new([]).run("own_model", &[]), "Hello!\n");
}

#[test]
fn watch_run_example_prints_events_and_approves_calls() {
    let place =
        ExampleFixture::new([ScriptStep::call("current_date", json!({})), ScriptStep::text("It is Monday.")]);
    let output = place.run("watch_run", &[]);
    assert!(output.contains("allowing current_date {}\n"), "{output}");
    assert!(output.contains(r#""type":"approval_requested""#), "{output}");
    assert!(output.ends_with("It is Monday.\n"), "{output}");
}

#[test]
fn resume_run_example_continues_in_another_process() {
    let call = ScriptStep::call("weather", json!({"town": "Rome"}));
    let place = ExampleFixture::new([call, told(ScriptStep::text("Yes, 31 degrees."), "31 degrees")]);
    let output = place.run("resume_run", &["start"]);
    let (id, rest) = output.split_once(' ').unwrap();
    assert_eq!(rest, "waits for weather\n");
    assert_eq!(place.run("resume_run", &[id]), "Yes, 31 degrees.\n");
    assert_eq!(place.model.requests().len(), 2, "the second process repeats no model request");
}
