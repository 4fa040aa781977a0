//! How large an output is, in bytes.

use std::io;

use haft_core::output::{Content, ToolOutput};
use serde_json::Value;

/// What an output takes, structured part included.
pub(crate) fn output_bytes(output: &ToolOutput) -> usize {
    content_bytes(output) + output.structured.as_ref().map_or(0, json_bytes)
}

/// What the content of an output takes.
pub(crate) fn content_bytes(output: &ToolOutput) -> usize {
    output.content.iter().map(piece_bytes).sum()
}

/// The length of a value's JSON text, which is never held in memory.
pub(crate) fn json_bytes(value: &Value) -> usize {
    let mut counted = Counter(0);
    // Counting cannot fail.
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
        // What is stored is not carried along; what is said about it is.
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
