//! The library, embedded in a program that is not haft: this test binary, started again in a place of its own.
#![allow(clippy::unwrap_used, reason = "a helper that fails is a failed test")]

use std::path::Path;
use std::process::{Command, Output};

use haft::executor::ToolExecutor;
use haft::sandbox::SandboxMode;
use haft_testkit::{Place, User, copy_program};
use serde_json::json;

/// Set in the process that embeds the library: the workspace.
const WORKSPACE: &str = "HAFT_TEST_WORKSPACE";

/// Runs one test of this binary as a program of its own, with an environment of its own.
fn embed(test: &str, program: &Path, place: &Place, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args([&format!("library::{test}"), "--exact", "--nocapture"]).env_clear();
    command
        .env("HAFT_HOME", place.path("home"))
        .env("HOME", place.path("user"))
        .env(WORKSPACE, place.path("ws"));
    command.envs(variables.iter().copied()).output().unwrap()
}

/// What the embedding program does: one call, its answer printed.
fn embedding(tool: &str, arguments: &serde_json::Value) -> bool {
    let Some(workspace) = std::env::var_os(WORKSPACE) else { return false };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut executor = ToolExecutor::new(workspace.into(), SandboxMode::Sandbox);
    let result = runtime.block_on(executor.execute(tool, arguments));
    std::fs::write(
        Path::new(&std::env::var_os("HOME").unwrap()).join("answer"),
        format!("{} {}", result.is_error, result.content),
    )
    .unwrap();
    true
}

#[track_caller]
fn answer(output: &Output, place: &Place) -> String {
    assert!(output.status.success(), "{output:?}");
    place.text("user/answer")
}

const PATH: (&str, &str) = ("PATH", "/usr/local/bin:/usr/bin:/bin");

#[test]
fn a_program_finds_the_launcher_beside_it() {
    if embedding(
        "bash",
        &json!({ "command": "pwd; echo x > made; echo x > ../outside/made || echo refused" }),
    ) {
        return;
    }
    let place = Place::new(User::Ourselves);
    let output =
        embed("a_program_finds_the_launcher_beside_it", &std::env::current_exe().unwrap(), &place, &[PATH]);
    let answer = answer(&output, &place);
    assert!(answer.starts_with(&format!("false {}\n", place.path("ws").display())), "{answer}");
    assert!(place.exists("ws/made"), "{answer}");
}

#[test]
fn without_a_launcher_the_answer_says_so() {
    if embedding("bash", &json!({ "command": "echo ran" })) {
        return;
    }
    let place = Place::new(User::Ourselves);
    let copy = place.path("outside/program");
    copy_program(&std::env::current_exe().unwrap(), &copy);
    let output = embed("without_a_launcher_the_answer_says_so", &copy, &place, &[("PATH", "/nonexistent")]);
    let answer = answer(&output, &place);
    assert!(answer.starts_with("true ") && answer.contains("no sandbox launcher found"), "{answer}");
    assert!(answer.contains("hint: call haft::init()") && !answer.contains("ran\n"), "{answer}");
}

#[test]
fn a_launcher_that_is_not_there_is_an_error() {
    if embedding("bash", &json!({ "command": "echo ran" })) {
        return;
    }
    let place = Place::new(User::Ourselves);
    let variables = [PATH, ("HAFT_LAUNCHER", "/nonexistent/haft")];
    let output = embed(
        "a_launcher_that_is_not_there_is_an_error",
        &std::env::current_exe().unwrap(),
        &place,
        &variables,
    );
    let answer = answer(&output, &place);
    assert!(
        answer.starts_with("true ") && answer.contains("launcher") && answer.contains("No such file"),
        "{answer}"
    );
}

/// A program that is not a launcher must not be taken for one: the command would run in the open.
#[test]
fn a_launcher_that_is_not_one_is_an_error() {
    if embedding("bash", &json!({ "command": "echo ran" })) {
        return;
    }
    let place = Place::new(User::Ourselves);
    let variables = [PATH, ("HAFT_LAUNCHER", "/usr/bin/true")];
    let output = embed(
        "a_launcher_that_is_not_one_is_an_error",
        &std::env::current_exe().unwrap(),
        &place,
        &variables,
    );
    let answer = answer(&output, &place);
    assert!(answer.starts_with("true ") && answer.contains("launcher"), "{answer}");
}

#[test]
fn the_file_tools_work_too() {
    if embedding("write", &json!({ "file_path": "note", "content": "hello" })) {
        return;
    }
    let place = Place::new(User::Ourselves);
    let output = embed("the_file_tools_work_too", &std::env::current_exe().unwrap(), &place, &[PATH]);
    let answer = answer(&output, &place);
    assert!(answer.starts_with("false Wrote 5 bytes to "), "{answer}");
    assert_eq!(place.text("ws/note"), "hello");
}
