//! The routes of all providers, and the conversion of decisions into HTTP responses.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use serde_json::json;

use crate::playback::{Noting, pause, play};
use crate::server::Shared;
use crate::wire::{Address, Format, Target};

/// The largest request body that is read, in bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The parts of a request that every route passes on.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) format: Format,
    pub(crate) target: Target,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

type Served = State<Arc<Shared>>;

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/chat/completions", turn(Format::OpenAiChat))
        .route("/v1/responses", turn(Format::OpenAiResponses))
        .route("/v1/messages", turn(Format::Anthropic))
        .route("/api/chat", turn(Format::Ollama))
        .route("/v1/models/{address}", post(gemini_turn))
        .route("/v1beta/models/{address}", post(gemini_turn))
        .route("/v1/models", get(models_of_three))
        .route("/v1beta/models", models(Format::Gemini))
        .route("/api/tags", models(Format::Ollama))
        .fallback(nothing_here)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(shared)
}

fn turn(format: Format) -> MethodRouter<Arc<Shared>> {
    post(move |State(shared): Served, uri: Uri, headers: HeaderMap, body: Bytes| {
        let target = Target::Turn(Address::default());
        answer(shared, Parts { format, target, uri, headers, body })
    })
}

/// Handles a Gemini request, which has model and method in its path.
async fn gemini_turn(
    State(shared): Served,
    Path(address): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (model, verb) = address.rsplit_once(':').unwrap_or((&address, ""));
    let alt = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("alt="));
    let alt = alt.map(str::to_owned);
    let target = Target::Turn(Address { model: model.to_owned(), verb: verb.to_owned(), alt });
    answer(shared, Parts { format: Format::Gemini, target, uri, headers, body }).await
}

fn models(format: Format) -> MethodRouter<Arc<Shared>> {
    get(move |State(shared): Served, uri: Uri, headers: HeaderMap| {
        answer(shared, Parts { format, target: Target::Models, uri, headers, body: Bytes::new() })
    })
}

/// Lists models for three providers that share this path. The headers of their clients tell them apart.
async fn models_of_three(State(shared): Served, uri: Uri, headers: HeaderMap) -> Response {
    let format = if headers.contains_key("anthropic-version") {
        Format::Anthropic
    } else if headers.contains_key("x-goog-api-key") {
        Format::Gemini
    } else {
        Format::OpenAiChat
    };
    answer(shared, Parts { format, target: Target::Models, uri, headers, body: Bytes::new() }).await
}

async fn nothing_here(uri: Uri) -> Response {
    let message =
        format!("the scripted model server has nothing at {}; its README lists the paths", uri.path());
    (StatusCode::NOT_FOUND, Json(json!({ "error": { "message": message } }))).into_response()
}

async fn answer(shared: Arc<Shared>, parts: Parts) -> Response {
    let (serial, decision) = shared.decide(&parts);
    let noting = Noting::new(shared, serial);
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
        (StatusCode::INTERNAL_SERVER_ERROR, format!("the script cannot be sent: {error}")).into_response()
    })
}
