//! An id for each request. The reply and the log lines contain the id, so that a caller can report it.

use axum::extract::Request;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use uuid::Uuid;

/// The reply header with the id.
const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the id of a reply.
pub(crate) fn of(response: &Response) -> &str {
    response.headers().get(HEADER).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

/// Assigns a new id to the request. An id from the caller is not used, because two requests could then have the same
/// id.
pub(crate) async fn assign<F: Future<Output = Response>>(
    request: Request,
    next: impl FnOnce(Request) -> F,
) -> Response {
    let id = HeaderValue::from_str(&format!("req_{}", Uuid::new_v4().simple()));
    let mut response = next(request).await;
    if let Ok(value) = id {
        response.headers_mut().insert(HEADER, value);
    }
    response
}
