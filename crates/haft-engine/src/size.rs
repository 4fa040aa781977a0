//! The size of an output, in bytes.

use std::io;

use haft_core::output::{OutputContent, ToolOutput};
use serde_json::Value;

/// Returns the size of an output, including the structured part.
pub(crate) fn output_bytes(output: &ToolOutput) -> usize {
    let raw = output.raw.as_ref().map_or(0, |raw| raw.0.get().len());
    content_bytes(output) + output.structured.as_ref().map_or(0, json_bytes) + raw
}

/// Returns the size of an output without its structured part.
pub(crate) fn content_bytes(output: &ToolOutput) -> usize {
    output.content.iter().map(piece_bytes).sum()
}

/// Returns the length of a value's JSON text without building the text.
pub(crate) fn json_bytes(value: &Value) -> usize {
    let mut counted = ByteCounter(0);
    // The counter accepts every write, so serialization cannot fail.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

fn piece_bytes(content: &OutputContent) -> usize {
    match content {
        OutputContent::Text(text) => text.len(),
        OutputContent::FoundTools(found) => found.text.len(),
        OutputContent::Image { bytes, .. }
        | OutputContent::Audio { bytes, .. }
        | OutputContent::Binary { bytes, .. } => bytes.len(),
        OutputContent::Link(_) => content.as_text().len(),
        OutputContent::Resource { text, .. } => text.as_ref().map_or(0, String::len),
        // For a stored output only its description is counted, because only the description goes to the model.
        OutputContent::Stored(stored) => stored.notice().len(),
    }
}

struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
