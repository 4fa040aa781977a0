//! `/healthz` reports that the process answers, and `/readyz` that the server accepts work.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::error::{ApiError, ApiErrorKind};
use crate::responses::RESTART_S;
use crate::server::ServerState;

pub(crate) async fn healthz() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Returns an error after the server was asked to stop, so that a load balancer sends no more requests.
pub(crate) async fn readyz(State(state): State<Arc<ServerState>>) -> Response {
    if state.is_stopping() {
        return ApiError::new(
            ApiErrorKind::Unavailable,
            "the server is stopping and accepts no new requests",
        )
        .after(RESTART_S)
        .into_response();
    }
    Json(json!({ "status": "ready" })).into_response()
}
