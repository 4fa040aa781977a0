//! Compares requests with the request types of the official SDKs, which do not depend on our own reading of the
//! documentation.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use haft_core::conversation::ModelApiFormat;
use haft_core::model_request::{ModelRequest, ReasoningEffort, SamplingParameters};
use haft_models::capability;
use haft_models::model_data::{ModelFamily, families};
use serde_json::{Value, json};

use crate::fixture::{body, tests_folder, tools, wire};
use crate::golden::{CASES, case};

const EFFORTS: [Option<ReasoningEffort>; 4] =
    [None, Some(ReasoningEffort::Off), Some(ReasoningEffort::Low), Some(ReasoningEffort::Highest)];

/// Returns requests with all features, and with every setting that a family may reject.
fn requests(family: &ModelFamily, format: ModelApiFormat) -> Vec<ModelRequest> {
    let of_case = |name: &&str| ModelRequest { model: family.example.clone(), ..case(name, format) };
    let mut all: Vec<ModelRequest> = CASES.iter().map(of_case).collect();
    let sampling =
        SamplingParameters { temperature: Some(0.5), top_p: Some(0.9), ..SamplingParameters::default() };
    for reasoning in EFFORTS {
        let request = ModelRequest { reasoning, output_tokens_max: Some(20_000), ..of_case(&"text") };
        all.push(ModelRequest { sampling: sampling.clone(), ..request.clone() });
        all.push(ModelRequest { tools: tools(), ..request });
    }
    all
}

/// Returns the bodies of all requests, without duplicates.
fn bodies() -> BTreeSet<String> {
    let mut bodies = BTreeSet::new();
    for family in families() {
        let formats = ModelApiFormat::ALL.into_iter();
        for format in formats.filter(|format| family.formats.contains(&format.name().to_owned())) {
            for request in requests(family, format) {
                let fitted = capability::fit(request, format).request;
                let line = json!({"format": format.name(), "body": body(wire(format), &fitted)});
                bodies.insert(line.to_string());
            }
        }
    }
    bodies
}

#[test]
fn official_sdk_types_contain_every_request_field() {
    let bodies = bodies();
    assert!(bodies.len() > 800, "{}", bodies.len());
    let complaints = complaints(&bodies);
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}

#[test]
fn official_sdk_types_reject_an_unknown_field() {
    for format in ModelApiFormat::ALL {
        let mut body = body(wire(format), &case("tools", format));
        assert_eq!(complaints(&[json!({"format": format.name(), "body": body}).to_string()].into()).len(), 0);
        body["surprise"] = json!(1);
        let line = json!({"format": format.name(), "body": body}).to_string();
        let complaints = complaints(&[line].into());
        assert!(complaints.len() == 1 && complaints[0].contains("surprise"), "{format:?}: {complaints:?}");
    }
}

/// Runs the program that checks the bodies, and returns the errors that it reports.
fn complaints(bodies: &BTreeSet<String>) -> Vec<String> {
    let program = tests_folder().join("../../haft-model-server/tests/sdk/request_types.py");
    let mut child = Command::new(python())
        .arg(program)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = bodies.iter().fold(String::new(), |text, body| text + body + "\n");
    let mut stdin = child.stdin.take().unwrap();
    // Write in a thread, because the program may stop reading before everything is written.
    let writer = std::thread::spawn(move || drop(stdin.write_all(text.as_bytes())));
    let ran = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(ran.status.success());
    let complaints: Value = serde_json::from_slice(&ran.stdout).unwrap();
    complaints.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

/// Returns the Python interpreter with the SDKs. `xtask` installs it next to the build products, where this test binary
/// is too.
fn python() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let mut places = own.ancestors().map(|place| place.join("tools/python"));
    let place = places.find(|place| place.join("installed.txt").is_file());
    assert!(place.is_some(), "the SDKs are not installed; run `cargo xtask install`");
    place.unwrap().join("bin/python3")
}
