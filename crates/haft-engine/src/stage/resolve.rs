//! Resolve: the written name becomes a tool, or the asker is told which names are near.

use haft_core::name::ToolName;
use haft_core::naming::Match;
use haft_core::result::{ToolError, ToolErrorKind};
use serde_json::Value;

use crate::catalog::{CatalogEntry, ResolvedTool, Snapshot};
use crate::record::CallRecord;

/// How much of a name that means no tool is repeated to the asker.
const WRITTEN_NAME_CHARS_MAX: usize = 200;

/// `fits` says whether a tool may be meant by a call that leaves out where it comes from.
pub(crate) fn resolve<'c>(
    record: &mut CallRecord,
    catalog: &'c Snapshot,
    fits: impl Fn(&CatalogEntry) -> bool,
) -> Result<ResolvedTool<'c>, ToolError> {
    let written = &record.call.name;
    let tool = catalog.resolve(written, fits).map_err(|nearest| unknown(written, &nearest))?;
    let exposed = tool.entry().exposed().as_str();
    record.name_tool(tool.entry().known());
    match tool.matched() {
        Match::Exact => {}
        Match::Case | Match::Alias | Match::Bare => record.note("resolved_as", Value::from(exposed)),
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
