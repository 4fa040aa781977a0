//! Compares requests with golden files. `UPDATE_GOLDENS=1 cargo test -p haft-models golden` rewrites the files; review
//! the diff.

use std::sync::Arc;

use haft_core::conversation::{
    Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, ToolReply,
};
use haft_core::model_request::{
    ModelRequest, ModelTool, MustCall, OutputShape, ParallelCalls, ReasoningEffort, ReasoningSummary,
    ToolChoice, Verbosity,
};
use haft_core::output::OutputContent;
use haft_models::{EncodeMemo, ReplyDelivery};
use serde_json::{Value, json};

use crate::fixture::{call, calls, decode, request, tests_folder, tools, user, wire};

pub(crate) const CASES: [&str; 15] = [
    "text",
    "system",
    "tools",
    "required",
    "forced",
    "none",
    "allowed",
    "parallel_results",
    "error_result",
    "image",
    "image_result",
    "reasoning",
    "structured",
    "sampling",
    "answer_settings",
];

pub(crate) fn case(name: &str, format: ModelApiFormat) -> ModelRequest {
    let ask = || Message::user("What is in the file?");
    let with_tools = |change: &dyn Fn(&mut ModelRequest)| {
        let mut request = request([ask()]);
        request.tools = tools();
        change(&mut request);
        request
    };
    match name {
        "text" => request([
            ask(),
            Message::assistant(vec![MessagePart::text("Two lines.")]),
            Message::user("Which?"),
        ]),
        "system" => {
            let mut request = request([ask(), Message::system("It is Monday."), Message::user("Which day?")]);
            request.system = "Be \"brief\".".into();
            request
        }
        "tools" => with_tools(&|request| request.parallel_calls = ParallelCalls::OneAtATime),
        "required" => with_tools(&|request| request.tool_choice = ToolChoice::Required),
        "forced" => with_tools(&|request| request.tool_choice = ToolChoice::Named("read".into())),
        "none" => with_tools(&|request| request.tool_choice = ToolChoice::None),
        "allowed" => with_tools(&|request| {
            request.tool_choice =
                ToolChoice::Allowed { names: vec!["read".into()], must_call: MustCall::Yes };
        }),
        "parallel_results" => {
            let (first, second) = (call("call_1", r#"{"path": "/a"}"#), call("call_2", r#"{"path": "/b"}"#));
            let replies = vec![ToolReply::text(&second, "b"), ToolReply::text(&first, "a")];
            request([ask(), calls(&[first, second]), Message::tool(replies), Message::user("Go on.")])
        }
        "error_result" => {
            let call = call("call_1", r#"{"path": "#);
            let reply = ToolReply::error(&call, "there is no such file");
            request([ask(), calls(&[call]), Message::tool(vec![reply])])
        }
        "image" => {
            let media =
                |source| MessagePart::new(PartBody::Image(Media { media_type: "image/png".into(), source }));
            let parts = vec![
                MessagePart::text("See:"),
                media(MediaSource::Bytes(Arc::from(&b"png"[..]))),
                media(MediaSource::Url("https://example.org/a.png".into())),
            ];
            request([user(parts)])
        }
        "image_result" => {
            let call = call("call_1", "{}");
            let mut reply = ToolReply::text(&call, "a picture");
            reply
                .content
                .push(OutputContent::Image { media_type: "image/png".into(), bytes: Arc::from(&b"png"[..]) });
            request([ask(), calls(&[call]), Message::tool(vec![reply])])
        }
        "reasoning" => {
            let reply = decode("reasoning", format).into_message();
            let answers = crate::fixture::answers(&reply, "two lines");
            let mut request = request([ask(), reply, answers]);
            request.reasoning = Some(ReasoningEffort::High);
            request
        }
        "structured" => {
            let mut request = request([ask()]);
            let schema = json!({"type": "object", "properties": {"lines": {"type": "integer"}, "note": {"type": "string"}}, "required": ["lines"]});
            request.output = OutputShape::Schema { name: "answer".into(), schema: Arc::new(schema) };
            request
        }
        "sampling" => {
            let mut request = request([ask()]);
            request.sampling.temperature = Some(0.5);
            request.sampling.top_k = Some(40);
            request.sampling.stop = vec!["END".into()];
            request.output_tokens_max = Some(100);
            request
        }
        "answer_settings" => {
            let mut request = request([ask()]);
            let schema = json!({
                "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"],
                "additionalProperties": false,
            });
            let (name, description) = ("look".into(), "Looks at a file.".into());
            let strict = ModelTool { name, description, input_schema: Arc::new(schema), strict: true };
            request.tools = Arc::new([strict]);
            request.reasoning_summary = Some(ReasoningSummary::Detailed);
            request.verbosity = Some(Verbosity::Low);
            request
        }
        other => panic!("no such case: {other}"),
    }
}

/// Returns the golden text of a request: its path, its formatted body, and its unsupported features.
fn golden(name: &str, format: ModelApiFormat) -> String {
    let encoded =
        wire(format).encode(&case(name, format), ReplyDelivery::Streamed, &mut EncodeMemo::default());
    let body: Value = serde_json::from_slice(&encoded.body).unwrap();
    let unsupported: Vec<_> = encoded.unsupported.iter().map(|feature| feature.name()).collect();
    let shown = json!({"path": encoded.path, "body": body, "unsaid": unsupported});
    serde_json::to_string_pretty(&shown).unwrap() + "\n"
}

#[test]
fn encoded_requests_match_the_golden_files() {
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    for name in CASES {
        for format in ModelApiFormat::ALL {
            let file = tests_folder().join(format!("golden/{name}.{}.json", format.name()));
            let now = golden(name, format);
            if update {
                std::fs::write(&file, &now).unwrap();
            }
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(kept, now, "{}: to accept this change, set UPDATE_GOLDENS=1", file.display());
        }
    }
}
