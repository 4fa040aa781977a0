//! The `read` tool: returns the exact text of a file, or of some of its lines, or the image that the file holds.

use super::image;
use super::path::shown;
use super::protocol::{FileError, FileReply, FileText};
use super::text_file::load_requested;

/// The maximum number of characters that `read` shows.
pub const MAX_READ_OUTPUT: usize = 50_000;

/// The maximum size of a text that `read` returns if there is an output store, in bytes. With JSON escapes, the text
/// may be six times as long in a frame.
pub const READ_STORED_BYTES_MAX: usize = 8 << 20;

/// Reads lines of a file: `offset` is the 1-based first line, `limit` the number of lines. Adds no line numbers, so
/// that the model can pass the text to `edit` unchanged.
pub(super) fn read(path: &str, offset: Option<u64>, limit: Option<u64>, bytes_max: usize) -> FileReply {
    let text = match load_requested(path) {
        Ok(text) => text,
        Err(error) if error.is_not_text() => {
            return match image::load(path)? {
                Some(image) => Ok(FileText { image: Some(image), ..String::new().into() }),
                None => Err(error.file_error(path)),
            };
        }
        Err(error) => return Err(error.file_error(path)),
    };
    let lines = select_lines(&text, offset, limit)
        .map_err(|fault| FileError::failed(format!("Error reading {}: {fault}", shown(path))))?;
    let (wanted, beyond) = lines.split_at(lines.floor_char_boundary(bytes_max));
    Ok(FileText { text: wanted.to_owned(), chars_beyond: beyond.chars().count(), image: None })
}

/// Returns the requested lines with their original line breaks.
fn select_lines(text: &str, offset: Option<u64>, limit: Option<u64>) -> Result<&str, String> {
    let first_line = offset.unwrap_or(1);
    if first_line == 0 {
        return Err("`offset` is the number of the first line and starts at 1; got 0".to_owned());
    }
    if limit == Some(0) {
        return Err("`limit` is a number of lines and must be at least 1; got 0".to_owned());
    }
    let rest = skip_lines(text, first_line - 1);
    if rest.is_empty() && first_line > 1 {
        let lines = text.split_inclusive('\n').count();
        return Err(format!("`offset` {first_line} is beyond the end: the file has {lines} line(s)"));
    }
    Ok(limit.map_or(rest, |limit| &rest[..rest.len() - skip_lines(rest, limit).len()]))
}

fn skip_lines(text: &str, lines: u64) -> &str {
    let lines = usize::try_from(lines).unwrap_or(usize::MAX);
    let skipped: usize = text.split_inclusive('\n').take(lines).map(str::len).sum();
    &text[skipped..]
}

#[cfg(test)]
mod tests;
