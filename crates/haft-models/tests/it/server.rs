use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use haft_core::conversation::{Conversation, Message, ModelApiFormat, ToolReply};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_reply::{ModelReply, StopReason};
use haft_core::model_request::{ModelRequest, MustCall, OutputShape, ToolChoice};
use haft_model_server::{
    self as scripted, ModelServer, RequestExpectation, RequestOutcome, Script, ScriptPart, ScriptStep,
};
use haft_models::{EncodeMemo, EncodedRequest, ErrorHead, ReplyDelivery};
use serde_json::json;

use crate::fixture::{fold, tools, wire};

const DELIVERIES: [ReplyDelivery; 2] = [ReplyDelivery::Whole, ReplyDelivery::Streamed];

/// Returns the version prefix of the path, which is part of a provider's base URL and not of the format.
fn prefix(format: ModelApiFormat) -> &'static str {
    match format {
        ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses | ModelApiFormat::Anthropic => "/v1/",
        ModelApiFormat::Gemini => "/v1beta/",
        ModelApiFormat::Ollama => "/",
    }
}

/// Sends a request, and returns the status and the body. Uses HTTP/1.0 so that the body is not chunked.
fn post(server: &ModelServer, format: ModelApiFormat, request: &EncodedRequest) -> (u16, Vec<u8>) {
    let address = server.url().trim_start_matches("http://").to_owned();
    let mut connection = TcpStream::connect(&address).unwrap();
    let headers: String =
        request.headers.iter().map(|(name, value)| [name, ": ", value, "\r\n"].concat()).collect();
    let head = format!(
        "POST {}{} HTTP/1.0\r\nHost: {address}\r\n{headers}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        prefix(format),
        request.path,
        request.body.len()
    );
    connection.write_all(head.as_bytes()).unwrap();
    connection.write_all(&request.body).unwrap();
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let status = String::from_utf8_lossy(&answer[9..12]).parse().unwrap();
    (status, answer.split_off(end))
}

/// Runs one turn: encodes the request, sends it, and decodes the reply in small chunks.
fn ask(
    server: &ModelServer,
    format: ModelApiFormat,
    request: &ModelRequest,
    (delivery, memo): (ReplyDelivery, &mut EncodeMemo),
) -> Result<ModelReply, ModelError> {
    let encoded = wire(format).encode(request, delivery, memo);
    let (status, body) = post(server, format, &encoded);
    if status != 200 {
        return Err(wire(format).decode_error(&ErrorHead::of_status(status), &body));
    }
    match delivery {
        ReplyDelivery::Whole => wire(format).decode(&body, &encoded.decode_context),
        ReplyDelivery::Streamed => {
            let mut decoder = wire(format).stream_decoder(&encoded.decode_context);
            let mut events = Vec::new();
            for piece in body.chunks(11) {
                decoder.push(piece, &mut events)?;
            }
            decoder.finish(&mut events)?;
            Ok(fold(events))
        }
    }
}

fn script() -> Script {
    let results = |all: &[&str]| RequestExpectation {
        tool_results: Some(all.iter().map(|text| (*text).to_owned()).collect()),
        tools: Some(vec!["read".into(), "now".into()]),
        system: Some("Be brief.".into()),
        ..RequestExpectation::default()
    };
    let steps = [
        ScriptStep::say([
            ScriptPart::reasoning("Let me see.", "c3RhdGU="),
            ScriptPart::call("read", json!({"path": "/a"})),
        ]),
        ScriptStep::say([
            ScriptPart::call("read", json!({"path": "/b"})),
            ScriptPart::call("read", json!({"path": "/c"})),
        ])
        .expecting(results(&["one"])),
        ScriptStep::text("All read.").expecting(results(&["two", "two"])),
    ];
    // Use a realistic token count: with fewer tokens, the prompt would look truncated.
    let usage = scripted::ScriptUsage { input: 500, output: 20, ..scripted::ScriptUsage::default() };
    Script::of(steps.map(|step| step.using(usage)))
}

/// Plays the script to its end.
fn run(format: ModelApiFormat, delivery: ReplyDelivery) {
    let server = ModelServer::start(script()).unwrap();
    let (mut conversation, mut memo, tools) = (Conversation::default(), EncodeMemo::default(), tools());
    conversation.push(Message::user("Read all.")).unwrap();
    for (turn, answer) in ["one", "two", ""].into_iter().enumerate() {
        let mut request = ModelRequest::new("m", Arc::new(conversation.clone()));
        request.system = "Be brief.".into();
        request.tools = tools.clone();
        let reply = ask(&server, format, &request, (delivery, &mut memo));
        let reply = reply.unwrap_or_else(|error| panic!("{format:?} {delivery:?}, turn {turn}: {error}"));
        assert_eq!(reply.notes, [], "{format:?} {delivery:?}, turn {turn}");
        let replies: Vec<_> = reply.calls().map(|call| ToolReply::text(call, answer)).collect();
        if turn == 2 {
            assert_eq!(
                (reply.text().as_str(), &reply.stop),
                ("All read.", &StopReason::EndOfTurn),
                "{format:?}"
            );
        } else {
            assert_eq!(
                (replies.len(), &reply.stop),
                (turn + 1, &StopReason::ToolCalls),
                "{format:?} {delivery:?}"
            );
            conversation.push(reply.into_message()).unwrap();
            conversation.push(Message::tool(replies)).unwrap();
        }
    }
    assert!(
        server.requests().iter().all(|request| request.outcome == RequestOutcome::Answered(200)),
        "{format:?}"
    );
}

#[test]
fn run_with_tool_calls_completes_in_every_format() {
    for format in ModelApiFormat::ALL {
        for delivery in DELIVERIES {
            run(format, delivery);
        }
    }
}

/// Returns every tool choice, and the choice that the scripted server must read from the request.
fn choices() -> [(&'static str, ToolChoice, scripted::RequestToolChoice); 6] {
    let read = || vec!["read".to_owned()];
    let allowed = |must_call| ToolChoice::Allowed { names: vec!["read".into()], must_call };
    [
        ("auto", ToolChoice::Auto, scripted::RequestToolChoice::Auto),
        ("none", ToolChoice::None, scripted::RequestToolChoice::None),
        ("required", ToolChoice::Required, scripted::RequestToolChoice::Required),
        ("named", ToolChoice::Named("read".into()), scripted::RequestToolChoice::Tool("read".into())),
        ("allowed", allowed(MustCall::No), scripted::RequestToolChoice::AutoOf(read())),
        ("required of allowed", allowed(MustCall::Yes), scripted::RequestToolChoice::RequiredOf(read())),
    ]
}

/// The choices that a format does not support. The agent loop enforces them.
const UNSAID_CHOICES: [(ModelApiFormat, &str); 6] = [
    (ModelApiFormat::Anthropic, "allowed"),
    (ModelApiFormat::Anthropic, "required of allowed"),
    (ModelApiFormat::Ollama, "required"),
    (ModelApiFormat::Ollama, "named"),
    (ModelApiFormat::Ollama, "allowed"),
    (ModelApiFormat::Ollama, "required of allowed"),
];

#[test]
fn model_server_reads_every_supported_tool_choice() {
    let mut unsupported = Vec::new();
    for format in ModelApiFormat::ALL {
        for (name, choice, understood) in choices() {
            let mut request = crate::fixture::request([Message::user("hi")]);
            request.tools = tools();
            request.tool_choice = choice;
            if !crate::fixture::encode(wire(format), &request).unsupported.is_empty() {
                unsupported.push((format, name));
                continue;
            }
            // Gemini has the same notation for a named tool and for a required tool from a list with one entry.
            let understood = match (format, understood) {
                (ModelApiFormat::Gemini, scripted::RequestToolChoice::RequiredOf(_)) => {
                    scripted::RequestToolChoice::Tool("read".into())
                }
                (_, understood) => understood,
            };
            let expect =
                RequestExpectation { tool_choice: Some(understood), ..RequestExpectation::default() };
            for delivery in DELIVERIES {
                let says = match name {
                    "none" => ScriptStep::text("no"),
                    _ => ScriptStep::call("read", json!({"path": "/a"})),
                };
                let server = ModelServer::start(Script::of([says.expecting(expect.clone())])).unwrap();
                let reply = ask(&server, format, &request, (delivery, &mut EncodeMemo::default()));
                let calls =
                    reply.unwrap_or_else(|error| panic!("{format:?} {name}: {error}")).calls().count();
                assert_eq!(calls, usize::from(name != "none"), "{format:?} {name}");
            }
        }
    }
    assert_eq!(unsupported, UNSAID_CHOICES);
}

#[test]
fn model_server_accepts_an_output_schema_in_every_format() {
    for format in ModelApiFormat::ALL {
        let mut request = crate::fixture::request([Message::user("hi")]);
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["integer", "null"]}}, "required": ["a"]});
        request.output = OutputShape::Schema { name: "answer".into(), schema: Arc::new(schema) };
        let server = ModelServer::start(Script::of([ScriptStep::text("{}")])).unwrap();
        let reply = ask(&server, format, &request, (ReplyDelivery::Whole, &mut EncodeMemo::default()));
        assert_eq!(reply.unwrap().text(), "{}", "{format:?}");
    }
}

#[test]
fn http_429_is_a_rate_limited_error_in_every_format() {
    for format in ModelApiFormat::ALL {
        let failure = scripted::ErrorResponse::new(429, "slow down");
        let server = ModelServer::start(Script::of([ScriptStep::fail(failure)])).unwrap();
        let request = crate::fixture::request([Message::user("hi")]);
        let error =
            ask(&server, format, &request, (ReplyDelivery::Whole, &mut EncodeMemo::default())).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::RateLimited, "{format:?}: {error}");
    }
}
