//! Tests of faults on the connection, and of the outcomes that the server records.

use haft_model_server::{
    ApiFormat, ChatReasoning, ErrorResponse, ModelServer, RequestOutcome, ResponseFault, ResponsePace,
    Script, ScriptPart, ScriptStep,
};
use haft_testkit::eventually;
use serde_json::{Value, json};

use crate::connection::{RawResponse, open, post};

/// Returns the path for each format, and a streaming request with one user message.
fn ways() -> [(ApiFormat, &'static str, Value); 5] {
    let message = json!([{ "role": "user", "content": "Hello" }]);
    let chat = json!({ "model": "m", "stream": true, "max_tokens": 9, "messages": message });
    let responses = json!({ "model": "m", "stream": true, "input": "Hello" });
    let gemini = json!({ "contents": [{ "role": "user", "parts": [{ "text": "Hello" }] }] });
    [
        (ApiFormat::OpenAiChat, "/v1/chat/completions", chat.clone()),
        (ApiFormat::OpenAiResponses, "/v1/responses", responses),
        (ApiFormat::Anthropic, "/v1/messages", chat.clone()),
        (ApiFormat::Gemini, "/v1beta/models/m:streamGenerateContent?alt=sse", gemini),
        (ApiFormat::Ollama, "/api/chat", chat),
    ]
}

/// Serves one step in every format, and checks the response and the recorded outcome.
fn in_every_format(step: &ScriptStep, mut check: impl FnMut(ApiFormat, &RawResponse, &RequestOutcome)) {
    for (format, path, body) in ways() {
        let server = ModelServer::start(Script::of([step.clone()])).unwrap();
        let came = post(&server, path, &body);
        check(format, &came, &server.requests()[0].outcome);
    }
}

#[test]
fn fault_cut_breaks_the_connection_inside_a_frame() {
    let step = ScriptStep::text("Hello you").with_fault(ResponseFault::Cut { after_frames: 1, and_bytes: 7 });
    in_every_format(&step, |format, came, outcome| {
        assert!(!came.whole, "{format:?}");
        assert_eq!(came.chunks[1].len(), 7, "{format:?}");
        assert_eq!(outcome, &RequestOutcome::Cut);
    });
}

#[test]
fn fault_end_early_closes_the_response_without_an_error() {
    let step = ScriptStep::text("Hello you").with_fault(ResponseFault::EndEarly { after_frames: 1 });
    in_every_format(&step, |format, came, outcome| {
        assert!(came.whole && came.chunks.len() == 1, "{format:?}: {came:?}");
        assert_eq!(outcome, &RequestOutcome::Answered(200));
    });
}

#[test]
fn malformed_frame_is_sent_between_valid_frames() {
    let step = ScriptStep::text("Hello you")
        .with_fault(ResponseFault::Malformed { after_frames: 1, frame: "data: {\"half\":\n\n".to_owned() });
    in_every_format(&step, |format, came, _| {
        assert_eq!(came.chunks[1], "data: {\"half\":\n\n", "{format:?}");
        assert!(came.whole && came.chunks.len() > 2);
    });
}

#[test]
fn hanging_response_is_abandoned_when_the_client_disconnects() {
    for (format, path, body) in ways() {
        let server = ModelServer::start(Script::of([
            ScriptStep::text("Hello you").with_fault(ResponseFault::Hang { after_frames: 1 })
        ]))
        .unwrap();
        let connection = open(&server, path, &body);
        eventually("the server has logged the request", || !server.requests().is_empty());
        assert_eq!(server.requests()[0].outcome, RequestOutcome::Answering, "{format:?}");
        drop(connection);
        eventually("the server sees that the client has disconnected", || {
            server.requests()[0].outcome == RequestOutcome::Abandoned
        });
    }
}

#[test]
fn response_in_small_chunks_has_the_same_bytes() {
    let text = "Grüße, мир";
    let pace = ResponsePace { chunk_bytes: Some(3), ..ResponsePace::default() };
    for (format, path, body) in ways() {
        let served = |pace: ResponsePace| {
            let server = ModelServer::start(Script::of([ScriptStep::text(text).at_pace(pace)])).unwrap();
            let mut connection = open(&server, path, &body);
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut connection, &mut bytes).unwrap();
            unchunked(&bytes)
        };
        let (dripped, at_once) = (served(pace), served(ResponsePace::default()));
        assert!(dripped.0.iter().all(|size| *size <= 3), "{format:?}");
        assert_eq!(dripped.1, at_once.1, "{format:?}");
    }
}

/// Returns the sizes of the chunks and all their bytes.
fn unchunked(bytes: &[u8]) -> (Vec<usize>, Vec<u8>) {
    let line_end = |bytes: &[u8]| bytes.windows(2).position(|pair| pair == b"\r\n").unwrap();
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let (mut rest, mut sizes, mut body) = (&bytes[head..], Vec::new(), Vec::new());
    loop {
        let end = line_end(rest);
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return (sizes, body);
        }
        sizes.push(size);
        body.extend(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
}

#[test]
fn pace_delays_the_first_byte_and_each_frame() {
    let pace =
        ResponsePace { first_byte_milliseconds: 60, between_milliseconds: 30, ..ResponsePace::default() };
    let server = ModelServer::start(Script::of([ScriptStep::text("Hello").at_pace(pace)])).unwrap();
    let (_, path, body) = ways()[4].clone();
    let began = std::time::Instant::now();
    assert_eq!(post(&server, path, &body).chunks.len(), 2);
    // Check only a lower bound, because a busy machine takes longer than the configured delays.
    assert!(began.elapsed().as_millis() >= 90);
}

#[test]
fn comments_are_sent_before_sse_frames() {
    let step = ScriptStep::text("Hello").at_pace(ResponsePace { comments: 2, ..ResponsePace::default() });
    in_every_format(&step, |format, came, _| {
        let has = came.body().starts_with(": still working\n\n: still working\n\n");
        assert_eq!(has, !matches!(format, ApiFormat::Gemini | ApiFormat::Ollama), "{format:?}");
    });
}

#[test]
fn raw_error_page_is_sent_unchanged() {
    let page = ErrorResponse { raw: Some("<html>busy</html>".to_owned()), ..ErrorResponse::new(502, "") };
    in_every_format(&ScriptStep::fail(page.retry_after(3)), |_, came, outcome| {
        assert_eq!((came.status, came.body().as_str()), (502, "<html>busy</html>"));
        assert!(came.head.contains("retry-after: 3"));
        assert_eq!(outcome, &RequestOutcome::Answered(502));
    });
}

#[test]
fn redacted_reasoning_is_sent_in_every_format_except_ollama() {
    let step =
        ScriptStep::say([ScriptPart::Redacted("opaque".to_owned()), ScriptPart::Text("Hello".to_owned())]);
    for (format, path, mut body) in ways() {
        if format == ApiFormat::OpenAiResponses {
            body["include"] = json!(["reasoning.encrypted_content"]);
        }
        let script = Script { chat_reasoning: ChatReasoning::OpenRouter, ..Script::of([step.clone()]) };
        let server = ModelServer::start(script).unwrap();
        let came = post(&server, path, &body);
        assert_eq!(
            came.body().contains("opaque"),
            format != ApiFormat::Ollama,
            "{format:?}: {}",
            came.body()
        );
    }
}
