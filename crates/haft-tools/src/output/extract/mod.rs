//! Answers queries about a stored output without a model.
//!
//! Start reading at [`OutputQuery`], which holds a query and the requested page of its answer.

mod binary;
mod grep;
mod jq;
mod lines;
mod page;
mod parse;
mod question;
mod shape;
mod stats;

pub(super) use binary::HOW_TO_ASK;
pub use binary::about as about_binary;
use grep::Grep;
use haft_core::media;
pub(super) use page::PagedText;
pub use question::OutputQuery;

/// A query about a stored output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extract {
    /// The lines from the first to the last, counted from 1.
    Lines {
        first: usize,
        last: usize,
    },
    FirstLines(usize),
    LastLines(usize),
    /// The bytes from the first up to, but not including, the last, counted from 0.
    Bytes {
        start: usize,
        end: usize,
    },
    Grep(Grep),
    Jq(String),
    /// The shape of JSON: keys and types without values.
    Schema,
    Stats,
}

/// The maximum size of one page of an answer, in bytes. The reader can request the next page.
pub const PAGE_BYTES_MAX: usize = 30_000;

/// The maximum size of an answer over all its pages, in bytes.
pub(super) const ANSWER_BYTES_MAX: usize = 4 << 20;

impl Extract {
    /// Answers the query. Limits the size of the answer but not the time: a jq filter may run forever.
    fn answer(&self, content: &[u8]) -> Result<String, ExtractError> {
        if media::is_binary(content) {
            return binary::answer(self, content);
        }
        let text = String::from_utf8_lossy(content);
        match self {
            Extract::Lines { first, last } => lines::range(&text, *first, *last),
            Extract::FirstLines(count) => Ok(lines::first(&text, *count)),
            Extract::LastLines(count) => Ok(lines::last(&text, *count)),
            Extract::Bytes { start, end } => lines::bytes(content, *start, *end),
            Extract::Grep(grep) => Ok(grep.answer(&text)),
            Extract::Jq(filter) => jq::run(filter, content),
            Extract::Schema => shape::of(content),
            Extract::Stats => Ok(stats::of(&text, content)),
        }
    }
}

/// The reason why a query failed, for the model or user who sent it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExtractError(pub String);

#[cfg(test)]
mod tests;
