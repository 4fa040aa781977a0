//! Truncates text at a character boundary, with a notice.

use std::borrow::Cow;

/// Returns the text unchanged if it has at most `chars_max` characters, else its start and a notice.
pub fn truncate_chars(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}{}", &text[..end], truncation_notice(text.chars().count(), chars_max)),
    }
}

/// Returns the notice for a text of which only the first `chars_shown` characters are shown.
pub fn truncation_notice(chars_total: usize, chars_shown: usize) -> String {
    format!("\n... (output truncated: {chars_total} total chars, showing first {chars_shown})")
}

/// Returns true for a character that must not reach a terminal from untrusted text, because it could move the cursor or
/// change the order in which the text around it is displayed. Line breaks and tabs are included.
pub fn controls_terminal(c: char) -> bool {
    c.is_control() || is_bidi_control(c)
}

/// Returns true for a control character of the Unicode bidirectional algorithm (UAX #9, section 2): marks, embeddings,
/// overrides and isolates.
pub fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Collects process output of any size as text, and keeps only its start.
///
/// The bytes may arrive in chunks of any size. `CappedText` joins a character that is split between two chunks and
/// replaces invalid UTF-8 by U+FFFD, so that the text does not depend on the chunk boundaries.
#[derive(Debug, Clone)]
pub struct CappedText {
    kept: String,
    chars_total: usize,
    chars_unseen: usize,
    chars_max: usize,
    /// The first bytes of an incomplete character, at most three.
    pending: Vec<u8>,
}

impl CappedText {
    /// Creates an empty text that keeps at most this many characters.
    pub fn new(chars_max: usize) -> Self {
        Self { kept: String::new(), chars_total: 0, chars_unseen: 0, chars_max, pending: Vec::new() }
    }

    /// Adds a chunk. Returns the text that the chunk completed, for a caller that shows output as it arrives.
    pub fn push<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, str> {
        let text = self.decode(bytes);
        self.keep(&text);
        text
    }

    /// Counts characters whose content the caller did not read. They come after all other characters.
    pub fn push_unseen(&mut self, chars: usize) {
        self.chars_total += chars;
        self.chars_unseen += chars;
    }

    /// Returns the number of characters whose content the caller did not read.
    pub fn unseen_chars(&self) -> usize {
        self.chars_unseen
    }

    /// Returns true if no output has arrived.
    pub fn is_empty(&self) -> bool {
        self.chars_total == 0 && self.pending.is_empty()
    }

    /// Returns true if more output has arrived than is kept.
    pub fn is_cut(&self) -> bool {
        self.chars_total > self.chars_max
    }

    /// Returns the text, with a notice if it was cut.
    pub fn finish(mut self) -> String {
        if !self.pending.is_empty() {
            self.keep("\u{fffd}");
        }
        if self.is_cut() {
            self.kept.push_str(&truncation_notice(self.chars_total, self.chars_max));
        }
        self.kept
    }

    fn decode<'b>(&mut self, bytes: &'b [u8]) -> Cow<'b, str> {
        if self.pending.is_empty() {
            let (whole, rest) = split_incomplete(bytes);
            self.pending.extend_from_slice(rest);
            return String::from_utf8_lossy(whole);
        }
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(bytes);
        let (whole, rest) = split_incomplete(&joined);
        self.pending.extend_from_slice(rest);
        Cow::Owned(String::from_utf8_lossy(whole).into_owned())
    }

    fn keep(&mut self, text: &str) {
        let room = self.chars_max.saturating_sub(self.chars_total);
        let end = text.char_indices().nth(room).map_or(text.len(), |(end, _)| end);
        self.kept.push_str(&text[..end]);
        self.chars_total += text.chars().count();
    }
}

/// Splits off the last bytes if they may be the start of a character.
fn split_incomplete(bytes: &[u8]) -> (&[u8], &[u8]) {
    let starts = (1..=bytes.len().min(3)).map(|length| bytes.len() - length);
    let start = starts.into_iter().find(|&start| is_incomplete(&bytes[start..])).unwrap_or(bytes.len());
    bytes.split_at(start)
}

fn is_incomplete(tail: &[u8]) -> bool {
    std::str::from_utf8(tail).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_control_characters_are_detected() {
        for c in "\u{1b}\u{9b}\u{7f}\n\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            assert!(controls_terminal(c), "{c:?}");
        }
        for c in "a é 漢 😀 א ع \u{200d} \u{2065} \u{206a}".chars() {
            assert!(!controls_terminal(c), "{c:?}");
        }
    }

    #[test]
    fn truncated_text_ends_at_a_char_boundary_and_reports_the_total_length() {
        let check = |text: &str, chars_max: usize, expected: &str| {
            assert_eq!(truncate_chars(text, chars_max), expected);
            let mut capped = CappedText::new(chars_max);
            capped.push(text.as_bytes());
            assert_eq!(capped.finish(), expected, "`CappedText` and `truncate_chars` agree");
        };
        check("", 0, "");
        check("short", 10, "short");
        check("exact", 5, "exact");
        check("ünïcödé", 3, "ünï\n... (output truncated: 7 total chars, showing first 3)");
        check("x", 0, "\n... (output truncated: 1 total chars, showing first 0)");
    }

    #[test]
    fn utf8_character_split_across_pushes_is_decoded_whole() {
        let whole = "aé€😀z";
        for cut in 0..whole.len() {
            let (left, right) = whole.as_bytes().split_at(cut);
            let mut text = CappedText::new(10);
            assert!(text.is_empty());
            let shown = format!("{}{}", text.push(left), text.push(right));
            assert_eq!(shown, whole);
            assert!(!text.is_empty());
            assert_eq!(text.finish(), whole);
        }
    }

    #[test]
    fn incomplete_utf8_at_the_end_becomes_a_replacement_character() {
        let mut text = CappedText::new(10);
        text.push(&[0xf0, 0x9f]);
        assert!(!text.is_empty());
        assert_eq!(text.finish(), "\u{fffd}");
    }

    #[test]
    fn capped_text_memory_stays_near_the_cap() {
        let mut text = CappedText::new(8);
        for _ in 0..10_000 {
            text.push(&[b'x'; 100]);
        }
        assert!(text.kept.capacity() < 1024);
        assert_eq!(text.finish(), "xxxxxxxx\n... (output truncated: 1000000 total chars, showing first 8)");
    }

    #[test]
    fn omitted_characters_count_toward_the_reported_total() {
        let mut text = CappedText::new(2);
        text.push(b"ab");
        assert!(!text.is_cut());
        text.push_unseen(5);
        assert_eq!((text.is_cut(), text.unseen_chars()), (true, 5));
        assert_eq!(text.finish(), "ab\n... (output truncated: 7 total chars, showing first 2)");
    }

    proptest! {
        #[test]
        fn text_does_not_depend_on_the_chunk_boundaries(bytes: Vec<u8>, cuts in prop::collection::vec(0usize..64, 0..8)) {
            let mut text = CappedText::new(usize::MAX);
            let mut shown = String::new();
            let mut rest = bytes.as_slice();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                shown.push_str(&text.push(piece));
                rest = after;
            }
            shown.push_str(&text.push(rest));
            let expected = String::from_utf8_lossy(&bytes).into_owned();
            prop_assert!(expected.starts_with(&shown));
            prop_assert_eq!(text.finish(), expected);
        }
    }
}
