//! The parsers of all server input, as functions that take only text. The fuzz targets call them.

use haft_core::result::ToolError;
use serde_json::value::RawValue;

use super::listing::{self, McpToolList, ParamHeaders, ToolSelection};
use super::{content, message, task};
use haft_core::glob::ToolGlob;

/// Parses a line from a server and returns the number of messages in it.
pub fn messages(line: &str) -> usize {
    message::read(line).len()
}

/// Returns the id of the request that a message answers, for a message that is too long to be parsed.
pub fn id_in_fragment(head: &str, tail: &str) -> Option<u64> {
    message::id_in_fragment(head, tail)
}

/// Parses a JSON array of tools; `None` if the text is not such an array.
pub fn tools(text: &str) -> Option<McpToolList> {
    let raw: Vec<Box<RawValue>> = serde_json::from_str(text).ok()?;
    let allowed = ToolGlob::new("*").ok().into_iter().collect();
    let wanted = ToolSelection { allowed, param_headers: ParamHeaders::Sent, ..ToolSelection::default() };
    Some(listing::read(&raw, &wanted))
}

/// Parses the result of a call; `None` if the text is not JSON.
pub fn call_result(text: &str) -> Option<Result<(), ToolError>> {
    let raw: Box<RawValue> = serde_json::from_str(text).ok()?;
    Some(content::read(&raw).map(drop))
}

/// Parses the state of a task; `None` if the text is not JSON.
pub fn task_state(text: &str) -> Option<Result<(), ToolError>> {
    let raw: Box<RawValue> = serde_json::from_str(text).ok()?;
    Some(task::state(&raw, None).map(drop))
}
