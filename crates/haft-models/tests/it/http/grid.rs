use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use haft_core::conversation::{
    Media, MediaSource, Message, MessagePart, ModelApiFormat, PartBody, ToolReply,
};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::ModelProvider;
use haft_core::model_reply::{ModelReply, StopReason, TokenUsage};
use haft_core::model_request::{ModelRequest, OutputShape, ToolChoice};
use haft_model_server::{
    self as scripted, RequestExpectation, RequestOutcome, ResponsePace, ScriptStep, ScriptStop,
};
use haft_models::ReplyDelivery;
use haft_testkit::eventually;
use serde_json::json;

use super::client::{ClientFixture, asking, request};
use crate::fixture::tools;

/// A scenario: its name, its test, and the formats without it, each with the reason.
type Scenario =
    (&'static str, fn(GridCell) -> BoxFuture<'static, ()>, &'static [(ModelApiFormat, &'static str)]);

/// A cell of the grid: one format and one delivery.
#[derive(Debug, Clone, Copy)]
struct GridCell {
    format: ModelApiFormat,
    delivery: ReplyDelivery,
}

impl GridCell {
    fn asker(self, steps: impl IntoIterator<Item = ScriptStep>) -> ClientFixture {
        ClientFixture::new(self.format, steps).delivered(self.delivery)
    }

    /// Sends one request and expects a success.
    async fn reply(self, step: ScriptStep, request: ModelRequest) -> ModelReply {
        self.asker([step]).ask(request).await.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

const NO_CHOICE: &[(ModelApiFormat, &str)] =
    &[(ModelApiFormat::Ollama, "has no such field; the run asks again")];

const SCENARIOS: &[Scenario] = &[
    ("text", |at| Box::pin(text(at)), &[]),
    ("tool call and its reply", |at| Box::pin(tool_call(at)), &[]),
    ("parallel calls", |at| Box::pin(parallel_calls(at)), &[]),
    ("error result", |at| Box::pin(error_result(at)), &[]),
    ("image", |at| Box::pin(image(at)), &[]),
    (
        "reasoning round trip",
        |at| Box::pin(reasoning(at)),
        &[
            (ModelApiFormat::OpenaiChat, "OpenAI does not accept reasoning in requests"),
            (ModelApiFormat::Ollama, "its reasoning has no state"),
        ],
    ),
    ("forced tool", |at| Box::pin(forced_tool(at)), NO_CHOICE),
    ("required", |at| Box::pin(required(at)), NO_CHOICE),
    ("none", |at| Box::pin(none(at)), &[]),
    ("structured output", |at| Box::pin(structured(at)), &[]),
    (
        "refusal",
        |at| Box::pin(refusal(at)),
        &[
            (ModelApiFormat::Gemini, "declines in plain text"),
            (ModelApiFormat::Ollama, "declines in plain text"),
        ],
    ),
    ("citation", |at| Box::pin(citation(at)), &[(ModelApiFormat::Ollama, "has no citations")]),
    (
        "kept back by the provider",
        |at| Box::pin(blocked(at)),
        &[
            (ModelApiFormat::Anthropic, "uses the same stop reason for this and for a refusal"),
            (ModelApiFormat::Ollama, "has no content filter"),
        ],
    ),
    ("length stop", |at| Box::pin(length(at)), &[]),
    ("usage", |at| Box::pin(usage(at)), &[]),
    ("cancellation", |at| Box::pin(cancellation(at)), &[]),
];

// This test needs its own threads: waiting for the server blocks this thread, and the connection must close at the same
// time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_works_in_every_format() {
    for (name, scenario, skipped) in SCENARIOS {
        for format in
            ModelApiFormat::ALL.into_iter().filter(|format| !skipped.iter().any(|(skip, _)| skip == format))
        {
            for delivery in [ReplyDelivery::Streamed, ReplyDelivery::Whole] {
                println!("{name}: {format:?}, {delivery:?}");
                scenario(GridCell { format, delivery }).await;
            }
        }
    }
}

async fn text(at: GridCell) {
    let step = ScriptStep::text("Hello, wörld.").expecting(RequestExpectation {
        user: Some("hi".into()),
        system: Some("be brief".into()),
        model: Some("m".into()),
        ..RequestExpectation::default()
    });
    let reply = at.reply(step, ModelRequest { system: "be brief".into(), ..asking("hi") }).await;
    assert_eq!((reply.text().as_str(), &reply.stop), ("Hello, wörld.", &StopReason::EndOfTurn));
}

async fn tool_call(at: GridCell) {
    let asker = at.asker([
        ScriptStep::call("read", json!({"path": "Paris"})),
        ScriptStep::text("It is 21 degrees.").expecting(RequestExpectation {
            last_tool_result: Some("21".into()),
            ..RequestExpectation::default()
        }),
    ]);
    let first = ModelRequest { tools: tools(), ..asking("How is the weather?") };
    let reply = asker.ask(first.clone()).await.unwrap();
    assert_eq!(reply.stop, StopReason::ToolCalls);
    let call = reply.calls().next().unwrap().clone();
    assert_eq!(call.arguments.as_text(), r#"{"path":"Paris"}"#);
    let mut conversation = (*first.conversation).clone();
    conversation.push(reply.into_message()).unwrap();
    conversation.push(Message::tool(vec![ToolReply::text(&call, "21")])).unwrap();
    let second = ModelRequest { conversation: Arc::new(conversation), ..first };
    assert_eq!(asker.ask(second).await.unwrap().text(), "It is 21 degrees.");
}

async fn parallel_calls(at: GridCell) {
    let calls = ["Paris", "Rome"].map(|city| scripted::ScriptPart::call("read", json!({ "path": city })));
    let asker = at.asker([
        ScriptStep::say(calls),
        ScriptStep::text("Rome.").expecting(RequestExpectation {
            tool_results: Some(vec!["21".into(), "25".into()]),
            ..RequestExpectation::default()
        }),
    ]);
    let first = ModelRequest { tools: tools(), ..asking("Where is it warmer?") };
    let reply = asker.ask(first.clone()).await.unwrap();
    let replies: Vec<ToolReply> =
        reply.calls().zip(["21", "25"]).map(|(call, text)| ToolReply::text(call, text)).collect();
    assert_eq!(replies.len(), 2);
    let mut conversation = (*first.conversation).clone();
    conversation.push(reply.into_message()).unwrap();
    conversation.push(Message::tool(replies)).unwrap();
    let second = ModelRequest { conversation: Arc::new(conversation), ..first };
    assert_eq!(asker.ask(second).await.unwrap().text(), "Rome.");
}

async fn error_result(at: GridCell) {
    let flagged = match at.format {
        ModelApiFormat::Anthropic => r#""is_error":true"#,
        ModelApiFormat::Gemini => r#""error":"sunk""#,
        ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses | ModelApiFormat::Ollama => {
            "Error: sunk"
        }
    };
    let told = RequestExpectation {
        last_tool_result: Some("sunk".into()),
        body_contains: vec![flagged.into()],
        ..RequestExpectation::default()
    };
    let asker = at.asker([
        ScriptStep::call("read", json!({"path": "Atlantis"})),
        ScriptStep::text("No such city.").expecting(told),
    ]);
    let first = ModelRequest { tools: tools(), ..asking("How is the weather?") };
    let reply = asker.ask(first.clone()).await.unwrap();
    let failed = ToolReply::error(reply.calls().next().unwrap(), "sunk");
    let mut conversation = (*first.conversation).clone();
    conversation.push(reply.into_message()).unwrap();
    conversation.push(Message::tool(vec![failed])).unwrap();
    let second = ModelRequest { conversation: Arc::new(conversation), ..first };
    assert_eq!(asker.ask(second).await.unwrap().text(), "No such city.");
}

async fn image(at: GridCell) {
    let bytes = b"\x89PNG not really".as_slice();
    let media = Media { media_type: "image/png".into(), source: MediaSource::Bytes(bytes.into()) };
    let mut message = Message::user("What is this?");
    message.parts.push(MessagePart::new(PartBody::Image(media)));
    let step = ScriptStep::text("A picture.").expecting(RequestExpectation {
        body_contains: vec!["iVBORyBub3QgcmVhbGx5".into()],
        ..RequestExpectation::default()
    });
    assert_eq!(at.reply(step, request([message])).await.text(), "A picture.");
}

async fn reasoning(at: GridCell) {
    let thought = scripted::ScriptPart::reasoning("Let me think.", "c3RhdGUtMQ==");
    let asker = at.asker([
        ScriptStep::say([thought, scripted::ScriptPart::call("read", json!({"path": "Paris"}))]),
        ScriptStep::text("21.").expecting(RequestExpectation {
            body_contains: vec!["c3RhdGUtMQ==".into()],
            ..RequestExpectation::default()
        }),
    ]);
    let first = ModelRequest { tools: tools(), ..asking("How is the weather?") };
    let reply = asker.ask(first.clone()).await.unwrap();
    assert!(
        reply
            .parts
            .iter()
            .any(|part| matches!(&part.body, PartBody::Reasoning(text) if text == "Let me think."))
    );
    let answered = ToolReply::text(reply.calls().next().unwrap(), "21");
    let mut conversation = (*first.conversation).clone();
    conversation.push(reply.into_message()).unwrap();
    conversation.push(Message::tool(vec![answered])).unwrap();
    let second = ModelRequest { conversation: Arc::new(conversation), ..first };
    assert_eq!(asker.ask(second).await.unwrap().text(), "21.");
}

async fn with_choice(at: GridCell, choice: ToolChoice, expected: scripted::RequestToolChoice) {
    let step = ScriptStep::text("ok")
        .expecting(RequestExpectation { tool_choice: Some(expected), ..RequestExpectation::default() });
    let asked = ModelRequest { tools: tools(), tool_choice: choice, ..asking("hi") };
    assert_eq!(at.reply(step, asked).await.text(), "ok");
}

async fn forced_tool(at: GridCell) {
    with_choice(at, ToolChoice::Named("read".into()), scripted::RequestToolChoice::Tool("read".into())).await;
}

async fn required(at: GridCell) {
    with_choice(at, ToolChoice::Required, scripted::RequestToolChoice::Required).await;
}

async fn none(at: GridCell) {
    // Ollama has no tool choice, so the tools are left out.
    if at.format == ModelApiFormat::Ollama {
        let step = ScriptStep::text("ok")
            .expecting(RequestExpectation { tools: Some(vec![]), ..RequestExpectation::default() });
        let asked = ModelRequest { tools: tools(), tool_choice: ToolChoice::None, ..asking("hi") };
        assert_eq!(at.reply(step, asked).await.text(), "ok");
        return;
    }
    with_choice(at, ToolChoice::None, scripted::RequestToolChoice::None).await;
}

async fn structured(at: GridCell) {
    let schema = json!({
        "type": "object", "properties": { "city": { "type": "string" } },
        "required": ["city"], "additionalProperties": false,
    });
    let output = OutputShape::Schema { name: "place".into(), schema: Arc::new(schema) };
    let step = ScriptStep::say([scripted::ScriptPart::Json(json!({ "city": "Paris" }))]).expecting(
        RequestExpectation { body_contains: vec!["\"city\"".into()], ..RequestExpectation::default() },
    );
    let reply = at.reply(step, ModelRequest { output, ..asking("Where?") }).await;
    assert_eq!(reply.text(), r#"{"city":"Paris"}"#);
}

async fn refusal(at: GridCell) {
    let reply =
        at.reply(ScriptStep::say([scripted::ScriptPart::Refusal("I will not.".into())]), asking("hi")).await;
    assert_eq!(reply.stop, StopReason::Refusal, "{reply:?}");
}

async fn citation(at: GridCell) {
    let url = "https://example.com/haft";
    let cited = scripted::CitedText { text: "A handle.".into(), url: url.into(), title: "Haft".into() };
    let reply = at.reply(ScriptStep::say([scripted::ScriptPart::Cited(cited)]), asking("hi")).await;
    let annotations = reply.parts.iter().filter_map(|part| match &part.body {
        PartBody::Text { annotations, .. } => Some(annotations),
        _ => None,
    });
    let sources: Vec<String> = annotations.flatten().map(|source| source.json.to_string()).collect();
    assert!(sources.len() == 1 && sources[0].contains(url), "{at:?}: {sources:?}");
    assert_eq!(reply.text(), "A handle.");
}

async fn blocked(at: GridCell) {
    let reply = at.reply(ScriptStep::say([]).stopping(ScriptStop::Blocked), asking("hi")).await;
    assert_eq!((reply.stop, reply.parts.len()), (StopReason::Filtered, 0), "{at:?}");
}

async fn length(at: GridCell) {
    let reply = at.reply(ScriptStep::text("It goes on").stopping(ScriptStop::Length), asking("hi")).await;
    assert_eq!(reply.stop, StopReason::Length);
}

/// Checks every count that a format reports. The other counts must be zero.
async fn usage(at: GridCell) {
    let spent =
        scripted::ScriptUsage { input: 100, output: 40, cache_read: 30, cache_write: 20, reasoning: 7 };
    let reply = at.reply(ScriptStep::text("x").using(spent), asking("hi")).await;
    let all = TokenUsage { input: 100, output: 40, cache_read: 30, cache_write: 20, reasoning: 7 };
    let expected = match at.format {
        ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses | ModelApiFormat::Anthropic => all,
        ModelApiFormat::Gemini => TokenUsage { cache_write: 0, ..all },
        ModelApiFormat::Ollama => TokenUsage { input: 100, output: 40, ..TokenUsage::default() },
    };
    assert_eq!(reply.usage, Some(expected), "{at:?}");
}

/// Dropping the stream in the middle of a reply must close the connection, which the server notices.
async fn cancellation(at: GridCell) {
    let pace = ResponsePace {
        chunk_bytes: Some(8),
        between_milliseconds: 20,
        first_byte_milliseconds: 20,
        ..ResponsePace::default()
    };
    let asker = at.asker([ScriptStep::text(&"long ".repeat(4000)).at_pace(pace)]);
    let (provider, cx) = (asker.provider(), asker.context());
    let mut replies = provider.ask(asking("hi"), &cx);
    match at.delivery {
        ReplyDelivery::Streamed => {
            while !matches!(replies.next().await.unwrap().unwrap(), ModelEvent::PartDelta { .. }) {}
        }
        // A whole reply yields no events before its end, so the test waits for the request to arrive.
        ReplyDelivery::Whole => {
            let arrived = async {
                while asker.server.requests().is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                _ = replies.next() => panic!("the reply arrived before the request was cancelled"),
                () = arrived => {}
            }
        }
    }
    drop(replies);
    let server = &asker.server;
    eventually("the server sees that the client abandoned the request", || {
        server.requests()[0].outcome == RequestOutcome::Abandoned
    });
    assert_eq!(asker.events.attempts(), ["m 1 cancelled"]);
}
