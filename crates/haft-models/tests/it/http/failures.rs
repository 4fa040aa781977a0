use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use futures_util::StreamExt;
use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::ModelProvider;
use haft_core::model_reply::StopReason;
use haft_model_server::{ErrorResponse, ResponseFault, ResponsePace, ScriptStep};
use haft_models::ReplyDelivery;
use haft_models::http::{CertificateAuthorities, HttpProvider, HttpSettings, ModelTimeouts, RetryPolicy};
use haft_models::prices::Prices;
use haft_models::providers::{ProviderOverrides, ProviderRow};

use super::client::{ClientFixture, KEY, asking, whole};

/// Checks the error that a script causes in all formats, and the results of its attempts.
async fn check(step: impl Fn() -> Vec<ScriptStep>, kind: ModelErrorKind, attempts: &[&str]) {
    for format in ModelApiFormat::ALL {
        let asker = ClientFixture::new(format, step());
        let error = asker.ask(asking("hi")).await.unwrap_err();
        assert_eq!(error.kind, kind, "{format:?}: {error}");
        assert_eq!(asker.events.attempts(), attempts, "{format:?}");
    }
}

#[tokio::test]
async fn transient_errors_are_retried_and_every_attempt_is_reported() {
    for format in ModelApiFormat::ALL {
        let steps = [
            ScriptStep::fail(ErrorResponse::new(502, "starting")),
            ScriptStep::fail(ErrorResponse::new(500, "oh no")),
            ScriptStep::text("there"),
        ];
        let asker = ClientFixture::new(format, steps);
        assert_eq!(asker.ask(asking("hi")).await.unwrap().text(), "there", "{format:?}");
        assert_eq!(
            asker.events.attempts(),
            ["m 1 server_failed", "m 2 server_failed", "m 3 ok"],
            "{format:?}"
        );
    }
}

#[tokio::test]
async fn last_error_is_returned_after_four_attempts() {
    let busy = || vec![ScriptStep::fail(ErrorResponse::new(500, "oh no"))];
    let all = ["m 1 server_failed", "m 2 server_failed", "m 3 server_failed", "m 4 server_failed"];
    check(busy, ModelErrorKind::ServerFailed, &all).await;
}

#[tokio::test]
async fn request_with_a_non_retryable_error_is_sent_once() {
    let failing = |status, message| move || vec![ScriptStep::fail(ErrorResponse::new(status, message))];
    check(failing(401, "no"), ModelErrorKind::Unauthorized, &["m 1 unauthorized"]).await;
    check(failing(400, "bad"), ModelErrorKind::InvalidRequest, &["m 1 invalid_request"]).await;
    let spent = failing(429, "You exceeded your current quota, please check your plan");
    check(spent, ModelErrorKind::QuotaExhausted, &["m 1 quota_exhausted"]).await;
}

/// The key has no known prefix. The server repeats it in an error response and in an error inside a stream.
#[tokio::test]
async fn key_repeated_by_the_server_is_redacted() {
    for format in ModelApiFormat::ALL {
        let repeated = ErrorResponse::new(401, &format!("the token {KEY} is unknown"));
        let late = ResponseFault::ErrorEvent { after_frames: 3, error: repeated.clone() };
        let text = "many words that come in several frames, one after the other";
        for step in [ScriptStep::fail(repeated), ScriptStep::text(text).with_fault(late)] {
            let error = ClientFixture::new(format, [step]).ask(asking("hi")).await.unwrap_err();
            assert!(error.message.contains("the token [redacted] is unknown"), "{format:?}: {error}");
        }
    }
}

#[tokio::test]
async fn request_with_retry_after_of_an_hour_is_not_retried() {
    let step = || vec![ScriptStep::fail(ErrorResponse::new(429, "slow down").retry_after(3600))];
    check(step, ModelErrorKind::RateLimited, &["m 1 rate_limited"]).await;
}

#[tokio::test]
async fn request_with_retry_after_of_one_second_is_retried_after_the_wait() {
    let steps =
        [ScriptStep::fail(ErrorResponse::new(429, "slow down").retry_after(1)), ScriptStep::text("there")];
    let asker = ClientFixture::new(ModelApiFormat::OpenaiChat, steps);
    let began = std::time::Instant::now();
    assert_eq!(asker.ask(asking("hi")).await.unwrap().text(), "there");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn error_in_a_200_stream_before_the_first_token_is_retried() {
    for format in ModelApiFormat::ALL {
        let fault =
            ResponseFault::ErrorEvent { after_frames: 0, error: ErrorResponse::new(529, "overloaded_error") };
        let asker =
            ClientFixture::new(format, [ScriptStep::text("x").with_fault(fault), ScriptStep::text("there")]);
        let reply = asker.ask(asking("hi")).await;
        assert_eq!(reply.unwrap().text(), "there", "{format:?}");
        assert_eq!(asker.events.attempts().len(), 2, "{format:?}");
    }
}

#[tokio::test]
async fn stream_broken_after_its_first_tokens_is_not_retried() {
    for format in ModelApiFormat::ALL {
        let text = "many words that come in several frames, one after the other";
        let fault = ResponseFault::Cut { after_frames: 5, and_bytes: 3 };
        let asker =
            ClientFixture::new(format, [ScriptStep::text(text).with_fault(fault), ScriptStep::text("never")]);
        let (provider, cx) = (asker.provider(), asker.context());
        let events: Vec<Result<ModelEvent, ModelError>> = provider.ask(asking("hi"), &cx).collect().await;
        let seen = events.iter().filter(|event| matches!(event, Ok(ModelEvent::PartDelta { .. }))).count();
        assert!(seen > 0, "{format:?}: {events:?}");
        let error = events.last().unwrap().as_ref().unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Unreachable, "{format:?}: {error}");
        assert_eq!(asker.events.attempts(), ["m 1 unreachable"], "{format:?}");
    }
}

#[tokio::test]
async fn stream_that_ends_early_keeps_its_text_and_is_reported_as_cut_off() {
    for format in ModelApiFormat::ALL {
        let fault = ResponseFault::EndEarly { after_frames: 5 };
        let text = "many words that come in several frames, one after the other";
        let asker = ClientFixture::new(format, [ScriptStep::text(text).with_fault(fault)]);
        let reply = asker.ask(asking("hi")).await.unwrap();
        assert_eq!(reply.stop, StopReason::CutOff, "{format:?}");
        assert!(!reply.text().is_empty(), "{format:?}");
    }
}

#[tokio::test]
async fn silent_server_times_out_before_and_after_the_first_byte() {
    for format in ModelApiFormat::ALL {
        let quick = Duration::from_millis(200);
        let hang = ResponseFault::Hang { after_frames: 5 };
        let mut asker =
            ClientFixture::new(format, [ScriptStep::text(&"words and ".repeat(9)).with_fault(hang)]);
        asker.timeouts.between_chunks = quick;
        assert_eq!(asker.ask(asking("hi")).await.unwrap_err().kind, ModelErrorKind::Timeout, "{format:?}");
        assert_eq!(asker.events.attempts(), ["m 1 timeout"], "{format:?}");

        let pace = ResponsePace { first_byte_milliseconds: 60_000, ..ResponsePace::default() };
        let mut asker = ClientFixture::new(format, [ScriptStep::text("x").at_pace(pace)]);
        asker.timeouts.first_byte = quick;
        assert_eq!(asker.ask(asking("hi")).await.unwrap_err().kind, ModelErrorKind::Timeout, "{format:?}");
        assert_eq!(asker.events.attempts().len(), 4, "{format:?}");
    }
}

#[tokio::test]
async fn slow_stream_ends_at_the_total_timeout() {
    let pace = ResponsePace { chunk_bytes: Some(1), between_milliseconds: 50, ..ResponsePace::default() };
    let mut asker =
        ClientFixture::new(ModelApiFormat::Anthropic, [ScriptStep::text(&"x".repeat(10_000)).at_pace(pace)]);
    asker.timeouts.total = Duration::from_secs(2);
    let error = asker.ask(asking("hi")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert!(error.message.contains("total time limit"), "{error}");
}

#[tokio::test]
async fn html_page_is_an_error_and_not_a_reply() {
    let page = "<!DOCTYPE html><html><body>Bad Gateway</body></html>";
    let raw = |status| ErrorResponse { raw: Some(page.into()), ..ErrorResponse::new(status, "") };
    for format in ModelApiFormat::ALL {
        let asker = ClientFixture::new(format, [ScriptStep::fail(raw(502))]);
        let error = asker.ask(asking("hi")).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::ServerFailed, "{format:?}: {error}");
        let asker = ClientFixture::new(format, [ScriptStep::fail(raw(200))]).delivered(ReplyDelivery::Whole);
        let error = asker.ask(asking("hi")).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed, "{format:?}: {error}");
    }
}

#[tokio::test]
async fn invalid_frame_in_a_stream_is_malformed_or_skipped() {
    for format in ModelApiFormat::ALL {
        for frame in ["data: {\n\n", "data: [[[\n\n", "event: x\n\n", "{\"a\":\n", "\u{0}\u{7}\n\n"] {
            let fault = ResponseFault::Malformed { after_frames: 2, frame: frame.into() };
            let asker = ClientFixture::new(format, [ScriptStep::text("some words").with_fault(fault)]);
            match asker.ask(asking("hi")).await {
                Ok(reply) => assert!(reply.text().len() <= "some words".len(), "{format:?} {frame:?}"),
                Err(error) => {
                    assert_eq!(error.kind, ModelErrorKind::Malformed, "{format:?} {frame:?} {error}");
                }
            }
        }
    }
}

/// Starts a server that answers every request with the same headers and a body with this many bytes.
fn endless(head: &'static str, piece: &'static [u8], bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            let mut asked = [0_u8; 4096];
            let _ = connection.read(&mut asked);
            let _ = write!(connection, "HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
            let mut sent = 0;
            while sent < bytes && connection.write_all(piece).is_ok() {
                sent += piece.len();
            }
        }
    });
    address
}

pub(super) fn raw_provider(address: SocketAddr) -> HttpProvider {
    patient_provider(address, RetryPolicy::NEVER)
}

pub(super) fn patient_provider(address: SocketAddr, retry: RetryPolicy) -> HttpProvider {
    provider_in(ModelApiFormat::OpenaiChat, address, retry)
}

fn provider_in(format: ModelApiFormat, address: SocketAddr, retry: RetryPolicy) -> HttpProvider {
    provider_delivering(ReplyDelivery::Streamed, format, address, retry)
}

fn provider_delivering(
    delivery: ReplyDelivery,
    format: ModelApiFormat,
    address: SocketAddr,
    retry: RetryPolicy,
) -> HttpProvider {
    let row = ProviderRow::named("compatible").unwrap();
    let wishes = ProviderOverrides {
        base_url: Some(format!("http://{address}")),
        format: Some(format),
        ..ProviderOverrides::default()
    };
    HttpProvider::new(HttpSettings {
        name: "raw".into(),
        endpoint: row.endpoint(wishes, &|_| None).unwrap(),
        authorities: CertificateAuthorities::default(),
        delivery,
        timeouts: ModelTimeouts { total: Duration::from_mins(1), ..ModelTimeouts::default() },
        retry,
        prices: Prices::default(),
    })
    .unwrap()
}

async fn raw_error(address: SocketAddr) -> ModelError {
    raw_error_in(ModelApiFormat::OpenaiChat, address).await
}

async fn raw_error_in(format: ModelApiFormat, address: SocketAddr) -> ModelError {
    let asker = ClientFixture::new(format, []);
    let provider = provider_in(format, address, RetryPolicy::NEVER);
    whole(&provider, asking("hi"), &asker.context()).await.unwrap_err()
}

/// Response headers with a content length that is never reached, because the connection breaks after the bytes that are
/// sent.
const BROKEN: &str = "200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999";

#[tokio::test]
async fn connection_broken_after_the_stop_reason_loses_no_text() {
    let whole_reply =
        b"data: {\"choices\":[{\"delta\":{\"content\":\"All of it.\"},\"finish_reason\":\"stop\"}]}\n\n";
    let provider = raw_provider(endless(BROKEN, whole_reply, 1));
    let asker = ClientFixture::new(ModelApiFormat::OpenaiChat, []);
    let reply = whole(&provider, asking("hi"), &asker.context()).await.unwrap();
    assert_eq!((reply.text().as_str(), reply.stop), ("All of it.", StopReason::EndOfTurn));
    let half = b"data: {\"choices\":[{\"delta\":{\"content\":\"Half of\"}}]}\n\n";
    let provider = raw_provider(endless(BROKEN, half, 1));
    let error = whole(&provider, asking("hi"), &asker.context()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable, "{error}");
}

/// Proxies may drop or change the content type.
#[tokio::test]
async fn body_is_decoded_despite_a_wrong_content_type() {
    let (head_json, head_nothing) = ("200 OK\r\nContent-Type: application/json", "200 OK\r\nX-Nothing: 1");
    let whole_body = br#"{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}"#;
    let stream = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    for (delivery, head, body) in [
        (ReplyDelivery::Streamed, head_json, stream.as_slice()),
        (ReplyDelivery::Streamed, head_nothing, stream.as_slice()),
        (ReplyDelivery::Whole, head_nothing, whole_body.as_slice()),
        (ReplyDelivery::Whole, head_json, whole_body.as_slice()),
    ] {
        let address = endless(head, body, 1);
        let provider = provider_delivering(delivery, ModelApiFormat::OpenaiChat, address, RetryPolicy::NEVER);
        let asker = ClientFixture::new(ModelApiFormat::OpenaiChat, []);
        let reply = whole(&provider, asking("hi"), &asker.context()).await.unwrap();
        assert_eq!(reply.text(), "Hello.", "{delivery:?} {head}");
    }
}

#[tokio::test]
async fn reply_of_a_hundred_megabytes_is_rejected() {
    let line = b": a comment that keeps the connection alive and says nothing whatsoever, again and again\n";
    for format in ModelApiFormat::ALL {
        let stream = match format {
            ModelApiFormat::OpenaiChat
            | ModelApiFormat::OpenaiResponses
            | ModelApiFormat::Anthropic
            | ModelApiFormat::Gemini => {
                endless("200 OK\r\nContent-Type: text/event-stream", line, 100_000_000)
            }
            ModelApiFormat::Ollama => {
                endless("200 OK\r\nContent-Type: application/x-ndjson", &[b'x'; 8192], 100_000_000)
            }
        };
        assert_eq!(raw_error_in(format, stream).await.kind, ModelErrorKind::ReplyTooLarge, "{format:?}");
        let body = endless("200 OK\r\nContent-Type: application/json", &[b' '; 8192], 100_000_000);
        assert_eq!(raw_error_in(format, body).await.kind, ModelErrorKind::ReplyTooLarge, "{format:?}");
        let error = endless("500 Oops\r\nContent-Type: application/json", &[b'x'; 8192], 100_000_000);
        assert_eq!(raw_error_in(format, error).await.kind, ModelErrorKind::ServerFailed, "{format:?}");
    }
}

#[tokio::test]
async fn oversized_request_is_not_sent() {
    let asker = ClientFixture::new(ModelApiFormat::OpenaiChat, []);
    let error = asker.ask(asking(&"x".repeat(65 << 20))).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::RequestTooLarge, "{error}");
    assert!(asker.server.requests().is_empty() && error.message.len() < 200, "{error}");
}

#[tokio::test]
async fn refused_connection_html_page_and_redirect_are_different_errors() {
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let error = raw_error(closed).await;
    assert_eq!(error.kind, ModelErrorKind::Unreachable);
    assert!(error.message.contains("refused"), "{error}");
    let page = endless("200 OK\r\nContent-Type: text/html; charset=utf-8", b"<html>", 6);
    let error = raw_error(page).await;
    assert_eq!(error.kind, ModelErrorKind::Malformed);
    assert!(error.message.contains("an HTML page"), "{error}");
    let moved = endless("307 Moved\r\nLocation: http://elsewhere/v1?key=secret", b"", 0);
    let error = raw_error(moved).await;
    assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
    assert!(error.message.contains("`http://elsewhere/v1`"), "{error}");
}
