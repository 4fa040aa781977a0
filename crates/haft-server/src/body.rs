//! Reads request bodies up to a maximum size.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::header;
use serde_json::{Map, Value};
use tokio::time::timeout;

use crate::error::{ApiError, ApiErrorKind};
use crate::request_json::parse_object;
use crate::server::ServerState;

/// The maximum number of bytes of a refused body that the server reads and discards.
const DISCARD_BYTES_MAX: usize = 256 << 20;

/// The maximum time for discarding a refused body.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of a body that is parsed on the thread of its connection, in bytes. Parsing takes about 14 ms for each
/// megabyte, in which this thread would serve no other connection.
const INLINE_PARSE_BYTES_MAX: usize = 256 << 10;

/// A body that is one JSON object.
#[derive(Debug)]
pub(crate) struct JsonObject(pub(crate) Map<String, Value>);

impl FromRequest<Arc<ServerState>> for JsonObject {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<ServerState>) -> Result<Self, ApiError> {
        read(request, state, state.settings.body_bytes_max).await.map(Self)
    }
}

/// The maximum size of the body of a request that only decides or switches something, in bytes.
const DECISION_BYTES_MAX: usize = 64 << 10;

/// The body of a request that only decides or switches something: one JSON object of a few fields.
#[derive(Debug)]
pub(crate) struct DecisionObject(pub(crate) Map<String, Value>);

impl FromRequest<Arc<ServerState>> for DecisionObject {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Arc<ServerState>) -> Result<Self, ApiError> {
        let limit = DECISION_BYTES_MAX.min(state.settings.body_bytes_max);
        read(request, state, limit).await.map(Self)
    }
}

/// Reads and parses a body of at most `limit` bytes.
async fn read(request: Request, state: &ServerState, limit: usize) -> Result<Map<String, Value>, ApiError> {
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > limit) {
        // A client that expects `100 Continue` has not sent the body yet.
        if !request.headers().contains_key(header::EXPECT) {
            discard(request.into_body()).await;
        }
        return Err(too_large(limit));
    }
    let wait = state.settings.body_timeout;
    let read = timeout(wait, to_bytes(request.into_body(), limit)).await.map_err(|_| too_slow(wait))?;
    let bytes = read.map_err(|error| unread(&error, limit))?;
    parsed(bytes).await
}

async fn parsed(bytes: Bytes) -> Result<Map<String, Value>, ApiError> {
    let is_large = bytes.len() > INLINE_PARSE_BYTES_MAX;
    let parse = move || parse_object(&bytes, "the request body");
    if !is_large {
        return parse();
    }
    tokio::task::spawn_blocking(parse).await.unwrap_or_else(|error| {
        Err(ApiError::new(
            ApiErrorKind::ServerError,
            format!("the server could not parse the request body: {error}"),
        ))
    })
}

/// Reads a refused body without keeping it. If the server closed the connection while the client still sends, the
/// client would see a connection error instead of the reply.
async fn discard(body: Body) {
    let read = async {
        let mut pieces = body.into_data_stream();
        let mut bytes = 0;
        while let Some(Ok(piece)) = pieces.next().await {
            bytes += piece.len();
            if bytes > DISCARD_BYTES_MAX {
                break;
            }
        }
    };
    // Stop after this time: a slower client may see a connection error.
    let _ = timeout(DISCARD_TIMEOUT, read).await;
}

fn unread(error: &axum::Error, limit: usize) -> ApiError {
    // Check the cause: reading also fails if the client closed the connection.
    if error.to_string().contains("length limit") {
        return too_large(limit);
    }
    ApiError::new(ApiErrorKind::InvalidRequest, format!("the server cannot read the request body: {error}"))
}

fn too_slow(wait: Duration) -> ApiError {
    let message = format!("the request body did not arrive within {} s", wait.as_secs_f32());
    ApiError::new(ApiErrorKind::InvalidRequest, message)
}

fn too_large(limit: usize) -> ApiError {
    ApiError::new(ApiErrorKind::TooLarge, format!("the request body has more than {limit} bytes"))
}
