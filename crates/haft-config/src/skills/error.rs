//! Errors in a skill file, with their line numbers.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::printable;

/// An error in a skill, as a message for its author.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct SkillError {
    pub path: PathBuf,
    /// The line number in the skill file, counted from 1.
    pub line: usize,
    pub message: String,
    pub hint: Option<String>,
}

impl SkillError {
    pub(super) fn new(path: &Path, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into(), hint: None }
    }
}

impl fmt::Display for SkillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display().to_string();
        write!(f, "{}:{}: {}", printable(&path), self.line, printable(&self.message))?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {}", printable(hint)))
    }
}
