//! A question as it is written: what is asked, and which page of the answer is wanted.

use super::page::Pages;
use super::{Extract, ExtractError, parse};

/// A question that needs no model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    extract: Extract,
    /// As it was written, for the question that asks for the next page.
    written: String,
    /// Counted from 1.
    page: usize,
}

impl Question {
    /// Reads a question, or `page 2 of` one; `None` when it is none of the known ones, and so is meant for a model.
    pub fn parse(text: &str) -> Result<Option<Self>, ExtractError> {
        let (page, written) = match numbered(text.trim()) {
            Some((number, rest)) => (parse::number(number)?, rest),
            None => (1, text.trim()),
        };
        let extract = parse::parse(written)?;
        Ok(extract.map(|extract| Self { extract, written: written.to_owned(), page }))
    }

    /// Answers it: one page, and how to ask for the next. May never end: a filter is what somebody wrote.
    pub fn answer(&self, content: &[u8]) -> Result<String, ExtractError> {
        let answer = self.extract.answer(content)?;
        Pages::of_answer(&answer, &self.written).page(self.page)
    }
}

/// `page N of QUESTION`.
fn numbered(text: &str) -> Option<(&str, &str)> {
    let (number, rest) = text.strip_prefix("page ")?.trim_start().split_once(" of ")?;
    Some((number.trim(), rest.trim()))
}
