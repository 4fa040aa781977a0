//! Limits for stored outputs, and settings for reading them with `tool_output`.

use std::time::Duration;

/// The limits of the output store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreLimits {
    /// The maximum size of one output, in bytes. The store drops the bytes beyond it, and the handle reports that they
    /// are missing.
    pub output_bytes_max: u64,
    /// The maximum size of all outputs together, in bytes. The oldest outputs are removed first.
    pub total_bytes_max: u64,
    /// The age at which an output is removed.
    pub keep: Duration,
}

impl StoreLimits {
    /// Returns limits that remove nothing, for programs that only read.
    pub fn untouched() -> Self {
        Self { output_bytes_max: u64::MAX, total_bytes_max: u64::MAX, keep: Duration::MAX }
    }
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self { output_bytes_max: 16 << 20, total_bytes_max: 1 << 30, keep: Duration::from_hours(7 * 24) }
    }
}

/// Settings of `tool_output` for questions that do not select a part of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputReadSettings {
    /// The maximum number of chunks up to which the mode `auto` returns the whole output.
    pub chunks_max: usize,
    /// The percentage of a chunk that the next chunk repeats at its start.
    pub overlap_percent: usize,
    /// A text whose average line has at least this many bytes is split at any position; other texts are split at line
    /// ends.
    pub avg_line_bytes_threshold: usize,
}

impl Default for OutputReadSettings {
    fn default() -> Self {
        Self { chunks_max: 1, overlap_percent: 10, avg_line_bytes_threshold: 1_000 }
    }
}
