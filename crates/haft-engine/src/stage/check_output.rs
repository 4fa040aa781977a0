//! Check output: validates structured output against the tool's output schema.

use haft_core::output::ToolOutput;
use haft_core::result::{ToolError, ToolErrorKind};
use haft_core::validate::Schema;
use serde_json::Value;

use crate::call_record::CallRecord;
use crate::catalog::ResolvedTool;
use crate::policy::UncheckedSchemas;
use crate::size::json_bytes;
use crate::stage::SchemaCheckSettings;

/// Checks successful outputs of tools with an output schema. All other results pass unchanged.
pub(crate) fn check_output(
    record: &mut CallRecord,
    tool: &ResolvedTool<'_>,
    outcome: Result<ToolOutput, ToolError>,
    checking: SchemaCheckSettings,
) -> Result<ToolOutput, ToolError> {
    let output = outcome?;
    let Some(schema) = tool.entry().output_schema(checking.draft) else { return Ok(output) };
    let Err(complaint) = fits(schema, output.structured.as_ref()) else { return Ok(output) };
    record.note("output_mismatch", Value::from(complaint.as_str()));
    match checking.unchecked {
        UncheckedSchemas::Called => Ok(output),
        UncheckedSchemas::Denied => {
            let message = format!(
                "the output of tool `{}` does not match its output schema: {complaint}; the call may have taken effect",
                tool.entry().exposed()
            );
            Err(ToolError::new(ToolErrorKind::Failed, message))
        }
    }
}

fn fits(schema: &Schema, structured: Option<&Value>) -> Result<(), String> {
    let value = structured.ok_or("the tool returned no structured output")?;
    schema.check(value, json_bytes(value))
}
