//! Makes text from other sources safe to show: short, and without control characters for terminals.

/// The maximum number of characters of such text in an error.
const EXCERPT_CHARS_MAX: usize = 80;

/// Returns the beginning of a text, on one line.
pub(super) fn excerpt(text: &str) -> String {
    let mut shown = printable(&text.chars().take(EXCERPT_CHARS_MAX).collect::<String>());
    if text.chars().nth(EXCERPT_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Returns the whole text on one line. Escapes control characters, and characters that change the writing direction.
pub fn printable(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\'' | '\\' => c.to_string(),
        _ => c.escape_debug().to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpt_escapes_control_characters_and_truncates() {
        assert_eq!(excerpt("plain \"ü\" \\ text"), "plain \"ü\" \\ text");
        assert_eq!(excerpt("a\x1b[2Jb\nc\u{202e}d"), "a\\u{1b}[2Jb\\nc\\u{202e}d");
        assert_eq!(excerpt(&"x".repeat(100)), format!("{}…", "x".repeat(80)));
    }
}
