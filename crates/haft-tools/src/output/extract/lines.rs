//! Returns parts of a text by lines or bytes.

use super::ExtractError;

/// Returns the lines from `first` to `last`, counted from 1, with their line breaks.
pub(super) fn range(text: &str, first: usize, last: usize) -> Result<String, ExtractError> {
    if first == 0 {
        return Err(ExtractError("there is no line 0: lines are counted from 1".into()));
    }
    let found: String =
        text.split_inclusive('\n').skip(first - 1).take(last.saturating_sub(first - 1)).collect();
    if found.is_empty() && !text.is_empty() {
        let lines = text.split_inclusive('\n').count();
        return Err(ExtractError(format!("line {first} is beyond the end: the output has {lines} lines")));
    }
    Ok(found)
}

pub(super) fn first(text: &str, count: usize) -> String {
    text.split_inclusive('\n').take(count).collect()
}

pub(super) fn last(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    lines[lines.len().saturating_sub(count)..].concat()
}

/// Returns the bytes from `start` up to `end`. A character cut at either end becomes a replacement character.
pub(super) fn bytes(content: &[u8], start: usize, end: usize) -> Result<String, ExtractError> {
    if start >= content.len() && start > 0 {
        return Err(ExtractError(format!(
            "byte {start} is beyond the end: the output has {} bytes",
            content.len()
        )));
    }
    Ok(String::from_utf8_lossy(&content[start..end.min(content.len())]).into_owned())
}
