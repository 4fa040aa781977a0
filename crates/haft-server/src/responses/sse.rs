//! A response as a stream of server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, header};
use tokio::time::timeout;

use super::drive::ActiveResponse;
use super::fold::StreamEvent;
use super::live::LiveFollower;

/// The maximum silence on a stream. Proxies close connections that are silent for longer, often after 30 or 60 seconds.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// A comment line, which every client ignores.
const PING: &[u8] = b": ping\n\n";

/// The last block of every stream.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// The source of the events of a stream.
pub(crate) enum EventSource {
    /// The run ends with the connection.
    Active(Box<ActiveResponse>),
    /// The run continues without the connection.
    Follower(LiveFollower),
    /// The run has ended.
    Recorded(Vec<StreamEvent>),
}

impl EventSource {
    async fn next(&mut self) -> Option<Vec<StreamEvent>> {
        match self {
            Self::Active(active) => active.next().await,
            Self::Follower(follower) => follower.next().await,
            Self::Recorded(events) if events.is_empty() => None,
            Self::Recorded(events) => Some(std::mem::take(events)),
        }
    }
}

enum StreamPhase {
    Events(EventSource),
    /// Blocks that wait to be sent, in reverse order.
    Blocks(EventSource, Vec<String>),
    Done,
}

/// Sends each event in a separate chunk: some clients lose an event that arrives in two reads.
pub(crate) fn stream_response(source: EventSource) -> Response {
    let blocks = stream::unfold(StreamPhase::Events(source), |phase| async {
        let (block, phase) = next_block(phase).await?;
        Some((Ok::<Bytes, Infallible>(block), phase))
    });
    let mut response = Body::from_stream(blocks).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Without this header, nginx would hold back events until a buffer is full.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

async fn next_block(phase: StreamPhase) -> Option<(Bytes, StreamPhase)> {
    let (mut source, mut blocks) = match phase {
        StreamPhase::Done => return None,
        StreamPhase::Events(source) => (source, Vec::new()),
        StreamPhase::Blocks(source, blocks) => (source, blocks),
    };
    if blocks.is_empty() {
        match timeout(PING_INTERVAL, source.next()).await {
            Err(_) => return Some((Bytes::from_static(PING), StreamPhase::Events(source))),
            Ok(None) => return Some((Bytes::from_static(DONE), StreamPhase::Done)),
            Ok(Some(events)) => blocks = events.iter().rev().map(super::fold::StreamEvent::sse).collect(),
        }
    }
    let block = blocks.pop()?;
    Some((Bytes::from(block), StreamPhase::Blocks(source, blocks)))
}
