//! What the model is told instead of an output that was stored.

use haft_core::store::Stored;

/// Bytes per token, near enough for prose and code.
const BYTES_PER_TOKEN: u64 = 4;

/// How much of the beginning is shown.
const PREVIEW_CHARS: usize = 1_000;

/// Names the handle, the sizes and how to ask, and shows the beginning.
pub fn stored_message(stored: &Stored, reason: &str, beginning: &str) -> String {
    let Stored { handle, bytes, lines, complete } = stored;
    let tokens = bytes / BYTES_PER_TOKEN;
    let cut = if *complete { "" } else { " Only the beginning could be kept." };
    let preview: String = beginning.chars().take(PREVIEW_CHARS).collect();
    format!(
        "Tool output is too large ({bytes} bytes, {lines} lines, about {tokens} tokens; {reason}).{cut}\n\
         Call tool_output(handle = \"{handle}\", extract = \"what to extract\").\n\
         `extract` understands: lines 10-40, first 50 lines, last 50 lines, bytes 0-4096, grep [-i] [-B n] [-A n] PATTERN, jq FILTER, schema, stats.\n\
         It begins:\n{preview}"
    )
}
