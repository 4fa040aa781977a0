//! `GET /v1/models`: lists the names that a request may use as `model`.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use haft_config::ResolvedConfig;
use serde_json::{Value, json};

use crate::agents::AgentCatalog;
use crate::error::{ApiError, ApiErrorKind};
use crate::server::ServerState;

/// The model name with which a request lets the configured fast model choose its model.
pub(crate) const ROUTE: &str = "haft/route";

pub(crate) async fn list(State(state): State<Arc<ServerState>>) -> Json<Value> {
    let served = served(&state.runtime.config(), &state.agents.get());
    let data: Vec<Value> = served.iter().map(|model| model.json(state.started_s)).collect();
    Json(json!({ "object": "list", "data": data }))
}

pub(crate) async fn get(
    State(state): State<Arc<ServerState>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let served = served(&state.runtime.config(), &state.agents.get());
    let found = served.iter().find(|model| model.id == id);
    let unknown = || ApiError::new(ApiErrorKind::NotFound, format!("there is no model `{id}`"));
    found.map(|model| Json(model.json(state.started_s))).ok_or_else(unknown)
}

#[derive(Debug, PartialEq, Eq)]
struct ServedModel {
    id: String,
    owner: String,
}

impl ServedModel {
    fn json(&self, created: u64) -> Value {
        json!({ "id": self.id, "object": "model", "created": created, "owned_by": self.owner })
    }
}

/// Returns the agents first, then the configured models. A request may also name any other model of a configured
/// provider.
fn served(config: &ResolvedConfig, agents: &AgentCatalog) -> Vec<ServedModel> {
    let of_haft = |id: &str| ServedModel { id: id.to_owned(), owner: "haft".into() };
    let models = &config.models;
    let selected = models.default.iter().chain(&models.fast).chain(&models.complex).chain(&models.fallback);
    let names: BTreeSet<_> = selected.chain(models.settings.keys()).collect();
    let route = (models.fast.is_some() && models.complex.is_some()).then(|| of_haft(ROUTE));
    let models =
        names.into_iter().map(|name| ServedModel { id: name.to_string(), owner: name.provider.clone() });
    agents.list().map(|(name, _)| of_haft(name)).chain(route).chain(models).collect()
}
