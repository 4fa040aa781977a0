//! The table of the routes below `/v1`. The router serves exactly these routes, and a test checks that each needs a key.

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post};

use crate::server::ServerState;
use crate::{conversations, models, responses};

/// One route.
struct V1Route {
    method: &'static str,
    path: &'static str,
    handler: fn() -> MethodRouter<Arc<ServerState>>,
}

const ROUTES: [V1Route; 18] = [
    V1Route { method: "GET", path: "/models", handler: || get(models::list) },
    V1Route { method: "GET", path: "/models/{*id}", handler: || get(models::get) },
    V1Route { method: "GET", path: "/responses", handler: || get(responses::list) },
    V1Route { method: "POST", path: "/responses", handler: || post(responses::create) },
    V1Route { method: "POST", path: "/responses/input_tokens", handler: || post(responses::input_tokens) },
    V1Route { method: "POST", path: "/responses/compact", handler: || post(responses::compact) },
    V1Route { method: "GET", path: "/responses/{id}", handler: || get(responses::get) },
    V1Route { method: "DELETE", path: "/responses/{id}", handler: || delete(responses::delete) },
    V1Route { method: "POST", path: "/responses/{id}/cancel", handler: || post(responses::cancel) },
    V1Route { method: "GET", path: "/responses/{id}/input_items", handler: || get(responses::input_items) },
    V1Route { method: "POST", path: "/conversations", handler: || post(conversations::create) },
    V1Route { method: "GET", path: "/conversations/{id}", handler: || get(conversations::get) },
    V1Route { method: "POST", path: "/conversations/{id}", handler: || post(conversations::update) },
    V1Route { method: "DELETE", path: "/conversations/{id}", handler: || delete(conversations::delete) },
    V1Route { method: "GET", path: "/conversations/{id}/items", handler: || get(conversations::list_items) },
    V1Route { method: "POST", path: "/conversations/{id}/items", handler: || post(conversations::add_items) },
    V1Route {
        method: "GET",
        path: "/conversations/{id}/items/{item}",
        handler: || get(conversations::get_item),
    },
    V1Route {
        method: "DELETE",
        path: "/conversations/{id}/items/{item}",
        handler: || delete(conversations::delete_item),
    },
];

/// Returns the HTTP method and the path of each route below `/v1`. In a path, names in braces stand for ids.
pub fn v1_routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    ROUTES.iter().map(|route| (route.method, route.path))
}

/// Returns the routes, without the checks around them.
pub(crate) fn router() -> Router<Arc<ServerState>> {
    ROUTES.iter().fold(Router::new(), |router, route| router.route(route.path, (route.handler)()))
}
