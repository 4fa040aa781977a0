//! The size of an output, in bytes.

use std::io;

use haft_core::output::{Content, ToolOutput};
use serde_json::Value;

/// Returns the size of an output, including the structured part.
pub(crate) fn output_bytes(output: &ToolOutput) -> usize {
    content_bytes(output) + output.structured.as_ref().map_or(0, json_bytes)
}

/// Returns the size of an output without the structured part.
pub(crate) fn content_bytes(output: &ToolOutput) -> usize {
    output.content.iter().map(piece_bytes).sum()
}

/// Returns the length of a value's JSON text without building the text.
pub(crate) fn json_bytes(value: &Value) -> usize {
    let mut counted = Counter(0);
    // The counter accepts every write, so serialization cannot fail.
    let _ = serde_json::to_writer(&mut counted, value);
    counted.0
}

fn piece_bytes(content: &Content) -> usize {
    match content {
        Content::Text(text) => text.len(),
        Content::Image { bytes, .. } | Content::Audio { bytes, .. } | Content::Binary { bytes, .. } => {
            bytes.len()
        }
        Content::Resource { text, .. } => text.as_ref().map_or(0, String::len),
        // A stored output counts with its description, because only the description goes to the model.
        Content::Stored(stored) => stored.told().len(),
    }
}

struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
