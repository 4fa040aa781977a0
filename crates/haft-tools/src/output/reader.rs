//! The interface to a reader, which answers questions about stored outputs with a model.

use futures_util::future::BoxFuture;
use haft_core::chunk::{ChunkSettings, chunks};
use haft_core::output_store::Handle;
use haft_core::provider::CallContext;

use super::answer::OutputReadMode;
use haft_core::settings::outputs::OutputReadSettings;

/// A reader that answers questions in free text. Dropping the future of a read must stop all its work.
pub trait OutputReader: Send + Sync {
    /// Returns the number of bytes of this output that the reader's model can read at once.
    fn piece_bytes(&self, text: &str) -> usize;

    /// Answers a question. The error is a message that explains why the model gave no answer.
    fn read<'a>(
        &'a self,
        asked: FreeQuestion<'a>,
        cx: &'a CallContext,
    ) -> BoxFuture<'a, Result<String, String>>;
}

/// A question about one stored output.
#[derive(Debug, Clone, Copy)]
pub struct FreeQuestion<'a> {
    pub handle: &'a Handle,
    pub text: &'a str,
    pub question: &'a str,
    pub strategy: ReadStrategy,
    pub reading: OutputReadSettings,
}

/// The strategy by which a model reads an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStrategy {
    /// The model reads the whole output in chunks; the answers are then combined.
    FullChunked,
    /// The model searches the output itself, with tools that can access nothing else.
    ReadGrep,
}

impl ReadStrategy {
    pub fn name(self) -> &'static str {
        match self {
            Self::FullChunked => "full-chunked",
            Self::ReadGrep => "read-grep",
        }
    }
}

impl FreeQuestion<'_> {
    /// Splits the output into chunks for the model.
    pub fn pieces(&self, piece_bytes: usize) -> Vec<&str> {
        chunks(self.text, chunking(&self.reading, piece_bytes))
    }
}

/// Chooses the strategy for an output; returns `None` if no model should read it.
pub(super) fn strategy(
    mode: OutputReadMode,
    text: &str,
    reading: &OutputReadSettings,
    piece_bytes: usize,
) -> Option<ReadStrategy> {
    let lines = text.bytes().filter(|byte| *byte == b'\n').count().max(1);
    let has_long_lines = text.len() / lines >= reading.avg_line_bytes_threshold;
    let is_short = || chunks(text, chunking(reading, piece_bytes)).len() <= reading.chunks_max;
    match mode {
        OutputReadMode::Truncate => None,
        OutputReadMode::FullChunked => Some(ReadStrategy::FullChunked),
        // A search by line is useless if lines are long: every match would return a huge line.
        OutputReadMode::Auto if has_long_lines || is_short() => Some(ReadStrategy::FullChunked),
        OutputReadMode::Auto | OutputReadMode::ReadGrep => Some(ReadStrategy::ReadGrep),
    }
}

fn chunking(reading: &OutputReadSettings, bytes_max: usize) -> ChunkSettings {
    let OutputReadSettings { overlap_percent, avg_line_bytes_threshold, .. } = *reading;
    ChunkSettings { bytes_max, overlap_percent, avg_line_bytes_threshold }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_mode_auto_greps_only_long_outputs_with_short_lines() {
        let check = |mode: OutputReadMode, text: &str, expected: Option<ReadStrategy>| {
            assert_eq!(strategy(mode, text, &OutputReadSettings::default(), 1_000), expected, "{mode:?}");
        };
        let (short, long) = ("a line\n".repeat(10), "a line\n".repeat(1_000));
        check(OutputReadMode::Auto, &short, Some(ReadStrategy::FullChunked));
        check(OutputReadMode::Auto, &long, Some(ReadStrategy::ReadGrep));
        check(OutputReadMode::Auto, &"x".repeat(5_000), Some(ReadStrategy::FullChunked));
        check(OutputReadMode::ReadGrep, &short, Some(ReadStrategy::ReadGrep));
        check(OutputReadMode::FullChunked, &long, Some(ReadStrategy::FullChunked));
        check(OutputReadMode::Truncate, &short, None);
    }
}
