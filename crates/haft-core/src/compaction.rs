//! Compaction: makes a conversation smaller, so that a long run can continue instead of filling its context window.
//!
//! All functions in this module are pure functions of a conversation. [`CompactionPlan::of`] decides,
//! [`CompactionPlan::archive_text`] and [`CompactionPlan::summary_request`] return the text to store and the request to
//! send, and [`CompactionPlan::without_outputs`] and [`CompactionPlan::with_summary`] build the new conversation. The
//! caller does the IO in between.
//!
//! Removed text goes to an *archive*: one stored output of the session, to which every compaction appends. The model
//! can read the removed text again with `tool_output`, by the line numbers that the new conversation gives, or with
//! `grep`.

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
    /// Compaction starts when the next request takes more than this percentage of the usable tokens: the context window
    /// minus the buffer and the space for the reply.
    pub at_percent: u8,
    /// The number of recent turns that are kept word for word. Fewer are kept if they are large; the last turn is
    /// always kept.
    pub keep_turns: u32,
    /// The model that writes summaries, as its provider names it; `None` for the model of the run.
    pub model: Option<String>,
    /// The maximum number of tokens in a request to the summary model; `None` for the run's own limit.
    pub request_tokens_max: Option<u64>,
}

impl CompactionRules {
    /// The default percentage at which compaction starts.
    pub const AT_PERCENT_DEFAULT: u8 = 85;
    /// The default number of turns that are kept word for word.
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

/// A range of lines in an archive, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSpan {
    /// The archive that holds the lines.
    pub handle: Handle,
    /// The first line of the range.
    pub first: u64,
    /// The last line of the range.
    pub last: u64,
}

impl ArchiveSpan {
    /// Returns the lines that an appended text takes in an archive. `before` is the archive before the append. A text
    /// that did not fit into this archive starts a new archive.
    pub fn appended(before: Option<&StoreEntry>, after: &StoreEntry) -> Self {
        let continued = before.filter(|before| before.handle == after.handle);
        let first = continued.map_or(0, |before| before.lines).saturating_add(1);
        Self { handle: after.handle.clone(), first, last: after.lines.max(first) }
    }
}

#[cfg(test)]
mod tests;
