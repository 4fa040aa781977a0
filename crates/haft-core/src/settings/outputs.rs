//! Limits of stored outputs, and how `tool_output` reads them.

use std::time::Duration;

/// The limits of the output store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLimits {
    /// The largest single output; the store drops the bytes beyond it, and the handle reports that.
    pub output_bytes_max: u64,
    /// All outputs together; the oldest go first.
    pub total_bytes_max: u64,
    /// The age at which an output is removed.
    pub keep: Duration,
}

impl StoreLimits {
    /// Returns limits that remove nothing, for readers.
    pub fn untouched() -> Self {
        Self { output_bytes_max: u64::MAX, total_bytes_max: u64::MAX, keep: Duration::MAX }
    }
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { output_bytes_max: 16 << 20, total_bytes_max: 1 << 30, keep: Duration::from_hours(7 * 24) }
    }
}

/// Settings of `tool_output` for a question that selects no part of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputReadSettings {
    /// `auto` returns an output whole when it has at most this many chunks.
    pub chunks_max: usize,
    /// The percentage of a chunk that the next chunk repeats at its start.
    pub overlap_percent: usize,
    /// A text with an average line length of at least this is split anywhere, and any other text at line ends.
    pub avg_line_bytes_threshold: usize,
}

impl Default for OutputReadSettings {
    fn default() -> Self {
        Self { chunks_max: 1, overlap_percent: 10, avg_line_bytes_threshold: 1_000 }
    }
}
