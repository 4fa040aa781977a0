//! Patterns for tool names in configuration files.

use haft_core::glob::ToolGlob;

/// Parses a pattern. The error is a sentence for the author of the file.
pub(super) fn tool_glob(text: &str) -> Result<ToolGlob, String> {
    ToolGlob::new(text).map_err(|error| error.to_string())
}
