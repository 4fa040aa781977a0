//! Resolve: finds the tool with a name, or returns an error with similar names.

use haft_core::name::ToolName;
use haft_core::naming::NameMatch;
use haft_core::result::{ToolError, ToolErrorKind};
use serde_json::Value;

use super::admit::denied;
use crate::call_record::CallRecord;
use crate::catalog::{CatalogEntry, ResolvedTool, Snapshot};
use crate::policy::ToolPolicies;

/// The maximum length of an unknown name in the error, in characters.
const WRITTEN_NAME_CHARS_MAX: usize = 200;

/// Resolves the name. A name without a namespace resolves only to a tool for which `fits` returns true.
pub(crate) fn resolve<'c>(
    record: &mut CallRecord,
    catalog: &'c Snapshot,
    policies: &ToolPolicies,
    fits: impl Fn(&CatalogEntry) -> bool,
) -> Result<ResolvedTool<'c>, ToolError> {
    let tool = match catalog.resolve(&record.call.name, fits) {
        Ok(tool) => tool,
        Err(nearest) => return Err(missing(record, policies, &nearest)),
    };
    let exposed = tool.entry().exposed().as_str();
    record.set_resolved_tool(tool.entry().known());
    match tool.matched() {
        NameMatch::Exact => {}
        NameMatch::Case | NameMatch::Alias | NameMatch::Bare => {
            record.note("resolved_as", Value::from(exposed));
        }
    }
    Ok(tool)
}

/// Returns the error for a name that no tool has.
fn missing(record: &mut CallRecord, policies: &ToolPolicies, nearest: &[ToolName]) -> ToolError {
    match policies.exclusion(&record.call.name) {
        Some(why) => {
            let message = format!("tool `{}` is not active: {why}", record.call.name);
            denied(record, None, message)
        }
        None => unknown(&record.call.name, nearest),
    }
}

fn unknown(written: &str, nearest: &[ToolName]) -> ToolError {
    let written: String = written.chars().take(WRITTEN_NAME_CHARS_MAX).collect();
    let message = match nearest {
        [] => format!("Unknown tool: {written}"),
        nearest => format!("Unknown tool: {written}; did you mean {}?", either(nearest)),
    };
    ToolError::new(ToolErrorKind::UnknownTool, message)
}

fn either(names: &[ToolName]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}
