//! Finds the lines of an output that contain a string. The output arrives in chunks, and a long line is never in memory
//! as a whole.

/// The maximum number of lines that one search finds.
const FOUND_LINES_MAX: usize = 200;

/// The maximum length of a line, in bytes. A longer line is searched in parts of this length, so that a file without
/// line breaks does not fill the memory.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The maximum length of the text of a found line, in bytes.
const FOUND_TEXT_BYTES_MAX: usize = 4 << 10;

/// A line that contains the searched text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundLine {
    /// The position of the first byte.
    pub(super) from: u64,
    /// The position after the last byte, without the line break.
    pub(super) to: u64,
    /// The text of the line, or its beginning if the line is long.
    pub(super) text: String,
}

/// A line search in progress.
#[derive(Debug)]
pub(super) struct LineSearch {
    find: String,
    /// The bytes of the line that is not complete yet.
    line: Vec<u8>,
    /// The position of the first byte of `line`.
    line_from: u64,
    pub(super) found: Vec<FoundLine>,
}

impl LineSearch {
    /// Creates a search that starts at a byte position of the output.
    pub(super) fn new(find: &str, from: u64) -> Self {
        Self { find: find.to_owned(), line: Vec::new(), line_from: from, found: Vec::new() }
    }

    /// Searches the next chunk. Ignores the rest of the chunk once the search is full.
    pub(super) fn push(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && !self.is_full() {
            let space = LINE_BYTES_MAX - self.line.len();
            let within = &piece[..piece.len().min(space)];
            if let Some(end) = within.iter().position(|byte| *byte == b'\n') {
                self.line.extend_from_slice(&piece[..end]);
                piece = &piece[end + 1..];
                self.end_line();
            } else {
                self.line.extend_from_slice(within);
                piece = &piece[within.len()..];
                if self.line.len() >= LINE_BYTES_MAX {
                    self.split_line();
                }
            }
        }
    }

    /// Searches the last line, which has no line break.
    pub(super) fn finish(&mut self) {
        if !self.line.is_empty() && !self.is_full() {
            self.check_line();
        }
    }

    /// Returns true if the search has found the maximum number of lines.
    pub(super) fn is_full(&self) -> bool {
        self.found.len() >= FOUND_LINES_MAX
    }

    /// Returns the position from which another search continues.
    pub(super) fn position(&self) -> u64 {
        self.line_from
    }

    fn end_line(&mut self) {
        self.check_line();
        self.line_from += self.line.len() as u64 + 1;
        self.line.clear();
    }

    /// Ends a part of a long line. The next part begins with the last bytes of this one, because the text may begin in
    /// one part and end in the next.
    fn split_line(&mut self) {
        let is_found = self.check_line();
        let kept = if is_found { 0 } else { self.find.len().saturating_sub(1) };
        let dropped = self.line.len() - kept;
        self.line.drain(..dropped);
        self.line_from += dropped as u64;
    }

    fn check_line(&mut self) -> bool {
        let text = String::from_utf8_lossy(&self.line);
        let is_found = text.contains(&self.find);
        if is_found {
            let shown = &text[..text.floor_char_boundary(FOUND_TEXT_BYTES_MAX)];
            let to = self.line_from + self.line.len() as u64;
            self.found.push(FoundLine { from: self.line_from, to, text: shown.to_owned() });
        }
        is_found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &[u8], piece_bytes: usize, find: &str) -> Vec<(u64, u64, String)> {
        let mut search = LineSearch::new(find, 0);
        text.chunks(piece_bytes).for_each(|piece| search.push(piece));
        search.finish();
        search.found.into_iter().map(|line| (line.from, line.to, line.text)).collect()
    }

    #[test]
    fn line_search_finds_the_same_lines_for_any_chunk_size() {
        let text = "one two\nthree\n\ntwo four".as_bytes();
        let expected = [(0, 7, "one two".to_owned()), (15, 23, "two four".to_owned())];
        for piece_bytes in 1..=text.len() {
            assert_eq!(found(text, piece_bytes, "two"), expected, "{piece_bytes}");
        }
        assert_eq!(found(text, 5, "none"), []);
        assert_eq!(found(b"", 5, "two"), []);
    }

    #[test]
    fn match_across_parts_of_a_long_line_is_found_once() {
        for begin in [LINE_BYTES_MAX - 3, LINE_BYTES_MAX, 10, 2 * LINE_BYTES_MAX - 2] {
            let mut text = vec![b'x'; 3 * LINE_BYTES_MAX];
            text[begin..begin + 5].copy_from_slice(b"there");
            let found = found(&text, 1000, "there");
            let [(from, to, shown)] = &found[..] else { panic!("{begin}: {} lines", found.len()) };
            let (from, to) = (usize::try_from(*from).unwrap(), usize::try_from(*to).unwrap());
            assert!(from <= begin && begin + 5 <= to, "{begin}: {from} {to}");
            assert!(shown.len() <= FOUND_TEXT_BYTES_MAX);
        }
    }

    #[test]
    fn line_search_at_its_limit_returns_the_position_to_continue_from() {
        let text = "hit\n".repeat(FOUND_LINES_MAX + 5);
        let mut search = LineSearch::new("hit", 100);
        search.push(text.as_bytes());
        assert!(search.is_full());
        assert_eq!(search.position(), 100 + 4 * FOUND_LINES_MAX as u64);
    }
}
