//! All routes of the server, and the checks around them.

use std::sync::Arc;

use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use axum::{Extension, Router};

use crate::error::{ApiError, ApiErrorKind};
use crate::metrics::GatewayServers;
use crate::protected_resource::ProtectedResource;
use crate::server::{MountedMcp, ServedRoutes, ServerState};
use crate::settings::AuthMode;
use crate::{
    access, auth, conversations, cors, health, mcp, metrics, models, native, observe, protected_resource,
    rate_limit, request_id, responses,
};

/// Builds the router. Each request first gets an id. Then its host, origin and content type are checked, then its key,
/// then the limits of the key. Health checks need no key. Every request is counted and logged.
pub(crate) fn router(state: &Arc<ServerState>, mcp: Option<&MountedMcp>) -> Router {
    let api = match mcp {
        Some(MountedMcp { routes: ServedRoutes::McpOnly, .. }) => Router::new(),
        Some(MountedMcp { routes: ServedRoutes::All, .. }) | None => {
            Router::new().nest("/v1", v1(state)).merge(native_api(state))
        }
    };
    let upstreams = GatewayServers(mcp.map(|mounted| Arc::clone(&mounted.gateway)));
    let metrics = get(metrics::show)
        .layer(Extension(upstreams))
        .layer(from_fn_with_state(Arc::clone(state), auth::check_admin));
    let mcp = mcp.map(|mounted| mcp::http::routes(state, &mounted.gateway)).unwrap_or_default();
    api.merge(mcp)
        .merge(protected_resource::routes())
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", metrics)
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(state), access::check))
        // Outside of the checks, so that an allowed page can read why its request was refused.
        .layer(from_fn_with_state(Arc::clone(state), cors::apply))
        .layer(from_fn(request_id::assign))
        .layer(from_fn_with_state(Arc::clone(state), observe::observe))
        .with_state(Arc::clone(state))
}

fn v1(state: &Arc<ServerState>) -> Router<Arc<ServerState>> {
    Router::new()
        .route("/models", get(models::list))
        .route("/models/{*id}", get(models::get))
        .route("/responses", post(responses::create).get(responses::list))
        .route("/responses/input_tokens", post(responses::input_tokens))
        .route("/responses/compact", post(responses::compact))
        .route("/responses/{id}", get(responses::get).delete(responses::delete))
        .route("/responses/{id}/cancel", post(responses::cancel))
        .route("/responses/{id}/input_items", get(responses::input_items))
        .route("/conversations", post(conversations::create))
        .route(
            "/conversations/{id}",
            get(conversations::get).post(conversations::update).delete(conversations::delete),
        )
        .route("/conversations/{id}/items", get(conversations::list_items).post(conversations::add_items))
        .route(
            "/conversations/{id}/items/{item}",
            get(conversations::get_item).delete(conversations::delete_item),
        )
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(state), rate_limit::check))
        .layer(from_fn_with_state((Arc::clone(state), ProtectedResource::Api), auth::check))
}

/// Returns the routes of the native API. A server without keys does not have this API, because a command in the sandbox
/// could approve its own calls.
fn native_api(state: &Arc<ServerState>) -> Router<Arc<ServerState>> {
    let routes = match state.settings.auth {
        AuthMode::Keys => native::router(),
        AuthMode::NoAuth => return Router::new(),
    };
    let routes = routes
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(state), rate_limit::check))
        .layer(from_fn_with_state((Arc::clone(state), ProtectedResource::Api), auth::check));
    Router::new().nest("/api/v1", routes)
}

async fn unknown_route() -> ApiError {
    ApiError::new(ApiErrorKind::NotFound, "this server has no route with this path")
}

async fn wrong_method() -> ApiError {
    ApiError::new(
        ApiErrorKind::MethodNotAllowed,
        "this route does not support the HTTP method of the request",
    )
}
