//! Tests with six real OpenAPI documents, which `cargo xtask install` puts next to the build products.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed helper must fail the test")]

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::process::Command;

use base64::Engine;
use haft_core::arguments::{ArgumentLimits, RawArguments};
use haft_core::name::ToolName;
use haft_core::validate::Schema;
use haft_tools::rest::openapi::{
    DeprecatedOperations, ImportResult, ImportSettings, OpenApiSource, OperationFilter, import,
};
use haft_tools::rest::{RequestPlan, RestRequest, RestTool, build};
use serde_json::{Value, json};
use url::Url;

use super::generated_arguments;

/// The number of requests that are validated per document.
const SAMPLE: usize = 50;

/// The server URL that replaces the one in each document.
const BASE: &str = "https://api.example.com/base";

/// Returns the path of an installed file or directory.
fn installed(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let found = own.ancestors().map(|place| place.join("tools").join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is not installed: run `cargo xtask install`"))
}

fn description(file: &str) -> PathBuf {
    installed("openapi").join(file)
}

fn imported(file: &str, filter: OperationFilter) -> ImportResult {
    let documents = OpenApiSource::read_file(&description(file)).unwrap();
    let settings = ImportSettings {
        name: "api",
        base_url: Some(Url::parse(BASE).unwrap()),
        headers: Vec::new(),
        logins: BTreeMap::new(),
        filter,
        hosts: Vec::new(),
        private: None,
    };
    import(&documents, settings).unwrap()
}

/// Checks that every operation is a tool or has a reason, that names are legal and unique, and that every input schema
/// compiles.
fn check_whole(file: &str, operations: usize, tools_min: usize) {
    let all = imported(
        file,
        OperationFilter { deprecated: DeprecatedOperations::Kept, ..OperationFilter::default() },
    );
    assert_eq!(all.tools.len() + all.skipped.len(), operations, "{file}");
    assert!(all.tools.len() >= tools_min, "{file}: {} {:#?}", all.tools.len(), all.skipped);
    assert!(all.skipped.iter().all(|skipped| !skipped.reason.is_empty()));
    let mut names = HashSet::new();
    for tool in &all.tools {
        let exposed = format!("rest__{}", tool.definition.name);
        assert!(ToolName::new(&exposed).is_ok(), "{exposed}");
        assert!(names.insert(exposed.to_ascii_lowercase()), "two tools have the name {exposed}");
        assert!(!tool.definition.description.is_empty() && tool.definition.description.len() < 4_500);
        if let Schema::Unchecked { reason } = Schema::compile(&tool.definition.input_schema) {
            panic!("{file} {exposed}: {reason}");
        }
    }
}

#[test]
fn every_github_operation_is_imported_or_skipped_with_a_reason() {
    check_whole("api.github.com.json", 1223, 1222);
}

#[test]
fn every_stripe_operation_is_imported_or_skipped_with_a_reason() {
    check_whole("stripe.com.json", 452, 451);
}

#[test]
fn every_digitalocean_operation_is_imported() {
    check_whole("digitalocean.com.json", 290, 290);
}

#[test]
fn every_kubernetes_operation_is_imported_or_skipped_with_a_reason() {
    check_whole("kubernetes.io.json", 845, 833);
}

#[test]
fn every_zoom_operation_is_imported() {
    check_whole("zoom.us.json", 373, 373);
}

#[test]
fn every_box_operation_is_imported_or_skipped_with_a_reason() {
    check_whole("box.com.json", 260, 247);
}

/// The bounds for one document: how many operations may be skipped, and how many special parameters must be validated.
struct Bounds {
    /// The maximum number of operations skipped because no arguments could be generated for them, or because their
    /// request equals the request of another operation.
    passed_over_max: usize,
    /// The minimum number of validated parameters that are deep objects.
    deep_min: u64,
    /// The minimum number of validated parameters with alternatives (`anyOf` or `oneOf`).
    alternatives_min: u64,
}

/// Generates arguments from the schemas of tools, and validates the requests against the OpenAPI document.
fn check_requests(file: &str, bounds: &Bounds) {
    let all = imported(file, OperationFilter::default());
    let step = (all.tools.len() / SAMPLE).max(1);
    // Try operations that are spread evenly over the document first, then the rest, because not every schema yields
    // arguments.
    let order = (0..step).flat_map(|first| all.tools.iter().skip(first).step_by(step));
    let mut requests = Vec::new();
    let mut passed_over = Vec::new();
    for tool in order {
        match sampled(tool, &all.tools) {
            Ok(request) => requests.push(request),
            Err(reason) => passed_over.push(format!("{}: {reason}", tool.definition.name)),
        }
        if requests.len() == SAMPLE {
            break;
        }
    }
    assert_eq!(requests.len(), SAMPLE, "{file}: too few requests could be generated");
    assert!(passed_over.len() <= bounds.passed_over_max, "{file}: {} {passed_over:#?}", passed_over.len());
    let judged = judged(file, &Value::Array(requests));
    let count = |kind: &str| judged[kind].as_u64().unwrap();
    assert_eq!(count("judged"), u64::try_from(SAMPLE).unwrap());
    assert!(
        count("deep") >= bounds.deep_min && count("alternatives") >= bounds.alternatives_min,
        "{file}: {judged}"
    );
}

/// Returns the numbers of validated parts. Fails the test if the validator reports an error.
fn judged(file: &str, requests: &Value) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("requests.json");
    std::fs::write(&path, requests.to_string()).unwrap();
    let judge = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/validate.py");
    let python = installed("python-api").join("bin/python");
    let judged =
        Command::new(python).arg(judge).arg(description(file)).arg(&path).arg(BASE).output().unwrap();
    let said = String::from_utf8_lossy(&judged.stdout).into_owned();
    let errors = String::from_utf8_lossy(&judged.stderr).into_owned();
    let mut lines: Vec<&str> = said.lines().collect();
    let last = lines.pop().and_then(|line| serde_json::from_str(line).ok());
    assert!(lines.is_empty(), "{file}:\n{}", lines.join("\n"));
    last.unwrap_or_else(|| panic!("{file}: {errors}"))
}

/// Returns whether another operation has the same request. Operations that differ only in the fragment of their path
/// have the same request.
fn is_one_of_several(tool: &RestTool, all: &[RestTool]) -> bool {
    let line = |tool: &RestTool| match &tool.plan {
        RequestPlan::Operation(plan) => format!("{} {:?}", plan.method.name(), plan.path),
        RequestPlan::Templated(_) => String::new(),
    };
    all.iter().filter(|other| line(other) == line(tool)).count() > 1
}

/// Returns the request of a tool for generated arguments, or the reason why there is none.
fn sampled(tool: &RestTool, all: &[RestTool]) -> Result<Value, &'static str> {
    if is_one_of_several(tool, all) {
        return Err("its request is the same as another's");
    }
    let schema = &tool.definition.input_schema;
    let arguments = generated_arguments::value(schema, 0).ok_or("no arguments were found")?;
    let parsed = RawArguments::from_value(&arguments).parse(&ArgumentLimits::default());
    let parsed = parsed.map_err(|_| "the generated arguments cannot be parsed")?;
    let valid = Schema::compile(schema)
        .validate(parsed)
        .map_err(|_| "the generated arguments do not match the schema")?;
    let request = build(tool, valid.value()).map_err(|_| "the request cannot be built")?;
    Ok(as_json(tool, &request))
}

fn as_json(tool: &RestTool, request: &RestRequest) -> Value {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers: BTreeMap<String, String> =
        request.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let cookies: BTreeMap<String, String> = headers
        .get("cookie")
        .iter()
        .flat_map(|line| line.split("; "))
        .filter_map(|pair| pair.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
        .collect();
    let body = request.body.as_ref();
    json!({
        "tool": tool.definition.name.as_str(),
        "method": request.method.name(),
        "url": request.url.as_str(),
        "headers": headers,
        "cookies": cookies,
        "content_type": body.map(|body| &body.media_type),
        "body": body.map(|body| base64::engine::general_purpose::STANDARD.encode(&body.bytes)),
    })
}

#[test]
fn github_requests_validate_against_the_openapi_document() {
    check_requests("api.github.com.json", &Bounds { passed_over_max: 5, deep_min: 0, alternatives_min: 1 });
}

#[test]
fn stripe_requests_validate_against_the_openapi_document() {
    check_requests("stripe.com.json", &Bounds { passed_over_max: 0, deep_min: 100, alternatives_min: 0 });
}

#[test]
fn digitalocean_requests_validate_against_the_openapi_document() {
    check_requests("digitalocean.com.json", &Bounds { passed_over_max: 3, deep_min: 0, alternatives_min: 0 });
}

#[test]
fn kubernetes_requests_validate_against_the_openapi_document() {
    check_requests("kubernetes.io.json", &Bounds { passed_over_max: 0, deep_min: 0, alternatives_min: 0 });
}

#[test]
fn zoom_requests_validate_against_the_openapi_document() {
    check_requests("zoom.us.json", &Bounds { passed_over_max: 2, deep_min: 0, alternatives_min: 0 });
}

#[test]
fn requests_for_box_com_validate_against_its_openapi_document() {
    check_requests("box.com.json", &Bounds { passed_over_max: 5, deep_min: 0, alternatives_min: 0 });
}
