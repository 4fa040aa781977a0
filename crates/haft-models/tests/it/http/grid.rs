use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use haft_core::conversation::{Body, Format, Media, Message, Part, Source, ToolReply};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::ModelProvider;
use haft_core::model_reply::{ModelReply, StopReason, Usage};
use haft_core::model_request::{ModelRequest, OutputShape, ToolChoice};
use haft_model_server::{self as scripted, Expect, Outcome, Pace, Step, Stop};
use haft_models::Delivery;
use haft_testkit::eventually;
use serde_json::json;

use super::asker::{Asker, asking, request};
use crate::fixture::tools;

/// A scenario: its name, its test, and the formats that lack it, with the reason.
type Scenario = (&'static str, fn(At) -> BoxFuture<'static, ()>, &'static [(Format, &'static str)]);

/// A cell of the grid.
#[derive(Debug, Clone, Copy)]
struct At {
    format: Format,
    delivery: Delivery,
}

impl At {
    fn asker(self, steps: impl IntoIterator<Item = Step>) -> Asker {
        Asker::new(self.format, steps).delivered(self.delivery)
    }

    /// Sends one request and expects a success.
    async fn reply(self, step: Step, request: ModelRequest) -> ModelReply {
        self.asker([step]).ask(request).await.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }
}

const NO_CHOICE: &[(Format, &str)] = &[(Format::Ollama, "has no word for it; the loop insists")];

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
            (Format::OpenaiChat, "its inventor takes no reasoning back"),
            (Format::Ollama, "reasoning has no state there"),
        ],
    ),
    ("forced tool", |at| Box::pin(forced_tool(at)), NO_CHOICE),
    ("required", |at| Box::pin(required(at)), NO_CHOICE),
    ("none", |at| Box::pin(none(at)), &[]),
    ("structured output", |at| Box::pin(structured(at)), &[]),
    (
        "refusal",
        |at| Box::pin(refusal(at)),
        &[(Format::Gemini, "declines in plain text"), (Format::Ollama, "declines in plain text")],
    ),
    ("citation", |at| Box::pin(citation(at)), &[(Format::Ollama, "says where nothing comes from")]),
    (
        "kept back by the provider",
        |at| Box::pin(blocked(at)),
        &[
            (Format::Anthropic, "has one word for this and for a refusal"),
            (Format::Ollama, "has no filter of its own"),
        ],
    ),
    ("length stop", |at| Box::pin(length(at)), &[]),
    ("usage", |at| Box::pin(usage(at)), &[]),
    ("cancellation", |at| Box::pin(cancellation(at)), &[]),
];

// Needs its own threads: waiting for the server blocks this thread, and the connection must close meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scenario_works_in_every_format() {
    for (name, scenario, skipped) in SCENARIOS {
        for format in Format::ALL.into_iter().filter(|format| !skipped.iter().any(|(skip, _)| skip == format))
        {
            for delivery in [Delivery::Streamed, Delivery::Whole] {
                println!("{name}: {format:?}, {delivery:?}");
                scenario(At { format, delivery }).await;
            }
        }
    }
}

async fn text(at: At) {
    let step = Step::text("Hello, wörld.").expecting(Expect {
        user: Some("hi".into()),
        system: Some("be brief".into()),
        model: Some("m".into()),
        ..Expect::default()
    });
    let reply = at.reply(step, ModelRequest { system: "be brief".into(), ..asking("hi") }).await;
    assert_eq!((reply.text().as_str(), &reply.stop), ("Hello, wörld.", &StopReason::EndOfTurn));
}

async fn tool_call(at: At) {
    let asker = at.asker([
        Step::call("read", json!({"path": "Paris"})),
        Step::text("It is 21 degrees.")
            .expecting(Expect { last_tool_result: Some("21".into()), ..Expect::default() }),
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

async fn parallel_calls(at: At) {
    let calls = ["Paris", "Rome"].map(|city| scripted::Part::call("read", json!({ "path": city })));
    let asker = at.asker([
        Step::say(calls),
        Step::text("Rome.")
            .expecting(Expect { tool_results: Some(vec!["21".into(), "25".into()]), ..Expect::default() }),
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

async fn error_result(at: At) {
    let flagged = match at.format {
        Format::Anthropic => r#""is_error":true"#,
        Format::Gemini => r#""error":"sunk""#,
        Format::OpenaiChat | Format::OpenaiResponses | Format::Ollama => "Error: sunk",
    };
    let told = Expect {
        last_tool_result: Some("sunk".into()),
        body_contains: vec![flagged.into()],
        ..Expect::default()
    };
    let asker = at.asker([
        Step::call("read", json!({"path": "Atlantis"})),
        Step::text("No such city.").expecting(told),
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

async fn image(at: At) {
    let bytes = b"\x89PNG not really".as_slice();
    let media = Media { media_type: "image/png".into(), source: Source::Bytes(bytes.into()) };
    let mut message = Message::user("What is this?");
    message.parts.push(Part::new(Body::Image(media)));
    let step = Step::text("A picture.")
        .expecting(Expect { body_contains: vec!["iVBORyBub3QgcmVhbGx5".into()], ..Expect::default() });
    assert_eq!(at.reply(step, request([message])).await.text(), "A picture.");
}

async fn reasoning(at: At) {
    let thought = scripted::Part::reasoning("Let me think.", "c3RhdGUtMQ==");
    let asker = at.asker([
        Step::say([thought, scripted::Part::call("read", json!({"path": "Paris"}))]),
        Step::text("21.")
            .expecting(Expect { body_contains: vec!["c3RhdGUtMQ==".into()], ..Expect::default() }),
    ]);
    let first = ModelRequest { tools: tools(), ..asking("How is the weather?") };
    let reply = asker.ask(first.clone()).await.unwrap();
    assert!(
        reply.parts.iter().any(|part| matches!(&part.body, Body::Reasoning(text) if text == "Let me think."))
    );
    let answered = ToolReply::text(reply.calls().next().unwrap(), "21");
    let mut conversation = (*first.conversation).clone();
    conversation.push(reply.into_message()).unwrap();
    conversation.push(Message::tool(vec![answered])).unwrap();
    let second = ModelRequest { conversation: Arc::new(conversation), ..first };
    assert_eq!(asker.ask(second).await.unwrap().text(), "21.");
}

async fn with_choice(at: At, choice: ToolChoice, expected: scripted::ToolChoice) {
    let step = Step::text("ok").expecting(Expect { tool_choice: Some(expected), ..Expect::default() });
    let asked = ModelRequest { tools: tools(), tool_choice: choice, ..asking("hi") };
    assert_eq!(at.reply(step, asked).await.text(), "ok");
}

async fn forced_tool(at: At) {
    with_choice(at, ToolChoice::Named("read".into()), scripted::ToolChoice::Tool("read".into())).await;
}

async fn required(at: At) {
    with_choice(at, ToolChoice::Required, scripted::ToolChoice::Required).await;
}

async fn none(at: At) {
    // Ollama has no tool choice, so the tools are left out.
    if at.format == Format::Ollama {
        let step = Step::text("ok").expecting(Expect { tools: Some(vec![]), ..Expect::default() });
        let asked = ModelRequest { tools: tools(), tool_choice: ToolChoice::None, ..asking("hi") };
        assert_eq!(at.reply(step, asked).await.text(), "ok");
        return;
    }
    with_choice(at, ToolChoice::None, scripted::ToolChoice::None).await;
}

async fn structured(at: At) {
    let schema = json!({
        "type": "object", "properties": { "city": { "type": "string" } },
        "required": ["city"], "additionalProperties": false,
    });
    let output = OutputShape::Schema { name: "place".into(), schema: Arc::new(schema) };
    let step = Step::say([scripted::Part::Json(json!({ "city": "Paris" }))])
        .expecting(Expect { body_contains: vec!["\"city\"".into()], ..Expect::default() });
    let reply = at.reply(step, ModelRequest { output, ..asking("Where?") }).await;
    assert_eq!(reply.text(), r#"{"city":"Paris"}"#);
}

async fn refusal(at: At) {
    let reply = at.reply(Step::say([scripted::Part::Refusal("I will not.".into())]), asking("hi")).await;
    assert_eq!(reply.stop, StopReason::Refusal, "{reply:?}");
}

async fn citation(at: At) {
    let url = "https://example.com/haft";
    let cited = scripted::Cited { text: "A handle.".into(), url: url.into(), title: "Haft".into() };
    let reply = at.reply(Step::say([scripted::Part::Cited(cited)]), asking("hi")).await;
    let annotations = reply.parts.iter().filter_map(|part| match &part.body {
        Body::Text { annotations, .. } => Some(annotations),
        _ => None,
    });
    let sources: Vec<String> = annotations.flatten().map(|source| source.json.to_string()).collect();
    assert!(sources.len() == 1 && sources[0].contains(url), "{at:?}: {sources:?}");
    assert_eq!(reply.text(), "A handle.");
}

async fn blocked(at: At) {
    let reply = at.reply(Step::say([]).stopping(Stop::Blocked), asking("hi")).await;
    assert_eq!((reply.stop, reply.parts.len()), (StopReason::Filtered, 0), "{at:?}");
}

async fn length(at: At) {
    let reply = at.reply(Step::text("It goes on").stopping(Stop::Length), asking("hi")).await;
    assert_eq!(reply.stop, StopReason::Length);
}

/// Checks every count that a format reports; the others must be zero.
async fn usage(at: At) {
    let spent = scripted::Usage { input: 100, output: 40, cache_read: 30, cache_write: 20, reasoning: 7 };
    let reply = at.reply(Step::text("x").using(spent), asking("hi")).await;
    let all = Usage { input: 100, output: 40, cache_read: 30, cache_write: 20, reasoning: 7 };
    let expected = match at.format {
        Format::OpenaiChat | Format::OpenaiResponses | Format::Anthropic => all,
        Format::Gemini => Usage { cache_write: 0, ..all },
        Format::Ollama => Usage { input: 100, output: 40, ..Usage::default() },
    };
    assert_eq!(reply.usage, Some(expected), "{at:?}");
}

/// Dropping the stream in the middle of a reply must close the connection, which the server notices.
async fn cancellation(at: At) {
    let pace = Pace {
        chunk_bytes: Some(8),
        between_milliseconds: 20,
        first_byte_milliseconds: 20,
        ..Pace::default()
    };
    let asker = at.asker([Step::text(&"long ".repeat(4000)).at_pace(pace)]);
    let (provider, cx) = (asker.provider(), asker.context());
    let mut replies = provider.ask(asking("hi"), &cx);
    match at.delivery {
        Delivery::Streamed => {
            while !matches!(replies.next().await.unwrap().unwrap(), ModelEvent::PartDelta { .. }) {}
        }
        // A whole reply yields no events before its end, so the test waits for the request to arrive.
        Delivery::Whole => {
            let arrived = async {
                while asker.server.requests().is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                _ = replies.next() => panic!("it cannot be there"),
                () = arrived => {}
            }
        }
    }
    drop(replies);
    let server = &asker.server;
    eventually("the server notices", || server.requests()[0].outcome == Outcome::Abandoned);
    assert_eq!(asker.events.attempts(), ["m 1 cancelled"]);
}
