//! Checks a request against the input that an agent declares.

use haft_config::agents::{AgentDefinition, InputFormat};
use haft_core::validate::Schema;
use serde_json::Value;

use crate::runtime::StartError;

/// Checks a request against the agent's input schema. Agents with plain text input accept every request.
pub(crate) fn check_input(agent: &AgentDefinition, request: &str) -> Result<(), StartError> {
    if agent.input.format == InputFormat::Text {
        return Ok(());
    }
    let wrong = |problem: String| StartError::Input { agent: agent.name.clone(), problem };
    let value: Value =
        serde_json::from_str(request).map_err(|error| wrong(format!("the request is not JSON: {error}")))?;
    let schema = agent.input.schema.as_deref().map(Schema::compile);
    schema.map_or(Ok(()), |schema| schema.check(&value, request.len())).map_err(wrong)
}
