//! Errors in an agent file, with their line numbers.

use std::fmt;

use crate::printable;

/// An error in an agent file, as a message for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct AgentError {
    pub file: Box<str>,
    /// The line number in the agent file, counted from 1.
    pub line: usize,
    pub message: String,
    pub hint: Option<String>,
    /// The next error of the same file.
    pub next: Option<Box<AgentError>>,
}

impl AgentError {
    pub fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.into(), line, message: message.into(), hint: None, next: None }
    }

    #[must_use]
    pub(super) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    #[must_use]
    pub(super) fn with_next(mut self, next: Option<Self>) -> Self {
        self.next = next.map(Box::new);
        self
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", printable(&self.file), self.line, printable(&self.message))?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {}", printable(hint)))?;
        self.next.as_ref().map_or(Ok(()), |next| write!(f, "\n{next}"))
    }
}
