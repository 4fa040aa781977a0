//! Answers in pages, each with the question that asks for the next.

use haft_core::chunk::{Chunking, chunks};

use super::{ANSWER_BYTES_MAX, ExtractError, PAGE_BYTES_MAX};

/// Where lines are longer than this a page ends anywhere.
const LINE_BYTES_THRESHOLD: usize = 1_000;

/// A text in pages.
pub(crate) struct Pages<'a> {
    texts: Vec<&'a str>,
    /// What stands after `page N` in the question for another.
    question: String,
    /// Said on the last page.
    beyond: &'static str,
}

impl<'a> Pages<'a> {
    /// Of an answer to a question.
    pub(super) fn of_answer(answer: &'a str, question: &str) -> Self {
        let made = &answer[..answer.floor_char_boundary(ANSWER_BYTES_MAX)];
        let chunking = Chunking {
            bytes_max: PAGE_BYTES_MAX,
            overlap_percent: 0,
            avg_line_bytes_threshold: LINE_BYTES_THRESHOLD,
        };
        let beyond =
            if made.len() < answer.len() { "; the answer has more, ask for less at once" } else { "" };
        Self { texts: chunks(made, chunking), question: format!(" of {question}"), beyond }
    }

    /// Of a whole output.
    pub(crate) fn of_output(text: &'a str, chunking: Chunking) -> Self {
        Self { texts: chunks(text, chunking), question: String::new(), beyond: "" }
    }

    pub(crate) fn count(&self) -> usize {
        self.texts.len().max(1)
    }

    /// One page, counted from 1, and how to ask for the next.
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
