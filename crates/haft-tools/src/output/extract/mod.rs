//! What can be asked of a stored output, without any model.

mod grep;
mod jq;
mod lines;
mod parse;
mod shape;
mod stats;

use std::fmt;

use grep::Grep;

/// A question about a stored output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extract {
    /// From the first to the last line, counted from 1.
    Lines {
        first: usize,
        last: usize,
    },
    FirstLines(usize),
    LastLines(usize),
    /// From the first byte up to, not including, the last, counted from 0.
    Bytes {
        start: usize,
        end: usize,
    },
    Grep(Grep),
    Jq(String),
    /// The shape of JSON: keys and types, not values.
    Schema,
    Stats,
}

/// The most characters of one answer; asking again further on gives the rest.
pub(super) const ANSWER_CHARS_MAX: usize = 30_000;

impl Extract {
    /// Reads a question; `None` when it is none of the known ones, and so is meant for a model.
    pub fn parse(text: &str) -> Result<Option<Self>, ExtractError> {
        parse::parse(text.trim())
    }

    /// Answers it. Bounded in what it gives, not in time: a filter may run for ever.
    pub fn answer(&self, content: &[u8]) -> Result<String, ExtractError> {
        let text = String::from_utf8_lossy(content);
        let answer = match self {
            Extract::Lines { first, last } => lines::range(&text, *first, *last)?,
            Extract::FirstLines(count) => lines::range(&text, 1, *count)?,
            Extract::LastLines(count) => lines::last(&text, *count),
            Extract::Bytes { start, end } => lines::bytes(content, *start, *end)?,
            Extract::Grep(grep) => grep.answer(&text),
            Extract::Jq(filter) => jq::run(filter, content)?,
            Extract::Schema => shape::of(content)?,
            Extract::Stats => stats::of(&text, content),
        };
        Ok(haft_core::text::truncate_chars(&answer, ANSWER_CHARS_MAX))
    }
}

/// Why a question cannot be answered, in words for whoever asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractError(pub String);

impl fmt::Display for ExtractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ExtractError {}

#[cfg(test)]
mod tests;
