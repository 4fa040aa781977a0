//! The routes of all providers, and the conversion of decisions into HTTP responses.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use serde_json::json;

use crate::playback::{OutcomeGuard, pause, play};
use crate::server::ModelServerState;
use crate::wire::{ApiFormat, PathParameters, RequestTarget};

/// The maximum size of a request body, in bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The parts of a request that every route needs.
#[derive(Debug)]
pub(crate) struct RequestParts {
    pub(crate) format: ApiFormat,
    pub(crate) target: RequestTarget,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

type StateExtractor = State<Arc<ModelServerState>>;

pub(crate) fn router(shared: Arc<ModelServerState>) -> Router {
    Router::new()
        .route("/v1/chat/completions", turn(ApiFormat::OpenAiChat))
        .route("/v1/responses", turn(ApiFormat::OpenAiResponses))
        .route("/v1/messages", turn(ApiFormat::Anthropic))
        .route("/api/chat", turn(ApiFormat::Ollama))
        .route("/v1/models/{address}", post(gemini_turn))
        .route("/v1beta/models/{address}", post(gemini_turn))
        .route("/v1/models", get(list_models_by_header))
        .route("/v1beta/models", models(ApiFormat::Gemini))
        .route("/api/tags", models(ApiFormat::Ollama))
        .fallback(nothing_here)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(shared)
}

fn turn(format: ApiFormat) -> MethodRouter<Arc<ModelServerState>> {
    post(move |State(shared): StateExtractor, uri: Uri, headers: HeaderMap, body: Bytes| {
        let target = RequestTarget::Turn(PathParameters::default());
        answer(shared, RequestParts { format, target, uri, headers, body })
    })
}

/// Handles a Gemini request. Its path contains the model and the method.
async fn gemini_turn(
    State(shared): StateExtractor,
    Path(address): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (model, verb) = address.rsplit_once(':').unwrap_or((&address, ""));
    let alt = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("alt="));
    let alt = alt.map(str::to_owned);
    let target = RequestTarget::Turn(PathParameters { model: model.to_owned(), verb: verb.to_owned(), alt });
    answer(shared, RequestParts { format: ApiFormat::Gemini, target, uri, headers, body }).await
}

fn models(format: ApiFormat) -> MethodRouter<Arc<ModelServerState>> {
    get(move |State(shared): StateExtractor, uri: Uri, headers: HeaderMap| {
        answer(
            shared,
            RequestParts { format, target: RequestTarget::Models, uri, headers, body: Bytes::new() },
        )
    })
}

/// Lists models for the three providers that share this path. The client's headers show which provider it expects.
async fn list_models_by_header(State(shared): StateExtractor, uri: Uri, headers: HeaderMap) -> Response {
    let format = if headers.contains_key("anthropic-version") {
        ApiFormat::Anthropic
    } else if headers.contains_key("x-goog-api-key") {
        ApiFormat::Gemini
    } else {
        ApiFormat::OpenAiChat
    };
    answer(shared, RequestParts { format, target: RequestTarget::Models, uri, headers, body: Bytes::new() })
        .await
}

async fn nothing_here(uri: Uri) -> Response {
    let message =
        format!("the scripted model server does not serve {}; its README lists the paths", uri.path());
    (StatusCode::NOT_FOUND, Json(json!({ "error": { "message": message } }))).into_response()
}

async fn answer(shared: Arc<ModelServerState>, parts: RequestParts) -> Response {
    let (serial, decision) = shared.decide(&parts);
    let noting = OutcomeGuard::new(shared, serial);
    pause(decision.pace.before_first_byte()).await;
    let mut response = Response::builder()
        .status(decision.status)
        .header(header::CONTENT_TYPE, decision.content_type)
        .header("request-id", format!("req_{serial}"))
        .header("x-request-id", format!("req_{serial}"));
    if let Some(seconds) = decision.retry_after_seconds {
        response = response.header(header::RETRY_AFTER, seconds);
    }
    let body = Body::from_stream(play(decision, noting));
    response.body(body).unwrap_or_else(|error| {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("the server cannot send the scripted reply: {error}"))
            .into_response()
    })
}
