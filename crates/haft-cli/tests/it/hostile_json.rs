//! Tests of deep, long and invalid JSON: in the arguments that a model streams, in its frames, and in the results of MCP
//! servers. Each fails only its call or its request, in linear time.

use std::time::{Duration, Instant};

use haft_model_server::{ResponseFault, ResponsePace, ScriptCall, ScriptPart, ScriptStep};
use haft_testkit::{HaftOutput, TestTree};
use serde_json::json;

use super::call::here;
use super::mcp::http::{McpHttpRequest, json as mcp_reply, response, serve as http_server};
use super::run::{haft, server};

/// The wire formats that stream the arguments of a call as pieces of JSON text. The other formats send them as one value.
const TEXT_FORMATS: [&str; 3] = ["openai/m", "openai-responses/m", "anthropic/m"];

/// The number of pieces in which a model sends the arguments of one call, one character each.
const PIECES: usize = 100_000;

/// The longest time for a run with so many pieces. Work that grows with the square of their number would need minutes.
const PIECES_TIME_MAX: Duration = Duration::from_secs(40);

/// The number of digits of a huge number.
const DIGITS: usize = 4 << 20;

fn call_with(arguments: &str) -> ScriptStep {
    let call =
        ScriptCall { name: "bash".into(), arguments_text: Some(arguments.into()), ..ScriptCall::default() };
    ScriptStep::say([ScriptPart::Call(call)])
}

/// Runs a model that makes a call with these arguments. Returns the result of the call, which the model gets.
fn result_of(model: &str, arguments: &str, delta_characters: Option<usize>) -> String {
    let pace = ResponsePace { delta_characters, ..ResponsePace::default() };
    let provider = server([call_with(arguments).at_pace(pace), ScriptStep::text("done")]);
    let tree = here();
    haft(&tree, &provider, &["run", "-m", model, "go"]).output().expect_code(0);
    let requests = provider.requests();
    // Return only the last message: the request also contains the call with all its arguments.
    let items =
        ["messages", "input"].into_iter().find_map(|field| requests[1].body[field].as_array()).unwrap();
    items.last().unwrap().to_string()
}

#[test]
fn arguments_of_many_tiny_deltas_are_refused_in_linear_time() {
    for model in TEXT_FORMATS {
        let begun = Instant::now();
        let result = result_of(model, &"[".repeat(PIECES), Some(1));
        assert!(begun.elapsed() < PIECES_TIME_MAX, "{model}: {:?}", begun.elapsed());
        assert!(result.contains("argument"), "{model}: {result:.500}");
    }
}

#[test]
fn huge_number_and_lone_surrogate_in_arguments_are_refused() {
    for model in TEXT_FORMATS {
        for arguments in [
            format!(r#"{{"command": "echo", "timeout": {}}}"#, "7".repeat(DIGITS)),
            r#"{"command": "echo \ud800"}"#.to_owned(),
        ] {
            let result = result_of(model, &arguments, Some(DIGITS));
            assert!(result.contains("argument"), "{model}: {arguments:.100}: {result:.500}");
        }
    }
}

/// The frame is not valid JSON in UTF-8: U+D800 is one half of a character.
#[test]
fn lone_surrogate_in_a_frame_of_a_model_is_an_error() {
    for (model, frame) in [
        ("openai/m", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\\ud800\"}}]}\n\n"),
        (
            "anthropic/m",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\ud800\"}}\n\n",
        ),
    ] {
        let fault = ResponseFault::Malformed { after_frames: 2, frame: frame.into() };
        let steps = || std::iter::repeat_n(ScriptStep::text("Hello to you.").with_fault(fault.clone()), 8);
        let ran = haft(&here(), &server(steps()), &["ask", "-m", model, "hi"]).output();
        assert!(ran.code.is_some_and(|code| code != 0 && code < 100), "{model}: {ran:?}");
        assert!(ran.stderr.contains("error: "), "{model}: {ran:?}");
    }
}

/// Calls a tool of an MCP server that answers with this result, as JSON or as an SSE stream.
fn mcp_call(result: &'static str, media_type: &'static str) -> HaftOutput {
    let (url, _asked) = http_server(move |request| answer(request, result, media_type));
    let tree: TestTree = here();
    tree.file("home/haft.json", &json!({"mcpServers": {"far": {"url": url}}}).to_string());
    tree.haft(&["call", "--json", "far__t", "{}"]).output()
}

fn answer(request: &McpHttpRequest, result: &str, media_type: &str) -> Vec<u8> {
    let greeting = r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{}}"#;
    if request.method == "GET" {
        response("405 Method Not Allowed", "", b"")
    } else if request.calls("server/discover") {
        response("400 Bad Request", "", b"")
    } else if request.calls("initialize") {
        mcp_reply(request, greeting)
    } else if request.calls("tools/list") {
        mcp_reply(request, r#"{"tools":[{"name":"t"}]}"#)
    } else if request.calls("tools/call") {
        let reply = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, request.id());
        let body = if media_type == "text/event-stream" { format!("data: {reply}\n\n") } else { reply };
        response("200 OK", &format!("content-type: {media_type}\r\n"), body.as_bytes())
    } else {
        response("202 Accepted", "", b"")
    }
}

#[test]
fn lone_surrogate_in_the_result_of_an_mcp_server_fails_only_its_call() {
    for media_type in ["application/json", "text/event-stream"] {
        let ran = mcp_call(r#"{"content":[{"type":"text","text":"a\ud800b"}]}"#, media_type).expect_code(0);
        assert!(ran.stdout.contains("[content that haft cannot parse]"), "{media_type}: {ran:?}");
        let ran = mcp_call(r#"{"content":[],"structuredContent":{"a":"\ud800"}}"#, media_type);
        assert!(ran.code.is_some_and(|code| code < 100), "{media_type}: {ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{media_type}: {ran:?}");
    }
}
