//! Errors in an agent's file, with their lines.

use std::fmt;

use crate::printable;

/// An error in an agent's file, for its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentError {
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    pub message: String,
    pub hint: Option<String>,
}

impl AgentError {
    pub fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.into(), line, message: message.into(), hint: None }
    }

    #[must_use]
    pub(super) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", printable(&self.file), self.line, printable(&self.message))?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {}", printable(hint)))
    }
}

impl std::error::Error for AgentError {}
