//! Patterns of tool names, as they are written in a file.

use haft_core::glob::ToolGlob;

/// Reads a pattern; the error is a sentence for whoever wrote the file.
pub(super) fn tool_glob(text: &str) -> Result<ToolGlob, String> {
    ToolGlob::new(text).map_err(|error| error.to_string())
}
