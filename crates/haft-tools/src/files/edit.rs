//! The `edit` tool: replaces a part of a file's text.

use std::path::Path;

use super::directory_entry::{OpenDirectoryEntry, WRITE_FILE_BYTES_MAX, follow_links};
use super::path::shown;
use super::protocol::FileError;
use super::refusal::WriteError;
use super::text_file::load_requested;

mod near_match;

/// The old text, the new text, and the occurrences to replace.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextReplacement<'a> {
    pub(super) old: &'a str,
    pub(super) new: &'a str,
    pub(super) occurrences: Occurrences,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrences {
    First,
    All,
}

pub(super) fn edit(path: &str, replacement: TextReplacement<'_>) -> Result<String, FileError> {
    reject_noop_edit(replacement)?;
    let text = load_requested(path).map_err(|error| error.file_error(path))?;
    // Open the entry before the search, so that a file without write permission reveals nothing about its content.
    let place = open_entry(path).map_err(|error| error.file_error(path))?;
    let edited = apply(&text, replacement).map_err(|fault| FileError::failed(fault.file_error(path)))?;
    place.replace(edited.text.as_bytes()).map_err(|error| error.file_error(path))?;
    Ok(success(path, edited.count, replacement.occurrences))
}

fn open_entry(path: &str) -> Result<OpenDirectoryEntry, WriteError> {
    OpenDirectoryEntry::open(&follow_links(Path::new(path))?)
}

fn reject_noop_edit(replacement: TextReplacement<'_>) -> Result<(), FileError> {
    if replacement.old.is_empty() {
        return Err(FileError::failed("Error: old_string is empty; give the exact text to replace"));
    }
    if replacement.old == replacement.new {
        return Err(FileError::failed("Error: old_string and new_string are the same; nothing to change"));
    }
    Ok(())
}

fn success(path: &str, count: usize, occurrences: Occurrences) -> String {
    let replaced = match occurrences {
        Occurrences::First => "first",
        Occurrences::All => "all",
    };
    format!("Edited {path} ({count} occurrence(s) of pattern, replaced {replaced})")
}

/// The text after the edit, and the number of non-overlapping occurrences of the old text before the edit.
#[derive(Debug, PartialEq, Eq)]
struct EditedText {
    text: String,
    count: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum EditFault {
    NotFound { hint: Option<String> },
    TooLarge,
}

fn apply(text: &str, replacement: TextReplacement<'_>) -> Result<EditedText, EditFault> {
    let TextReplacement { old, new, occurrences } = replacement;
    let count = text.matches(old).count();
    if count == 0 {
        return Err(EditFault::NotFound { hint: near_match::hint(text, old) });
    }
    let times = match occurrences {
        Occurrences::First => 1,
        Occurrences::All => count,
    };
    match edited_bytes(text, replacement, times) {
        Some(bytes) if bytes as u64 <= WRITE_FILE_BYTES_MAX => {
            Ok(EditedText { text: text.replacen(old, new, times), count })
        }
        Some(_) | None => Err(EditFault::TooLarge),
    }
}

/// Returns the length of the result before the result is built: replacing a short text can make a file a million times
/// larger.
fn edited_bytes(text: &str, replacement: TextReplacement<'_>, times: usize) -> Option<usize> {
    let removed = replacement.old.len() * times;
    replacement.new.len().checked_mul(times)?.checked_add(text.len() - removed)
}

impl EditFault {
    fn file_error(&self, path: &str) -> String {
        match self {
            EditFault::NotFound { hint: None } => "Error: old_string not found in file".to_owned(),
            EditFault::NotFound { hint: Some(hint) } => {
                format!("Error: old_string not found in file ({hint})")
            }
            EditFault::TooLarge => {
                let path = shown(path);
                format!(
                    "Error writing {path}: the edited file would have more than {WRITE_FILE_BYTES_MAX} bytes"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
