//! Tests of the instruction files (`AGENTS.md`, `CLAUDE.md`) and images that a project and its user add to the request.

use haft_model_server::{ModelServer, ScriptStep};
use haft_testkit::{HaftOutput, TestTree};
use serde_json::json;

use super::call::here;
use super::run::{FORMATS, haft, server};

/// The smallest PNG header that contains a size: 640 by 480.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x02\x80\0\0\x01\xe0";

/// The beginning of the same image in base64, as in requests.
const PNG_BASE64: &str = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHg";

fn run(tree: &TestTree, server: &ModelServer, words: &[&str]) -> HaftOutput {
    haft(tree, server, &[&["run"], words, &["go"]].concat()).output()
}

fn last_request(server: &ModelServer) -> String {
    server.requests().last().unwrap().raw.clone()
}

#[test]
fn trusted_project_instructions_join_the_system_text() {
    let tree = here();
    let server = server([ScriptStep::text("x"), ScriptStep::text("x"), ScriptStep::text("x")]);
    let asked = |words: &[&str]| {
        let ran = run(&tree, &server, &[&["-m", "openai/m"], words].concat()).expect_code(0);
        (last_request(&server), ran.stderr)
    };
    tree.file("ws/AGENTS.md", "Indent with tabs.\n");
    tree.file("ws/CLAUDE.md", "Run the tests.\n");
    let (request, stderr) = asked(&[]);
    assert!(!request.contains("Indent with tabs"), "an untrusted file has no effect: {request}");
    assert!(stderr.contains("AGENTS.md` as instructions: the file is not trusted"), "{stderr}");

    let trusted = tree.haft(&["trust", "--yes"]).output().expect_code(0).stdout;
    assert!(
        trusted.contains("Indent with tabs.") && trusted.contains("instructions for every model"),
        "{trusted}"
    );
    let (request, stderr) = asked(&[]);
    for part in [
        "Instructions of the project's file `AGENTS.md`:\\nIndent with tabs.",
        "Instructions of the project's file `CLAUDE.md`:\\nRun the tests.",
    ] {
        assert!(request.contains(part), "{request}");
    }
    assert!(!stderr.contains("warning"), "{stderr}");

    tree.file("ws/AGENTS.md", "Indent with spaces.\n");
    let (request, stderr) = asked(&[]);
    assert!(!request.contains("spaces") && request.contains("Run the tests."), "{request}");
    assert!(stderr.contains("changed since it was trusted"), "{stderr}");
}

#[test]
fn project_instructions_are_capped_and_can_be_turned_off() {
    let tree = here();
    let server = server([ScriptStep::text("x"), ScriptStep::text("x"), ScriptStep::text("x")]);
    tree.file("ws/AGENTS.md", &"long ".repeat(20_000));
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    run(&tree, &server, &["-m", "openai/m"]).expect_code(0);
    let request = last_request(&server);
    assert!(request.contains("99999 total chars, showing first 32768"), "{} bytes", request.len());

    run(&tree, &server, &["-m", "openai/m", "--no-project-instructions"]).expect_code(0);
    assert!(!last_request(&server).contains("long long"));
    tree.file("home/haft.json", r#"{"projectInstructions": false}"#);
    run(&tree, &server, &["-m", "openai/m"]).expect_code(0);
    assert!(!last_request(&server).contains("long long"));
}

#[test]
fn images_of_a_request_are_sent_in_every_wire_format() {
    for model in FORMATS {
        let tree = here();
        let server = server([ScriptStep::text("x")]);
        std::fs::write(tree.path("ws/a.png"), PNG).unwrap();
        std::fs::write(tree.path("ws/b.png"), PNG).unwrap();
        run(&tree, &server, &["-m", model, "--image", "a.png", "--image", "b.png"]).expect_code(0);
        let request = last_request(&server);
        assert_eq!(request.matches(PNG_BASE64).count(), 2, "{model}: {request}");
    }
    let tree = here();
    tree.file("ws/text.png", "no image");
    let ran = run(&tree, &server([]), &["-m", "openai/m", "--image", "text.png"]).expect_code(42);
    assert!(ran.stderr.contains("text.png: the image format is unknown"), "{}", ran.stderr);
}

#[test]
fn read_sends_an_image_to_vision_models_and_a_description_to_others() {
    let check = |model: &str, sees: bool| {
        let tree = here();
        let read = ScriptStep::call("read", json!({"file_path": "a.png"}));
        let server = server([read, ScriptStep::text("x")]);
        std::fs::write(tree.path("ws/a.png"), PNG).unwrap();
        run(&tree, &server, &["-m", model]).expect_code(0);
        let request = last_request(&server);
        assert_eq!(request.contains(PNG_BASE64), sees, "{model}: {request}");
        let described = "[image: image/png, 640x480 pixels, 24 bytes] (you cannot see images)";
        assert_eq!(request.contains(described), !sees, "{model}: {request}");
    };
    check("openai/gpt-4o", true);
    check("anthropic/claude-sonnet-4-5", true);
    check("gemini/gemini-2.5-pro", true);
    check("ollama/gemma3:4b", true);
    check("ollama/llama3:8b", false);
    check("openai/gpt-oss-20b", false);
}

/// The journal contains the images, so that a resumed run still sends them.
#[test]
fn resumed_run_keeps_images_and_instructions() {
    let tree = here();
    let server = server([ScriptStep::text("one"), ScriptStep::text("two")]);
    tree.file("ws/AGENTS.md", "Indent with tabs.\n");
    tree.haft(&["trust", "--yes"]).output().expect_code(0);
    std::fs::write(tree.path("ws/a.png"), PNG).unwrap();
    run(&tree, &server, &["-m", "openai/m", "--image", "a.png"]).expect_code(0);
    std::fs::remove_file(tree.path("ws/a.png")).unwrap();
    tree.file("ws/AGENTS.md", "Indent with spaces.\n");
    haft(&tree, &server, &["resume", "last", "more"]).output().expect_code(0);
    let request = last_request(&server);
    assert!(request.contains(PNG_BASE64) && request.contains("Indent with tabs."), "{request}");
}
