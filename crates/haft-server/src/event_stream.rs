//! HTTP responses that are streams of server-sent events, for all APIs of the server.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use http::{HeaderValue, header};

/// The maximum silence on a stream. Proxies close connections that are silent for longer, often after 30 or 60 seconds.
pub(crate) const PING_INTERVAL: Duration = Duration::from_secs(15);

/// A comment line that keeps the connection open. Clients ignore comments.
pub(crate) const PING: &[u8] = b": ping\n\n";

/// Returns a response that sends each block in a separate chunk: some clients lose an event that arrives in two reads.
pub(crate) fn response(blocks: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let mut response = Body::from_stream(blocks.map(Ok::<Bytes, Infallible>)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Without this header, nginx would hold back events until a buffer is full.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
