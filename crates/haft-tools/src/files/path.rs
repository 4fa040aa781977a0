//! Checks path strings before any lookup, and formats paths for messages.

use std::borrow::Cow;

/// `PATH_MAX` of Linux, without its final NUL byte.
pub(super) const PATH_BYTES_MAX: usize = 4095;
/// `NAME_MAX` of Linux.
pub(super) const COMPONENT_BYTES_MAX: usize = 255;
/// The number of characters shown of a path that is too long.
const SHOWN_CHARS_MAX: usize = 100;

/// An error in a path string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PathFault {
    #[error("the path is empty")]
    Empty,
    #[error("the path contains a NUL byte")]
    NulByte,
    #[error("the path must be absolute")]
    Relative,
    #[error("the path has {bytes} bytes; the limit is {PATH_BYTES_MAX}")]
    TooLong { bytes: usize },
    #[error("a name in the path has {bytes} bytes; the limit is {COMPONENT_BYTES_MAX}")]
    ComponentTooLong { bytes: usize },
    #[error("the path names a directory; a file name was expected")]
    NamesDirectory,
}

/// Checks the rules that apply to every path. The path is then used unchanged: not trimmed, case-folded or normalised.
pub(super) fn check(path: &str) -> Result<(), PathFault> {
    if path.is_empty() {
        return Err(PathFault::Empty);
    }
    if path.contains('\0') {
        return Err(PathFault::NulByte);
    }
    if !path.starts_with('/') {
        return Err(PathFault::Relative);
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(PathFault::TooLong { bytes: path.len() });
    }
    match path.split('/').map(str::len).max() {
        Some(bytes) if bytes > COMPONENT_BYTES_MAX => Err(PathFault::ComponentTooLong { bytes }),
        _ => Ok(()),
    }
}

/// Checks the rules of [`check`], and that the path can name a file: it does not end in `/`, `.` or `..`.
pub(super) fn check_names_file(path: &str) -> Result<(), PathFault> {
    check(path)?;
    match path.rsplit('/').next() {
        Some("" | "." | "..") | None => Err(PathFault::NamesDirectory),
        Some(_) => Ok(()),
    }
}

/// Returns the path for a message: unchanged, except that long ones are cut and control characters are escaped.
pub(super) fn shown(path: &str) -> Cow<'_, str> {
    if path.len() <= PATH_BYTES_MAX && !path.contains(char::is_control) {
        return Cow::Borrowed(path);
    }
    let visible = visible(path.chars().take(SHOWN_CHARS_MAX));
    let rest = if path.chars().nth(SHOWN_CHARS_MAX).is_some() { "..." } else { "" };
    Cow::Owned(visible + rest)
}

/// Escapes the control characters of a text, so that a file name cannot start a new line.
pub(super) fn visible(chars: impl Iterator<Item = char>) -> String {
    let mut text = String::new();
    for c in chars {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_file(path: &str, expected: Result<(), PathFault>) {
        assert_eq!(check_names_file(path), expected, "{path:?}");
    }

    #[test]
    fn invalid_file_paths_are_rejected() {
        check_file("/a/b", Ok(()));
        check_file("/a/..b", Ok(()));
        check_file("", Err(PathFault::Empty));
        check_file("/a\0b", Err(PathFault::NulByte));
        check_file("a/b", Err(PathFault::Relative));
        check_file("/", Err(PathFault::NamesDirectory));
        check_file("/a/", Err(PathFault::NamesDirectory));
        check_file("/a/.", Err(PathFault::NamesDirectory));
        check_file("/a/..", Err(PathFault::NamesDirectory));
        check_file(&format!("/{}", "x".repeat(255)), Ok(()));
        check_file(&format!("/{}", "x".repeat(256)), Err(PathFault::ComponentTooLong { bytes: 256 }));
        check_file(&"/x".repeat(2500), Err(PathFault::TooLong { bytes: 5000 }));
    }

    #[test]
    fn shown_path_escapes_control_characters_and_is_shortened() {
        assert_eq!(shown("/a/ä b"), "/a/ä b");
        assert_eq!(shown("/a\nb\0"), "/a\\nb\\u{0}");
        assert_eq!(shown(&"x".repeat(5000)), "x".repeat(100) + "...");
    }
}
