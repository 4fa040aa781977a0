//! Routes of the native API that list and return skills. The replies omit the instructions of a skill and the commands
//! of its MCP servers.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use haft_config::skills::Skill;
use haft_store::api_keys::KeyScope;
use schemars::JsonSchema;
use serde::Serialize;

use crate::auth::Caller;
use crate::error::{ApiError, ApiErrorKind};
use crate::server::ServerState;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SkillList {
    data: Vec<SkillObject>,
}

/// A skill that a request can trigger.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SkillObject {
    name: String,
    description: String,
    /// The words in a request that trigger the skill
    triggers: Vec<String>,
    /// The names of the MCP servers that the skill adds to a run
    servers: Vec<String>,
    /// True if the programs and variables that the skill requires exist
    ready: bool,
    /// The requirements that are not met; only for the scope `admin`
    #[serde(skip_serializing_if = "Option::is_none")]
    missing: Option<Vec<String>>,
}

/// `GET /api/v1/skills`: lists the skills that requests can trigger.
pub(super) async fn list(State(state): State<Arc<ServerState>>, caller: Caller) -> Json<SkillList> {
    let skills = state.runtime.skills();
    Json(SkillList { data: skills.skills.iter().map(|skill| object(&state, &caller, skill)).collect() })
}

/// `GET /api/v1/skills/{name}`: returns one skill.
pub(super) async fn get(
    State(state): State<Arc<ServerState>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Json<SkillObject>, ApiError> {
    let skills = state.runtime.skills();
    let found = skills.skills.iter().find(|skill| skill.name == name);
    let missing = || ApiError::new(ApiErrorKind::NotFound, format!("there is no skill `{name}`"));
    found.map(|skill| Json(object(&state, &caller, skill))).ok_or_else(missing)
}

fn object(state: &ServerState, caller: &Caller, skill: &Skill) -> SkillObject {
    let missing: Vec<String> =
        state.runtime.missing_requirements(skill).iter().map(ToString::to_string).collect();
    SkillObject {
        name: skill.name.clone(),
        description: skill.description.clone(),
        triggers: skill.triggers.clone(),
        servers: skill.servers.keys().cloned().collect(),
        ready: missing.is_empty(),
        missing: caller.scopes.contains(&KeyScope::Admin).then_some(missing),
    }
}
