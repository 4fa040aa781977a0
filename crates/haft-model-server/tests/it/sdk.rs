//! Each SDK calls tools, with and without streaming, and reads structured output, refusals, limits, usage and errors.

use std::path::{Path, PathBuf};
use std::process::Command;

use haft_model_server::{
    ApiFormat, CitedText, ErrorResponse, ModelServer, RecordedRequest, RequestExpectation, RequestOutcome,
    RequestToolChoice, ResponseFault, Script, ScriptPart, ScriptStep, ScriptStop, ScriptUsage,
};
use serde_json::{Value, json};

const CALLS: [&str; 2] = ["Paris", "Rome"];

/// The timeout of a program, in seconds. A program that hangs fails its own test and does not block the others.
const PROGRAM_SECONDS_MAX: &str = "180";

const MODELS: [&str; 2] = ["scripted", "scripted-large"];

/// The text `state-1` in base64, because one SDK decodes it.
const STATE: &str = "c3RhdGUtMQ==";

#[test]
fn openai_sdk_works_with_the_chat_completions_endpoint() {
    let (told, requests) = run("openai_chat.py");
    for way in ["whole", "streamed"] {
        assert_eq!(told[way]["calls"], with_ids("call_0_"));
        assert_eq!(told[way]["reasoning"], "Two cities, two calls.");
        check_round(&told[way], "tool_calls", &json!([120, 80, 12, 4]));
    }
    assert_eq!(told["refusal"], json!(["stop", "I will not."]));
    assert_eq!(told["cited"], json!(["A handle.", SOURCE]));
    assert_eq!(told["blocked"], "content_filter");
    assert_eq!(told["length"], json!(["length", "Once upon a"]));
    assert_eq!(told["limited"], error("RateLimitError", &json!("rate_limit_exceeded"), "slow down"));
    assert_eq!(told["overloaded"], error("InternalServerError", &json!("server_error"), "too many of you"));
    assert_eq!(told["event"], error("APIError", &json!("server_error"), "it broke"));
    assert_eq!(told["key"][0], "AuthenticationError");
    assert_eq!(told["retried"], "at last");
    assert_eq!(told["cut"], "APIConnectionError");
    assert_eq!(told["models"], json!(MODELS));
    check_choices(&told, &["Among", "Force", "Must", "Never"]);
    check_common(&told, &requests, ApiFormat::OpenAiChat, "BadRequestError");
}

#[test]
fn openai_sdk_works_with_the_responses_endpoint() {
    let (told, requests) = run("openai_responses.py");
    for way in ["whole", "streamed", "remembered"] {
        assert_eq!(told[way]["calls"], with_ids("call_0_"));
        assert_eq!(told[way]["reasoning"], json!(["Two cities, two calls.", STATE]));
        check_round(&told[way], "completed", &json!([120, 80, 12, 4]));
    }
    assert_eq!(told["refusal"], "I will not.");
    assert_eq!(told["cited"], json!(["A handle.", SOURCE]));
    assert_eq!(told["cited_streamed"], json!(["A handle.", SOURCE]));
    assert_eq!(told["blocked"], json!(["incomplete", "content_filter"]));
    assert_eq!(told["length"], json!(["incomplete", "max_output_tokens", "Once upon a"]));
    assert_eq!(told["length_events"], "response.incomplete");
    assert_eq!(told["limited"], error("RateLimitError", &json!("rate_limit_exceeded"), "slow down"));
    assert_eq!(told["overloaded"], error("InternalServerError", &json!("server_error"), "too many of you"));
    assert_eq!(told["event"], error("APIError", &json!("server_error"), "it broke"));
    assert_eq!(told["stranger"][0], "BadRequestError");
    assert_eq!(told["cut"], "APIConnectionError");
    check_choices(&told, &["Among", "Force", "Must", "Never"]);
    check_common(&told, &requests, ApiFormat::OpenAiResponses, "BadRequestError");
    assert!(
        requests.iter().any(|request| request.raw.contains(STATE)),
        "the SDK sends the encrypted reasoning back"
    );
}

#[test]
fn anthropic_sdk_works_with_the_messages_endpoint() {
    let (told, requests) = run("anthropic_messages.py");
    for way in ["whole", "streamed"] {
        assert_eq!(told[way]["calls"], with_ids("toolu_0_"));
        assert_eq!(told[way]["reasoning"], json!(["Two cities, two calls.", STATE]));
        check_round(&told[way], "tool_use", &json!([30, 80, 10, 12]));
    }
    assert_eq!(told["refusal"], json!(["refusal", "I will not."]));
    assert_eq!(told["cited"], json!(["A handle.", SOURCE]));
    assert_eq!(told["cited_streamed"], json!(["A handle.", SOURCE]));
    assert_eq!(told["length"], json!(["max_tokens", "Once upon a"]));
    assert_eq!(told["limited"], error("RateLimitError", &json!("rate_limit_error"), "slow down"));
    assert_eq!(told["retry_after"], "7");
    assert_eq!(told["overloaded"], error("OverloadedError", &json!("overloaded_error"), "too many of you"));
    // The SDK has no specific class for this error, because the error arrives inside a 200 response.
    assert_eq!(told["event"], error("APIStatusError", &json!("api_error"), "it broke"));
    assert_eq!(told["cut"], "RemoteProtocolError");
    assert_eq!(told["models"], json!(MODELS));
    check_choices(&told, &["Force", "Must", "Never"]);
    check_common(&told, &requests, ApiFormat::Anthropic, "BadRequestError");
    assert!(requests.iter().any(|request| request.raw.contains(STATE)), "the SDK sends the signature back");
}

#[test]
fn google_genai_sdk_works_with_the_gemini_endpoint() {
    let (told, requests) = run("gemini_generate.py");
    for way in ["whole", "streamed"] {
        let calls = CALLS.map(|city| json!(["weather", { "city": city }]));
        assert_eq!(told[way]["calls"], json!(calls));
        assert_eq!(told[way]["reasoning"], "Two cities, two calls.");
        assert_eq!(told[way]["state"], json!(["73746174652d31"]));
        check_round(&told[way], "STOP", &json!([120, 80, 8, 4]));
    }
    // The SDK hides the message on this API, although the body contains it.
    assert_eq!(told["refusal"], json!(["SAFETY", null]));
    assert_eq!(told["cited"], json!(["A handle.", SOURCE]));
    assert_eq!(told["blocked"], json!(["PROHIBITED_CONTENT", 0]));
    assert_eq!(told["length"], json!(["MAX_TOKENS", "Once upon a"]));
    assert_eq!(told["limited"], error("ClientError", &json!("RESOURCE_EXHAUSTED"), "slow down"));
    assert_eq!(told["overloaded"], error("ServerError", &json!("INTERNAL"), "too many of you"));
    assert_eq!(told["event"], error("ServerError", &json!("INTERNAL"), "it broke"));
    assert_eq!(told["cut"], "RemoteProtocolError");
    let models = MODELS.map(|name| format!("models/{name}"));
    assert_eq!(told["models"], json!([models, models]));
    check_choices(&told, &["Force", "Must", "Never"]);
    check_common(&told, &requests, ApiFormat::Gemini, "ClientError");
    assert!(requests.iter().any(|request| request.raw.contains(STATE)), "the SDK sends the signature back");
}

#[test]
fn ollama_sdk_works_with_the_chat_endpoint() {
    let (told, requests) = run("ollama_chat.py");
    for way in ["whole", "streamed"] {
        let calls = CALLS.map(|city| json!(["weather", { "city": city }]));
        assert_eq!(told[way]["calls"], json!(calls));
        assert_eq!(told[way]["reasoning"], "Two cities, two calls.");
        check_round(&told[way], "stop", &json!([120, 12]));
    }
    assert_eq!(told["refusal"], "I will not.");
    assert_eq!(told["length"], json!(["length", "Once upon a"]));
    assert_eq!(told["limited"], error("ResponseError", &json!(429), "slow down"));
    assert_eq!(told["overloaded"], error("ResponseError", &json!(529), "too many of you"));
    assert_eq!(told["event"], error("ResponseError", &json!(-1), "it broke"));
    assert_eq!(told["cut"], "RemoteProtocolError");
    assert_eq!(told["models"], json!(MODELS));
    check_common(&told, &requests, ApiFormat::Ollama, "ResponseError");
}

/// Returns the script for all SDKs. The server selects a conversation by the first words of the request.
fn script() -> Script {
    let usage = ScriptUsage { input: 120, output: 12, cache_read: 80, cache_write: 10, reasoning: 4 };
    let calls = CALLS.map(|city| ScriptPart::call("weather", json!({ "city": city })));
    let mut parts = vec![
        ScriptPart::reasoning("Two cities, two calls.", STATE),
        ScriptPart::Text("Let me look.".to_owned()),
    ];
    parts.extend(calls);
    let offered =
        RequestExpectation { tools: Some(vec!["weather".to_owned()]), ..RequestExpectation::default() };
    let answered = RequestExpectation {
        tool_results: Some(vec!["21 degrees".to_owned(), "25 degrees".to_owned()]),
        ..RequestExpectation::default()
    };
    let broken = ResponseFault::ErrorEvent { after_frames: 2, error: ErrorResponse::new(500, "it broke") };
    Script { models: MODELS.map(str::to_owned).to_vec(), ..Script::default() }
        .with_key("sk-scripted")
        .about(
            "Weather",
            [
                ScriptStep::say(parts).expecting(offered),
                ScriptStep::text("Paris has 21 degrees, Rome 25.").using(usage).expecting(answered),
            ],
        )
        .about("Report", [ScriptStep::say([ScriptPart::Json(json!({ "city": "Paris", "degrees": 21 }))])])
        .about("Refuse", [ScriptStep::say([ScriptPart::Refusal("I will not.".to_owned())])])
        .about("Cite", [ScriptStep::say([cited()])])
        .about("Block", [ScriptStep::say([]).stopping(ScriptStop::Blocked)])
        .about("Be long", [ScriptStep::text("Once upon a").stopping(ScriptStop::Length)])
        .about("Too fast", [ScriptStep::fail(ErrorResponse::new(429, "slow down").retry_after(7))])
        .about("Too many", [ScriptStep::fail(ErrorResponse::new(529, "too many of you"))])
        .about("Break inside", [ScriptStep::text("It begins well").with_fault(broken)])
        .about(
            "Cut off",
            [ScriptStep::text("It begins well")
                .with_fault(ResponseFault::Cut { after_frames: 2, and_bytes: 9 })],
        )
        .about("Busy", [ScriptStep::fail(ErrorResponse::new(503, "busy")), ScriptStep::text("at last")])
        .about("Force", [chosen(RequestToolChoice::Tool("weather".to_owned()))])
        .about("Must", [chosen(RequestToolChoice::Required)])
        .about("Never", [chosen(RequestToolChoice::None)])
        .about("Among", [chosen(RequestToolChoice::RequiredOf(vec!["weather".to_owned()]))])
        .about(
            "Unexpected",
            [ScriptStep::text("no").expecting(RequestExpectation {
                user: Some("the rain".to_owned()),
                ..RequestExpectation::default()
            })],
        )
}

const SOURCE: &str = "https://example.com/haft";

fn cited() -> ScriptPart {
    ScriptPart::Cited(CitedText { text: "A handle.".into(), url: SOURCE.into(), title: "Haft".into() })
}

fn chosen(choice: RequestToolChoice) -> ScriptStep {
    let (system, tool_choice) = (Some("Be brief".to_owned()), Some(choice));
    ScriptStep::text("as you wish").expecting(RequestExpectation {
        system,
        tool_choice,
        ..RequestExpectation::default()
    })
}

/// Runs a program from `tests/sdk` with a scripted server, and returns its output and the recorded requests.
fn run(program: &str) -> (Value, Vec<RecordedRequest>) {
    let server = ModelServer::start(script()).unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(program);
    let ran = Command::new("timeout")
        .arg(PROGRAM_SECONDS_MAX)
        .arg(python())
        .arg(program)
        .env_clear()
        .env("SERVER", server.url())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    let told = serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"));
    (told, server.requests())
}

/// Returns the Python interpreter with the SDKs. `xtask` installs it next to the build products, where this test
/// binary is too.
fn python() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors()
        .map(|place| place.join("tools/python"))
        .find(|place| place.join("installed.txt").is_file())
        .map(|place| place.join("bin/python3"))
        .expect("the SDKs are not installed; run `cargo xtask install`")
}

#[track_caller]
fn check_round(round: &Value, finish: &str, usage: &Value) {
    assert_eq!(round["finish"], finish);
    assert_eq!(round["text"], "Paris has 21 degrees, Rome 25.");
    assert_eq!(&round["usage"], usage);
}

#[track_caller]
fn check_choices(told: &Value, abouts: &[&str]) {
    let expected: Value = abouts.iter().map(|about| ((*about).to_owned(), json!("as you wish"))).collect();
    assert_eq!(told["chosen"], expected);
}

/// Checks the results that are the same for all SDKs: structured output, the error for an unmet expectation, and the
/// recorded requests.
#[track_caller]
fn check_common(told: &Value, requests: &[RecordedRequest], format: ApiFormat, mismatch: &str) {
    assert_eq!(told["structured"], json!({ "city": "Paris", "degrees": 21 }));
    let complaint = "the script expected a different request: the last user message should contain `the rain`; \
                     found `Unexpected`";
    assert_eq!(told["mismatch"][0], mismatch);
    assert!(told["mismatch"].to_string().contains(complaint), "{}", told["mismatch"]);
    assert!(requests.iter().all(|request| request.format == format), "{requests:?}");
    assert!(requests.iter().any(|request| request.outcome == RequestOutcome::Refused(complaint.to_owned())));
    assert!(!format!("{requests:?}").contains("sk-scripted"), "the request log contains an API key");
    assert!(requests.iter().all(|request| request.outcome != RequestOutcome::Answering));
}

fn with_ids(prefix: &str) -> Value {
    CALLS
        .iter()
        .enumerate()
        .map(|(at, city)| json!([format!("{prefix}{}", at), "weather", { "city": city }]))
        .collect()
}

fn error(class: &str, kind: &Value, message: &str) -> Value {
    json!([class, kind, message])
}
