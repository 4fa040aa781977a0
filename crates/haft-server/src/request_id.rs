//! A number for each request, which its reply, its log lines and a report of the caller share.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderName, HeaderValue};
use uuid::Uuid;

/// The header of the reply.
const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the id of a reply.
pub(crate) fn of(response: &Response) -> &str {
    response.headers().get(HEADER).and_then(|id| id.to_str().ok()).unwrap_or_default()
}

/// Gives the request an id of its own. An id that the caller sends is not used: two requests could then share one.
pub(crate) async fn assign(request: Request, next: Next) -> Response {
    let id = HeaderValue::from_str(&format!("req_{}", Uuid::new_v4().simple()));
    let mut response = next.run(request).await;
    if let Ok(value) = id {
        response.headers_mut().insert(HEADER, value);
    }
    response
}
