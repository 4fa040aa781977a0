//! A response in progress: reads bytes and returns events until the reply ends.

use std::collections::VecDeque;
use std::time::Duration;

use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_event::ModelEvent;
use haft_core::model_reply::{ReplyNote, StopReason};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use tokio::time::Instant;

use super::client::ModelHttpResponse;
use crate::bounded_json::{self, REPLY_BYTES_MAX};
use crate::wire::{DecodeContext, ErrorHead, StreamDecoder, WireFormat};
use haft_core::settings::models::ReplyDelivery;

/// The maximum time to wait for the rest of the body after the reply is complete. A connection can be reused only if
/// its body was read to the end.
const REST_WITHIN: Duration = Duration::from_millis(100);

/// A response that is being decoded.
pub(crate) struct HttpReplyReader {
    body: ReplyBody,
    ready: VecDeque<ModelEvent>,
}

enum ReplyBody {
    Streamed {
        answer: ModelHttpResponse,
        decoder: Box<dyn StreamDecoder>,
    },
    /// The reply is complete, but the body was not read to its end.
    Complete(ModelHttpResponse),
    /// The response failed. The reader first returns the events that it read before the failure.
    Failed(ModelError),
    Over,
}

impl HttpReplyReader {
    /// Reads the response headers and enough of the body to know that a reply has started. Until then haft can retry
    /// after a failure, because the caller has not seen any content.
    pub(crate) async fn begin(
        wire: &dyn WireFormat,
        mut answer: ModelHttpResponse,
        decode_context: &DecodeContext,
        delivery: ReplyDelivery,
    ) -> Result<Self, ModelError> {
        match (answer.status(), ReplyBodyKind::of(&answer, delivery)) {
            (200..=299, ReplyBodyKind::Page) => {
                Err(bounded_json::malformed("the model provider sent an HTML page"))
            }
            (200..=299, ReplyBodyKind::Whole) => Self::whole(wire, answer, decode_context).await,
            (200..=299, ReplyBodyKind::Stream) => Self::streamed(wire, answer, decode_context).await,
            (300..=399, _) => Err(redirected(&answer)),
            (_, _) => Err(refused(wire, &mut answer).await),
        }
    }

    /// Reads a whole response. Some servers send a whole response although a stream was requested, and some label a
    /// stream as `application/json`.
    async fn whole(
        wire: &dyn WireFormat,
        mut answer: ModelHttpResponse,
        decode_context: &DecodeContext,
    ) -> Result<Self, ModelError> {
        let body = answer.body(REPLY_BYTES_MAX).await?;
        let events = match wire.decode_events(&body, decode_context) {
            Ok(events) => events,
            Err(error) => decode_whole_stream(wire, &body, decode_context).ok_or(error)?,
        };
        Ok(Self { body: ReplyBody::Over, ready: events.into() })
    }

    async fn streamed(
        wire: &dyn WireFormat,
        answer: ModelHttpResponse,
        decode_context: &DecodeContext,
    ) -> Result<Self, ModelError> {
        let decoder = wire.stream_decoder(decode_context);
        let body = ReplyBody::Streamed { answer: answer.without_headers(), decoder };
        let mut arriving = Self { body, ready: VecDeque::new() };
        loop {
            arriving.read().await;
            match (arriving.ready.iter().find(|event| is_content(event)), &arriving.body) {
                (Some(ModelEvent::Finished { stop: StopReason::CutOff }), _)
                | (None, ReplyBody::Over | ReplyBody::Complete(_)) => return Err(ended_early()),
                (Some(_), _) => return Ok(arriving),
                (None, ReplyBody::Failed(error)) => return Err(error.clone()),
                (None, ReplyBody::Streamed { .. }) => {}
            }
        }
    }

    /// Inserts notes about the request right after the `Started` event.
    pub(crate) fn noting(mut self, notes: Vec<ReplyNote>) -> Self {
        let after = usize::from(matches!(self.ready.front(), Some(ModelEvent::Started { .. })));
        let rest = self.ready.split_off(after);
        self.ready.extend(notes.into_iter().map(ModelEvent::Noted));
        self.ready.extend(rest);
        self
    }

    /// Returns the next event, or `None` after the last one.
    pub(crate) async fn next(&mut self, deadline: Instant) -> Option<Result<ModelEvent, ModelError>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            match std::mem::replace(&mut self.body, ReplyBody::Over) {
                ReplyBody::Over => return None,
                ReplyBody::Failed(error) => return Some(Err(error)),
                ReplyBody::Complete(answer) => read_rest(answer).await,
                streamed @ ReplyBody::Streamed { .. } => {
                    self.body = streamed;
                    if tokio::time::timeout_at(deadline, self.read()).await.is_err() {
                        self.body = ReplyBody::Failed(out_of_time());
                    }
                }
            }
        }
    }

    /// Reads one more chunk of a stream.
    async fn read(&mut self) {
        let ReplyBody::Streamed { answer, decoder } = &mut self.body else { return };
        let mut events = Vec::new();
        let read = match answer.chunk().await {
            Ok(Some(bytes)) => decoder.push(&bytes, &mut events).map(|()| false),
            Ok(None) => decoder.finish(&mut events).map(|()| true),
            Err(error) => finish_after_disconnect(&mut **decoder, &mut events).then_some(true).ok_or(error),
        };
        let complete = events.iter().any(|event| matches!(event, ModelEvent::Finished { .. }));
        self.ready.extend(events);
        self.body = match (read, std::mem::replace(&mut self.body, ReplyBody::Over)) {
            (Err(error), _) if !complete => ReplyBody::Failed(error),
            (Ok(false), ReplyBody::Streamed { answer, .. }) if complete => ReplyBody::Complete(answer),
            (Ok(false), streaming) => streaming,
            (Ok(true) | Err(_), _) => ReplyBody::Over,
        };
    }
}

/// Decodes a body as a stream. Returns `None` if it is not a stream with a regular end.
fn decode_whole_stream(
    wire: &dyn WireFormat,
    body: &[u8],
    decode_context: &DecodeContext,
) -> Option<Vec<ModelEvent>> {
    let (mut decoder, mut events) = (wire.stream_decoder(decode_context), Vec::new());
    decoder.push(body, &mut events).ok()?;
    let ended = |events: &[ModelEvent]| {
        events
            .iter()
            .any(|event| matches!(event, ModelEvent::Finished { stop } if *stop != StopReason::CutOff))
    };
    (ended(&events) || finish_after_disconnect(&mut *decoder, &mut events)).then_some(events)
}

/// Finishes a reply whose connection broke. Returns true if the reply was already complete: its stop reason had
/// arrived, and only the final frame was missing.
fn finish_after_disconnect(decoder: &mut dyn StreamDecoder, events: &mut Vec<ModelEvent>) -> bool {
    let mut last = Vec::new();
    let ended = decoder.finish(&mut last).is_ok();
    let cut_off = |event: &ModelEvent| matches!(event, ModelEvent::Finished { stop: StopReason::CutOff });
    let whole = ended && !last.iter().any(cut_off);
    if whole {
        events.append(&mut last);
    }
    whole
}

/// The kind of a body, according to its `content-type`.
enum ReplyBodyKind {
    Stream,
    Whole,
    Page,
}

impl ReplyBodyKind {
    /// Returns the kind. If the content type is unknown, assumes the kind that was requested.
    fn of(answer: &ModelHttpResponse, delivery: ReplyDelivery) -> Self {
        let content_type = answer.header("content-type").unwrap_or_default();
        let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match media_type.as_str() {
            "application/json" => ReplyBodyKind::Whole,
            "text/html" | "application/xhtml+xml" => ReplyBodyKind::Page,
            "text/event-stream" | "application/x-ndjson" => ReplyBodyKind::Stream,
            _ => match delivery {
                ReplyDelivery::Whole => ReplyBodyKind::Whole,
                ReplyDelivery::Streamed => ReplyBodyKind::Stream,
            },
        }
    }
}

/// Returns true if an event contains content that the caller would see. After other events, such as ids and usage, the
/// caller does not notice a retry.
fn is_content(event: &ModelEvent) -> bool {
    match event {
        ModelEvent::PartStarted { .. }
        | ModelEvent::PartDelta { .. }
        | ModelEvent::PartFinished { .. }
        | ModelEvent::Finished { .. } => true,
        ModelEvent::Started { .. } | ModelEvent::Usage(_) | ModelEvent::Noted(_) => false,
    }
}

async fn read_rest(mut answer: ModelHttpResponse) {
    let rest = async { while let Ok(Some(_)) = answer.chunk().await {} };
    let _ = tokio::time::timeout(REST_WITHIN, rest).await;
}

pub(crate) async fn refused(wire: &dyn WireFormat, answer: &mut ModelHttpResponse) -> ModelError {
    let body = answer.explanation().await;
    let in_seconds = answer.header("retry-after").and_then(seconds_until);
    let head = ErrorHead {
        status: answer.status(),
        retry_after: in_seconds.as_deref().or(answer.header("retry-after")),
        retry_after_ms: answer.header("retry-after-ms"),
    };
    if let ReplyBodyKind::Page = ReplyBodyKind::of(answer, ReplyDelivery::Whole) {
        // Drop HTML, which is for a browser: its markup would only clutter the error message.
        return wire.decode_error(&head, b"");
    }
    wire.decode_error(&head, &body)
}

/// Returns the number of seconds until an HTTP date, rounded up so that no retry happens before it.
fn seconds_until(header: &str) -> Option<String> {
    let date = rfc2822::parse(header).ok()?.timestamp();
    let left = Duration::try_from(date.duration_since(Timestamp::now())).unwrap_or_default();
    Some((left.as_secs() + u64::from(left.subsec_nanos() > 0)).to_string())
}

fn redirected(answer: &ModelHttpResponse) -> ModelError {
    // Leave out the query of the URL, which may contain a key.
    let to = answer.header("location").and_then(|to| to.split(['?', '#']).next()).unwrap_or("elsewhere");
    let to: String = to.chars().take(200).collect();
    let message = format!(
        "the model provider redirects to `{to}`, and haft does not follow redirects; set `baseUrl` to the final URL"
    );
    ModelError::new(ModelErrorKind::InvalidRequest, message)
}

fn ended_early() -> ModelError {
    ModelError::new(
        ModelErrorKind::Unreachable,
        "the model provider closed the connection before it sent a reply",
    )
}

pub(crate) fn out_of_time() -> ModelError {
    ModelError::new(ModelErrorKind::Timeout, "the model request did not finish within its total time limit")
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;

    use super::*;

    #[test]
    fn http_date_is_converted_to_seconds_from_now() {
        let header = |seconds: i64| {
            let date = Timestamp::now() + seconds.seconds();
            date.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
        };
        // The header has a resolution of one second, and time passes during the test.
        let left: u64 = seconds_until(&header(90)).unwrap().parse().unwrap();
        assert!((85..=90).contains(&left), "{left}");
        assert_eq!(seconds_until(&header(-90)).as_deref(), Some("0"));
        assert_eq!((seconds_until("120"), seconds_until("soon")), (None, None));
    }
}
