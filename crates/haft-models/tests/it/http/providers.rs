use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use haft_core::conversation::ModelApiFormat;
use haft_core::event::Event;
use haft_core::model_provider::ModelProvider;
use haft_core::price::Cost;
use haft_model_server::{ErrorResponse, ModelServer, RequestExpectation, Script, ScriptStep, ScriptUsage};
use haft_models::fallback::FallbackProvider;
use haft_models::http::RetryPolicy;
use haft_models::provider_circuit::{FAILURES_MAX, ProviderCircuits};
use haft_models::providers::ProviderOverrides;
use serde_json::json;

use super::client::{ClientFixture, KEY, asking, whole};
use super::failures::{patient_provider, raw_provider};

#[tokio::test]
async fn finished_event_has_tokens_latency_and_cost() {
    let spent = ScriptUsage { input: 1000, output: 100, ..ScriptUsage::default() };
    let asker = ClientFixture::new(ModelApiFormat::Anthropic, [ScriptStep::text("x").using(spent)]);
    asker.ask(asking("hi")).await.unwrap();
    let events = asker.events.all();
    let Event::ModelFinished { account, principal, .. } = &events[1] else { panic!("{events:?}") };
    assert_eq!(principal.to_string(), "local");
    assert_eq!(account.usage.unwrap().input, 1000);
    // The request has 1000 input tokens at 1 dollar per million, and 100 output tokens at 2 dollars per million.
    assert_eq!(account.cost, Some(Cost { nano_usd: 1_200_000 }));
    assert!(account.first_event.unwrap() <= account.latency);
}

#[tokio::test]
async fn unsupported_request_feature_is_noted_in_the_reply() {
    for format in ModelApiFormat::ALL {
        let asker = ClientFixture::new(format, [ScriptStep::text("x")]);
        let mut request = asking("hi");
        request.context_tokens = Some(9000);
        let notes: Vec<String> =
            asker.ask(request).await.unwrap().notes.iter().map(ToString::to_string).collect();
        let expected = match format {
            ModelApiFormat::Ollama => Vec::new(),
            _ => vec!["the provider does not support context size: the server chooses the context size"],
        };
        assert_eq!(notes, expected, "{format:?}");
    }
}

#[tokio::test]
async fn configured_headers_and_extra_body_fields_are_sent() {
    let expected =
        RequestExpectation { body_contains: vec!["\"top_a\":0.3".into()], ..RequestExpectation::default() };
    let asker = ClientFixture::new(ModelApiFormat::OpenaiChat, [ScriptStep::text("x").expecting(expected)]);
    let extra_body = json!({ "top_a": 0.3 }).as_object().unwrap().clone();
    let headers = vec![("X-Title".to_owned(), "haft".into())];
    let provider =
        asker.provider_with(ProviderOverrides { headers, extra_body, ..ProviderOverrides::default() });
    whole(&provider, asking("hi"), &asker.context()).await.unwrap();
    let sent = &asker.server.requests()[0].headers;
    assert_eq!(sent["x-title"], "haft");
    assert!(sent["user-agent"].starts_with("haft/"));
    assert!(!format!("{provider:?}").contains(KEY));
}

#[tokio::test]
async fn wrong_key_error_does_not_contain_the_key() {
    for format in ModelApiFormat::ALL.into_iter().filter(|format| *format != ModelApiFormat::Ollama) {
        let asker = ClientFixture::new(format, [ScriptStep::text("x")]);
        let provider = asker.provider_with(ProviderOverrides {
            key: Some("sk-wrong-999".into()),
            ..ProviderOverrides::default()
        });
        let error = whole(&provider, asking("hi"), &asker.context()).await.unwrap_err();
        assert_eq!(error.kind.name(), "unauthorized", "{format:?}");
        assert!(!error.to_string().contains("999"), "{error}");
    }
}

#[tokio::test]
async fn every_provider_lists_its_models() {
    for format in ModelApiFormat::ALL {
        let mut asker = ClientFixture::new(format, [ScriptStep::text("x")]);
        let script =
            Script { models: vec!["small".into(), "large".into()], ..Script::of([ScriptStep::text("x")]) };
        asker.server = ModelServer::start(script.with_key(KEY)).unwrap();
        let models = asker.provider().models().await.unwrap();
        assert_eq!(models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), ["small", "large"]);
    }
}

#[tokio::test]
async fn model_list_request_is_retried_when_the_server_is_busy() {
    let answers = ["503 Busy\r\nRetry-After: 0", "429 Slow", "200 OK"];
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        for head in answers {
            let (mut connection, _) = listener.accept().unwrap();
            let _ = connection.read(&mut [0_u8; 4096]);
            let body = r#"{"data": [{"id": "small"}]}"#;
            let length = body.len();
            let _ = write!(
                connection,
                "HTTP/1.1 {head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
        }
    });
    let retry = RetryPolicy { delay_first: Duration::from_millis(1), ..RetryPolicy::default() };
    assert_eq!(patient_provider(address, retry).models().await.unwrap()[0].id, "small");
    server.join().unwrap();
    // The list request fails, because the server has stopped listening.
    assert_eq!(raw_provider(address).models().await.unwrap_err().kind.name(), "unreachable");
}

#[tokio::test]
async fn fallback_model_answers_when_the_first_fails() {
    let first =
        ClientFixture::new(ModelApiFormat::OpenaiChat, [ScriptStep::fail(ErrorResponse::new(401, "no"))]);
    let expected = RequestExpectation { model: Some("second".into()), ..RequestExpectation::default() };
    let second =
        ClientFixture::new(ModelApiFormat::Anthropic, [ScriptStep::text("here").expecting(expected)]);
    let provider = FallbackProvider::new(
        Box::new(first.provider()),
        vec![(Box::new(second.provider()) as Box<dyn ModelProvider>, "second".to_owned())],
    );
    let reply = whole(&provider, asking("hi"), &first.context()).await.unwrap();
    assert_eq!(reply.text(), "here");
    assert_eq!(first.events.attempts(), ["m 1 unauthorized", "second 1 ok"]);
    let notes: Vec<String> = reply.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["the model openai/m failed, so haft used a fallback model: no"]);
}

#[tokio::test]
async fn provider_that_keeps_failing_is_skipped_for_all_runs() {
    let first = ClientFixture::new(ModelApiFormat::OpenaiChat, [ScriptStep::text("never")]);
    let second = ClientFixture::new(ModelApiFormat::Anthropic, [ScriptStep::text("here")]);
    let circuits = ProviderCircuits::default();
    // Nothing listens on this port, so the provider is at fault.
    let dead = raw_provider(SocketAddr::from(([127, 0, 0, 1], 9)));
    let then: Vec<(Box<dyn ModelProvider>, String)> = vec![(Box::new(second.provider()), "second".into())];
    let provider = FallbackProvider::new(Box::new(dead), then);
    let provider = provider.with_circuits(vec![circuits.of("dead", ""), circuits.of("second", "")]);
    for _ in 0..FAILURES_MAX {
        assert_eq!(circuits.states()[0], ("dead".to_owned(), "closed"));
        assert_eq!(whole(&provider, asking("hi"), &second.context()).await.unwrap().text(), "here");
    }
    assert_eq!(circuits.states(), [("dead".to_owned(), "open"), ("second".to_owned(), "closed")]);
    // Another run has its own provider objects and shares only the circuits.
    let then: Vec<(Box<dyn ModelProvider>, String)> = vec![(Box::new(second.provider()), "second".into())];
    let other = FallbackProvider::new(Box::new(first.provider()), then);
    let other = other.with_circuits(vec![circuits.of("dead", ""), circuits.of("second", "")]);
    let reply = whole(&other, asking("hi"), &second.context()).await.unwrap();
    assert_eq!(reply.text(), "here");
    assert!(first.server.requests().is_empty());
    let notes: Vec<String> = reply.notes.iter().map(ToString::to_string).collect();
    assert!(notes[0].contains("does not ask this provider for 30 s"), "{notes:?}");
}

#[tokio::test]
async fn error_after_failed_fallbacks_has_the_message_of_every_model() {
    let failing =
        |format, message| ClientFixture::new(format, [ScriptStep::fail(ErrorResponse::new(401, message))]);
    let (first, second) =
        (failing(ModelApiFormat::OpenaiChat, "wrong key"), failing(ModelApiFormat::Anthropic, "no key"));
    let then: Vec<(Box<dyn ModelProvider>, String)> = vec![(Box::new(second.provider()), "second".into())];
    let provider = FallbackProvider::new(Box::new(first.provider()), then);
    let error = whole(&provider, asking("hi"), &first.context()).await.unwrap_err();
    assert_eq!(error.message, "no key; before that, openai/m failed: wrong key");
}

#[tokio::test]
async fn invalid_request_is_not_sent_to_fallback_models() {
    let first =
        ClientFixture::new(ModelApiFormat::OpenaiChat, [ScriptStep::fail(ErrorResponse::new(400, "bad"))]);
    let second = ClientFixture::new(ModelApiFormat::Ollama, [ScriptStep::text("never")]);
    let then: Vec<(Box<dyn ModelProvider>, String)> = vec![(Box::new(second.provider()), "second".into())];
    let provider = FallbackProvider::new(Box::new(first.provider()), then);
    let error = whole(&provider, asking("hi"), &first.context()).await.unwrap_err();
    assert_eq!(error.kind.name(), "invalid_request");
    assert!(second.server.requests().is_empty());
}

#[tokio::test]
async fn sequential_requests_reuse_one_connection() {
    let (address, connections) = counting();
    let (provider, cx) =
        (raw_provider(address), ClientFixture::new(ModelApiFormat::OpenaiChat, []).context());
    for _ in 0..5 {
        assert_eq!(whole(&provider, asking("hi"), &cx).await.unwrap().text(), "x");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// Starts a server that answers several requests per connection, and counts the connections.
fn counting() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&connections);
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || while answer(&connection).is_some() {});
        }
    });
    (address, connections)
}

/// Reads one request and answers it. Returns `None` when the client has disconnected.
fn answer(connection: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(connection);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    let chunk = json!({ "choices": [{ "index": 0, "delta": { "content": "x" }, "finish_reason": "stop" }] });
    let body = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length";
    let mut connection = connection;
    write!(connection, "{head}: {}\r\n\r\n{body}", body.len()).ok()
}
