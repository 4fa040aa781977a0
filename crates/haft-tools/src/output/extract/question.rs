//! A query, and the requested page of its answer.

use super::page::PagedText;
use super::{Extract, ExtractError, parse};

/// A query that haft answers without a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputQuery {
    extract: Extract,
    /// The text of the query. It is repeated in the query that requests the next page.
    written: String,
    /// The requested page of the answer, counted from 1.
    page: usize,
}

impl OutputQuery {
    /// Parses a query, or `page N of` a query. Returns `None` for any other text, which is a question for a model.
    pub fn parse(text: &str) -> Result<Option<Self>, ExtractError> {
        let (page, written) = match numbered(text.trim()) {
            Some((number, rest)) => (parse::number(number)?, rest),
            None => (1, text.trim()),
        };
        let extract = parse::parse(written)?;
        Ok(extract.map(|extract| Self { extract, written: written.to_owned(), page }))
    }

    /// Answers the query with one page and the query for the next page. A jq filter may run forever, and then this
    /// function never returns.
    pub fn answer(&self, content: &[u8]) -> Result<String, ExtractError> {
        let answer = self.extract.answer(content)?;
        PagedText::of_answer(&answer, &self.written).page(self.page)
    }
}

/// Splits `page N of QUERY`.
fn numbered(text: &str) -> Option<(&str, &str)> {
    let (number, rest) = text.strip_prefix("page ")?.trim_start().split_once(" of ")?;
    Some((number.trim(), rest.trim()))
}
