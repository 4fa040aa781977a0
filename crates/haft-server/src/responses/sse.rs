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

/// The longest silence. Proxies close connections that are quiet for longer, often after 30 or 60 seconds.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// A comment, which every client ignores.
const PING: &[u8] = b": ping\n\n";

/// The last block of every stream.
const DONE: &[u8] = b"data: [DONE]\n\n";

enum StreamPhase {
    Events(Box<ActiveResponse>),
    /// Blocks that wait to be sent, the first one last.
    Blocks(Box<ActiveResponse>, Vec<String>),
    Done,
}

/// Sends each event in a chunk of its own: some clients lose an event that arrives in two reads.
pub(crate) fn stream_response(active: ActiveResponse) -> Response {
    let blocks = stream::unfold(StreamPhase::Events(Box::new(active)), |phase| async {
        let (block, phase) = next_block(phase).await?;
        Some((Ok::<Bytes, Infallible>(block), phase))
    });
    let mut response = Body::from_stream(blocks).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx would hold events back until a buffer is full.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

async fn next_block(phase: StreamPhase) -> Option<(Bytes, StreamPhase)> {
    let (mut active, mut blocks) = match phase {
        StreamPhase::Done => return None,
        StreamPhase::Events(active) => (active, Vec::new()),
        StreamPhase::Blocks(active, blocks) => (active, blocks),
    };
    if blocks.is_empty() {
        match timeout(PING_INTERVAL, active.next()).await {
            Err(_) => return Some((Bytes::from_static(PING), StreamPhase::Events(active))),
            Ok(None) => return Some((Bytes::from_static(DONE), StreamPhase::Done)),
            Ok(Some(events)) => blocks = events.iter().rev().map(|event| event.sse()).collect(),
        }
    }
    let block = blocks.pop()?;
    Some((Bytes::from(block), StreamPhase::Blocks(active, blocks)))
}
