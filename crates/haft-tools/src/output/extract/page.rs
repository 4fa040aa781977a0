//! Splits answers into pages, each with the query for the next one.

use haft_core::chunk::{ChunkSettings, chunks};

use super::{ANSWER_BYTES_MAX, ExtractError, PAGE_BYTES_MAX};

/// The average line length above which a page may end in the middle of a line.
const LINE_BYTES_THRESHOLD: usize = 1_000;

/// A text that is split into pages: the answer to a query, or a whole stored output.
pub(crate) struct PagedText<'a> {
    texts: Vec<&'a str>,
    /// The text that follows `page N` in the query for another page.
    question: String,
    /// A note at the end of the last page.
    beyond: &'static str,
}

impl<'a> PagedText<'a> {
    /// Splits the answer to a query into pages.
    pub(super) fn of_answer(answer: &'a str, question: &str) -> Self {
        let made = &answer[..answer.floor_char_boundary(ANSWER_BYTES_MAX)];
        let chunking = ChunkSettings {
            bytes_max: PAGE_BYTES_MAX,
            overlap_percent: 0,
            avg_line_bytes_threshold: LINE_BYTES_THRESHOLD,
        };
        let beyond = if made.len() < answer.len() {
            "; the answer is longer than shown, ask for less at once"
        } else {
            ""
        };
        Self { texts: chunks(made, chunking), question: format!(" of {question}"), beyond }
    }

    /// Splits a whole stored output into pages.
    pub(crate) fn of_output(text: &'a str, chunking: ChunkSettings) -> Self {
        Self { texts: chunks(text, chunking), question: String::new(), beyond: "" }
    }

    pub(crate) fn count(&self) -> usize {
        self.texts.len().max(1)
    }

    /// Returns one page, counted from 1, with the query for the next.
    pub(crate) fn page(&self, number: usize) -> Result<String, ExtractError> {
        let Self { question, beyond, .. } = self;
        let count = self.count();
        if number == 0 || number > count {
            let fault = format!("there is no page {number}: the answer has {count} page(s), counted from 1");
            return Err(ExtractError(fault));
        }
        let page = self.texts.get(number - 1).copied().unwrap_or_default();
        let end = if page.ends_with('\n') || page.is_empty() { "" } else { "\n" };
        Ok(if number < count {
            format!("{page}{end}... (page {number} of {count}; next: `page {}{question}`)", number + 1)
        } else if count == 1 && beyond.is_empty() {
            page.to_owned()
        } else {
            format!("{page}{end}... (page {number} of {count}, the last{beyond})")
        })
    }
}
