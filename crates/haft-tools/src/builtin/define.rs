//! Derives a tool definition from the type of its input. The doc comment of the type becomes the description.

use std::time::Duration;

use haft_core::name::{GroupName, ToolName};
use haft_core::tool::{Effects, ToolDefinition, ToolFacts};
use schemars::{JsonSchema, schema_for};
use serde_json::Value;

/// The default timeout of the built-in tools.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(super::BASH_TIMEOUT_SECS);

/// Returns the definition of the tool with input `I`. Returns `None` only for an invalid tool name; a test checks that
/// every built-in name is valid.
pub(crate) fn define<I: JsonSchema>(name: &str, effects: Effects) -> Option<ToolDefinition> {
    let mut schema = schema_for!(I).to_value();
    let object = schema.as_object_mut()?;
    object.remove("$schema");
    object.remove("title");
    let description = object.remove("description");
    Some(ToolDefinition {
        name: ToolName::new(name).ok()?,
        description: description.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
        input_schema: schema,
        output_schema: None,
        effects,
        groups: GroupName::new("builtin").into_iter().collect(),
        facts: ToolFacts { timeout: Some(TIMEOUT_DEFAULT), ..ToolFacts::default() },
        raw: None,
    })
}
