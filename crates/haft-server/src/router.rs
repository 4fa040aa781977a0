//! All routes of the server, and the checks around them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};

use crate::error::{ApiError, ApiErrorKind};
use crate::metrics::GatewayServers;
use crate::protected_resource::ProtectedResource;
use crate::server::{MountedMcp, ServedRoutes, ServerState};
use crate::settings::AuthMode;
use crate::{
    access, auth, cors, health, mcp, metrics, native, observe, protected_resource, request_id, v1_routes,
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
        .layer(from_fn_with_state(Arc::clone(state), check))
        .with_state(Arc::clone(state))
}

/// Checks, counts and logs a request of any route. This is one layer, because axum boxes a future for each layer.
async fn check(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let checked = |request| access::check(&state, request, |request| next.run(request));
    // CORS wraps the checks, so that an allowed page can read why its request was refused.
    let readable = |request| cors::apply(&state, request, checked);
    observe::observe(&state, request, |request| request_id::assign(request, readable)).await
}

fn v1(state: &Arc<ServerState>) -> Router<Arc<ServerState>> {
    v1_routes::router()
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
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
