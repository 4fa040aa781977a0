//! The position of an error in a text, with a short excerpt around it.

use std::fmt;

/// A position as an editor shows it: line and column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineColumn {
    /// The line number, counted from 1.
    pub line: usize,
    /// The column, counted in characters from 1.
    pub column: usize,
    /// An excerpt of the text around the position; empty if the text is empty.
    pub near: String,
}

const BEFORE_CHARS: usize = 20;
const AFTER_CHARS: usize = 20;

impl LineColumn {
    /// Converts a byte offset into a position.
    pub(super) fn at(text: &str, offset: usize) -> Self {
        let offset = text.floor_char_boundary(offset);
        let (before, after) = text.split_at(offset);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            near: near(before, after),
        }
    }

    /// Converts a position from `serde_json`, which counts lines from 1 and columns in bytes from 1.
    pub(super) fn at_line(text: &str, line: usize, column: usize) -> Self {
        let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        Self::at(text, (start + column.saturating_sub(1)).min(text.len()))
    }
}

impl fmt::Display for LineColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} column {}", self.line, self.column)?;
        if self.near.is_empty() { Ok(()) } else { write!(f, ", near `{}`", self.near) }
    }
}

fn near(before: &str, after: &str) -> String {
    let start = before.char_indices().rev().nth(BEFORE_CHARS - 1).map_or(0, |(start, _)| start);
    let end = after.char_indices().nth(AFTER_CHARS).map_or(after.len(), |(end, _)| end);
    format!("{}{}", &before[start..], &after[..end])
}
