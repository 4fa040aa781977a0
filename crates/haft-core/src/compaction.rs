//! Compaction: makes a conversation smaller, so that a long run goes on instead of filling its context window.
//!
//! Everything here is a pure function of a conversation. [`CompactionPlan::of`] decides, [`CompactionPlan::archive_text`]
//! and [`CompactionPlan::summary_request`] say what must be stored and asked, and [`CompactionPlan::without_outputs`]
//! and [`CompactionPlan::with_summary`] build the new conversation. The caller does the IO in between.
//!
//! Removed text goes to an *archive*: one stored output of the session that grows. The model reads it again with
//! `tool_output`, by the line numbers that the new conversation names, or with `grep`.

mod plan;
mod replace;
pub mod size;
mod summary;
mod transcript;

use crate::output_store::{Handle, StoreEntry};

pub use plan::{CompactionPlan, CompactionScope, ConversationRoom};
pub use summary::{SummaryFault, SummaryRequest, SummaryText, read_summary};

/// The settings of compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionRules {
    /// Compaction begins when the next request takes more than this share of the tokens that messages and tools may
    /// take: the window without the room for the reply and without the buffer.
    pub at_percent: u8,
    /// The most recent turns that stay word for word. Fewer stay if they are large; the last one always stays.
    pub keep_turns: u32,
    /// The model that writes summaries, in the name of its provider; `None` for the model of the run.
    pub model: Option<String>,
    /// The most tokens of a request to that model; `None` for the limit of the run.
    pub request_tokens_max: Option<u64>,
}

impl CompactionRules {
    /// The default share at which compaction begins.
    pub const AT_PERCENT_DEFAULT: u8 = 85;
    /// The default number of turns that stay word for word.
    pub const KEEP_TURNS_DEFAULT: u32 = 6;
}

impl Default for CompactionRules {
    fn default() -> Self {
        Self {
            at_percent: Self::AT_PERCENT_DEFAULT,
            keep_turns: Self::KEEP_TURNS_DEFAULT,
            model: None,
            request_tokens_max: None,
        }
    }
}

/// Lines of the archive, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSpan {
    /// The archive that holds the lines.
    pub handle: Handle,
    /// The first line.
    pub first: u64,
    /// The last line.
    pub last: u64,
}

impl ArchiveSpan {
    /// Returns the place of a text that was appended to an archive. `before` is the archive as it was; a text that did
    /// not fit into it begins a new one.
    pub fn appended(before: Option<&StoreEntry>, after: &StoreEntry) -> Self {
        let continued = before.filter(|before| before.handle == after.handle);
        let first = continued.map_or(0, |before| before.lines).saturating_add(1);
        Self { handle: after.handle.clone(), first, last: after.lines.max(first) }
    }
}

#[cfg(test)]
mod tests;
