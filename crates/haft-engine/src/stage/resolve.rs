//! Resolve: finds the tool of a name, or returns an error with similar names.

use haft_core::name::ToolName;
use haft_core::naming::NameMatch;
use haft_core::result::{ToolError, ToolErrorKind};
use serde_json::Value;

use crate::call_record::CallRecord;
use crate::catalog::{CatalogEntry, ResolvedTool, Snapshot};

/// The longest prefix of an unknown name that the error repeats, in characters.
const WRITTEN_NAME_CHARS_MAX: usize = 200;

/// Resolves the name. `fits` returns true if a call without a namespace may mean the tool.
pub(crate) fn resolve<'c>(
    record: &mut CallRecord,
    catalog: &'c Snapshot,
    fits: impl Fn(&CatalogEntry) -> bool,
) -> Result<ResolvedTool<'c>, ToolError> {
    let written = &record.call.name;
    let tool = catalog.resolve(written, fits).map_err(|nearest| unknown(written, &nearest))?;
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
