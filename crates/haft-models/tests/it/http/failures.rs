use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use futures_util::StreamExt;
use haft_core::conversation::Format;
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::ModelProvider;
use haft_core::model_reply::StopReason;
use haft_model_server::{Failure, Fault, Pace, Step};
use haft_models::Delivery;
use haft_models::http::{Authorities, HttpProvider, HttpSettings, RetryPolicy, Timeouts};
use haft_models::prices::Prices;
use haft_models::providers::{ProviderRow, Wishes};

use super::asker::{Asker, KEY, asking, whole};

/// Checks the error of a script in all formats, and the results of its attempts.
async fn check(step: impl Fn() -> Vec<Step>, kind: ModelErrorKind, attempts: &[&str]) {
    for format in Format::ALL {
        let asker = Asker::new(format, step());
        let error = asker.ask(asking("hi")).await.unwrap_err();
        assert_eq!(error.kind, kind, "{format:?}: {error}");
        assert_eq!(asker.events.attempts(), attempts, "{format:?}");
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_and_every_attempt_is_told() {
    for format in Format::ALL {
        let steps = [
            Step::fail(Failure::new(502, "starting")),
            Step::fail(Failure::new(500, "oh no")),
            Step::text("there"),
        ];
        let asker = Asker::new(format, steps);
        assert_eq!(asker.ask(asking("hi")).await.unwrap().text(), "there", "{format:?}");
        assert_eq!(
            asker.events.attempts(),
            ["m 1 server_failed", "m 2 server_failed", "m 3 ok"],
            "{format:?}"
        );
    }
}

#[tokio::test]
async fn attempts_end_and_the_last_error_is_given() {
    let busy = || vec![Step::fail(Failure::new(500, "oh no"))];
    let all = ["m 1 server_failed", "m 2 server_failed", "m 3 server_failed", "m 4 server_failed"];
    check(busy, ModelErrorKind::ServerFailed, &all).await;
}

#[tokio::test]
async fn what_stays_wrong_is_asked_once() {
    let failing = |status, message| move || vec![Step::fail(Failure::new(status, message))];
    check(failing(401, "no"), ModelErrorKind::Unauthorized, &["m 1 unauthorized"]).await;
    check(failing(400, "bad"), ModelErrorKind::InvalidRequest, &["m 1 invalid_request"]).await;
    let spent = failing(429, "You exceeded your current quota, please check your plan");
    check(spent, ModelErrorKind::QuotaExhausted, &["m 1 quota_exhausted"]).await;
}

/// The key has no known prefix. It appears in an error response and in an error inside a stream.
#[tokio::test]
async fn a_key_that_the_server_repeats_is_not_shown() {
    for format in Format::ALL {
        let repeated = Failure::new(401, &format!("the token {KEY} is unknown"));
        let late = Fault::ErrorEvent { after_frames: 3, error: repeated.clone() };
        let text = "many words that come in several frames, one after the other";
        for step in [Step::fail(repeated), Step::text(text).with_fault(late)] {
            let error = Asker::new(format, [step]).ask(asking("hi")).await.unwrap_err();
            assert!(error.message.contains("the token [redacted] is unknown"), "{format:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_wants_to_be_left_alone_for_an_hour_is_not_waited_for() {
    let step = || vec![Step::fail(Failure::new(429, "slow down").retry_after(3600))];
    check(step, ModelErrorKind::RateLimited, &["m 1 rate_limited"]).await;
}

#[tokio::test]
async fn a_wait_that_is_asked_for_is_kept() {
    let steps = [Step::fail(Failure::new(429, "slow down").retry_after(1)), Step::text("there")];
    let asker = Asker::new(Format::OpenaiChat, steps);
    let began = std::time::Instant::now();
    assert_eq!(asker.ask(asking("hi")).await.unwrap().text(), "there");
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_error_inside_a_good_answer_is_tried_again_before_the_first_token() {
    for format in Format::ALL {
        let fault = Fault::ErrorEvent { after_frames: 0, error: Failure::new(529, "overloaded_error") };
        let asker = Asker::new(format, [Step::text("x").with_fault(fault), Step::text("there")]);
        let reply = asker.ask(asking("hi")).await;
        assert_eq!(reply.unwrap().text(), "there", "{format:?}");
        assert_eq!(asker.events.attempts().len(), 2, "{format:?}");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_after_its_first_tokens_is_not_asked_for_again() {
    for format in Format::ALL {
        let text = "many words that come in several frames, one after the other";
        let fault = Fault::Cut { after_frames: 5, and_bytes: 3 };
        let asker = Asker::new(format, [Step::text(text).with_fault(fault), Step::text("never")]);
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
async fn a_stream_that_ends_too_early_keeps_what_came() {
    for format in Format::ALL {
        let fault = Fault::EndEarly { after_frames: 5 };
        let text = "many words that come in several frames, one after the other";
        let asker = Asker::new(format, [Step::text(text).with_fault(fault)]);
        let reply = asker.ask(asking("hi")).await.unwrap();
        assert_eq!(reply.stop, StopReason::CutOff, "{format:?}");
        assert!(!reply.text().is_empty(), "{format:?}");
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up_before_and_after_its_first_byte() {
    for format in Format::ALL {
        let quick = Duration::from_millis(200);
        let hang = Fault::Hang { after_frames: 5 };
        let mut asker = Asker::new(format, [Step::text(&"words and ".repeat(9)).with_fault(hang)]);
        asker.timeouts.between_chunks = quick;
        assert_eq!(asker.ask(asking("hi")).await.unwrap_err().kind, ModelErrorKind::Timeout, "{format:?}");
        assert_eq!(asker.events.attempts(), ["m 1 timeout"], "{format:?}");

        let pace = Pace { first_byte_milliseconds: 60_000, ..Pace::default() };
        let mut asker = Asker::new(format, [Step::text("x").at_pace(pace)]);
        asker.timeouts.first_byte = quick;
        assert_eq!(asker.ask(asking("hi")).await.unwrap_err().kind, ModelErrorKind::Timeout, "{format:?}");
        assert_eq!(asker.events.attempts().len(), 4, "{format:?}");
    }
}

#[tokio::test]
async fn a_slow_drip_ends_with_the_time_of_the_whole_request() {
    let pace = Pace { chunk_bytes: Some(1), between_milliseconds: 50, ..Pace::default() };
    let mut asker = Asker::new(Format::Anthropic, [Step::text(&"x".repeat(10_000)).at_pace(pace)]);
    asker.timeouts.total = Duration::from_secs(2);
    let error = asker.ask(asking("hi")).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert!(error.message.contains("all its time"), "{error}");
}

#[tokio::test]
async fn a_web_page_is_no_reply() {
    let page = "<!DOCTYPE html><html><body>Bad Gateway</body></html>";
    let raw = |status| Failure { raw: Some(page.into()), ..Failure::new(status, "") };
    for format in Format::ALL {
        let asker = Asker::new(format, [Step::fail(raw(502))]);
        let error = asker.ask(asking("hi")).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::ServerFailed, "{format:?}: {error}");
        let asker = Asker::new(format, [Step::fail(raw(200))]).delivered(Delivery::Whole);
        let error = asker.ask(asking("hi")).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Malformed, "{format:?}: {error}");
    }
}

#[tokio::test]
async fn garbage_in_a_stream_is_an_error_or_passed_over_and_never_more() {
    for format in Format::ALL {
        for frame in ["data: {\n\n", "data: [[[\n\n", "event: x\n\n", "{\"a\":\n", "\u{0}\u{7}\n\n"] {
            let fault = Fault::Malformed { after_frames: 2, frame: frame.into() };
            let asker = Asker::new(format, [Step::text("some words").with_fault(fault)]);
            match asker.ask(asking("hi")).await {
                Ok(reply) => assert!(reply.text().len() <= "some words".len(), "{format:?} {frame:?}"),
                Err(error) => {
                    assert_eq!(error.kind, ModelErrorKind::Malformed, "{format:?} {frame:?} {error}");
                }
            }
        }
    }
}

/// Starts a server that answers every request with the same head and a body of that many bytes.
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
    provider_in(Format::OpenaiChat, address, retry)
}

fn provider_in(format: Format, address: SocketAddr, retry: RetryPolicy) -> HttpProvider {
    provider_delivering(Delivery::Streamed, format, address, retry)
}

fn provider_delivering(
    delivery: Delivery,
    format: Format,
    address: SocketAddr,
    retry: RetryPolicy,
) -> HttpProvider {
    let row = ProviderRow::named("compatible").unwrap();
    let wishes =
        Wishes { base_url: Some(format!("http://{address}")), format: Some(format), ..Wishes::default() };
    HttpProvider::new(HttpSettings {
        name: "raw".into(),
        endpoint: row.endpoint(wishes, &|_| None).unwrap(),
        authorities: Authorities::default(),
        delivery,
        timeouts: Timeouts { total: Duration::from_mins(1), ..Timeouts::default() },
        retry,
        prices: Prices::default(),
    })
    .unwrap()
}

async fn raw_error(address: SocketAddr) -> ModelError {
    raw_error_in(Format::OpenaiChat, address).await
}

async fn raw_error_in(format: Format, address: SocketAddr) -> ModelError {
    let asker = Asker::new(format, []);
    let provider = provider_in(format, address, RetryPolicy::NEVER);
    whole(&provider, asking("hi"), &asker.context()).await.unwrap_err()
}

/// A content length that is never reached: the connection breaks right after the bytes that are sent.
const BROKEN: &str = "200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9999";

#[tokio::test]
async fn a_connection_that_breaks_after_the_reason_to_stop_loses_nothing() {
    let whole_reply =
        b"data: {\"choices\":[{\"delta\":{\"content\":\"All of it.\"},\"finish_reason\":\"stop\"}]}\n\n";
    let provider = raw_provider(endless(BROKEN, whole_reply, 1));
    let asker = Asker::new(Format::OpenaiChat, []);
    let reply = whole(&provider, asking("hi"), &asker.context()).await.unwrap();
    assert_eq!((reply.text().as_str(), reply.stop), ("All of it.", StopReason::EndOfTurn));
    let half = b"data: {\"choices\":[{\"delta\":{\"content\":\"Half of\"}}]}\n\n";
    let provider = raw_provider(endless(BROKEN, half, 1));
    let error = whole(&provider, asking("hi"), &asker.context()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unreachable, "{error}");
}

/// Proxies drop or change the content type.
#[tokio::test]
async fn a_body_is_read_for_what_it_is_whatever_its_head_says() {
    let (head_json, head_nothing) = ("200 OK\r\nContent-Type: application/json", "200 OK\r\nX-Nothing: 1");
    let whole_body = br#"{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}"#;
    let stream = b"data: {\"choices\":[{\"delta\":{\"content\":\"Hello.\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    for (delivery, head, body) in [
        (Delivery::Streamed, head_json, stream.as_slice()),
        (Delivery::Streamed, head_nothing, stream.as_slice()),
        (Delivery::Whole, head_nothing, whole_body.as_slice()),
        (Delivery::Whole, head_json, whole_body.as_slice()),
    ] {
        let address = endless(head, body, 1);
        let provider = provider_delivering(delivery, Format::OpenaiChat, address, RetryPolicy::NEVER);
        let asker = Asker::new(Format::OpenaiChat, []);
        let reply = whole(&provider, asking("hi"), &asker.context()).await.unwrap();
        assert_eq!(reply.text(), "Hello.", "{delivery:?} {head}");
    }
}

#[tokio::test]
async fn a_reply_of_a_hundred_megabytes_is_cut_off() {
    let line = b": a comment that keeps the connection alive and says nothing whatsoever, again and again\n";
    for format in Format::ALL {
        let stream = match format {
            Format::OpenaiChat | Format::OpenaiResponses | Format::Anthropic | Format::Gemini => {
                endless("200 OK\r\nContent-Type: text/event-stream", line, 100_000_000)
            }
            Format::Ollama => {
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
async fn a_request_that_no_provider_takes_is_not_sent() {
    let asker = Asker::new(Format::OpenaiChat, []);
    let error = asker.ask(asking(&"x".repeat(65 << 20))).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::RequestTooLarge, "{error}");
    assert!(asker.server.requests().is_empty() && error.message.len() < 200, "{error}");
}

#[tokio::test]
async fn nobody_there_a_page_and_a_way_elsewhere_are_told_apart() {
    let closed = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let error = raw_error(closed).await;
    assert_eq!(error.kind, ModelErrorKind::Unreachable);
    assert!(error.message.contains("refused"), "{error}");
    let page = endless("200 OK\r\nContent-Type: text/html; charset=utf-8", b"<html>", 6);
    let error = raw_error(page).await;
    assert_eq!(error.kind, ModelErrorKind::Malformed);
    assert!(error.message.contains("a web page"), "{error}");
    let moved = endless("307 Moved\r\nLocation: http://elsewhere/v1?key=secret", b"", 0);
    let error = raw_error(moved).await;
    assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
    assert!(error.message.contains("`http://elsewhere/v1`"), "{error}");
}
