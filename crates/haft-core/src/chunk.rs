//! Splits a text into overlapping chunks of bounded size.

/// The settings for splitting a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSettings {
    /// The maximum length of a chunk in bytes, including the overlap.
    pub bytes_max: usize,
    /// The percentage of a chunk that the next chunk repeats at its start.
    pub overlap_percent: usize,
    /// A text whose average line has at least this many bytes is split at any position; other texts are split at line
    /// ends.
    pub avg_line_bytes_threshold: usize,
}

/// The maximum overlap, in percent. With more, the chunks would consist mostly of repeated text.
pub const OVERLAP_PERCENT_MAX: usize = 50;

/// The size of the longest UTF-8 character, in bytes. Every chunk must have room for at least one character.
const CHAR_BYTES_MAX: usize = 4;

/// Returns all chunks, in order. Every byte of the text is in at least one chunk, and no character is split. An empty
/// text has no chunks.
pub fn chunks(text: &str, chunking: ChunkSettings) -> Vec<&str> {
    let cut = TextSplitter::of(text, chunking);
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let end = cut.end(start);
        pieces.push(&text[start..end]);
        start = if end == text.len() { end } else { cut.next_start(start, end) };
    }
    pieces
}

struct TextSplitter<'a> {
    text: &'a str,
    bytes_max: usize,
    overlap_bytes: usize,
    by_line: bool,
}

impl<'a> TextSplitter<'a> {
    fn of(text: &'a str, chunking: ChunkSettings) -> Self {
        let bytes_max = chunking.bytes_max.max(CHAR_BYTES_MAX);
        let lines = text.bytes().filter(|byte| *byte == b'\n').count().max(1);
        Self {
            text,
            bytes_max,
            overlap_bytes: bytes_max / 100 * chunking.overlap_percent.min(OVERLAP_PERCENT_MAX),
            by_line: text.len() / lines < chunking.avg_line_bytes_threshold,
        }
    }

    fn end(&self, start: usize) -> usize {
        let limit = self.text.floor_char_boundary(start.saturating_add(self.bytes_max));
        if limit == self.text.len() || !self.by_line {
            return limit;
        }
        // A line end in the first half would leave more than half of the chunk empty, so split inside the line instead.
        let line_end = self.text[start..limit].rfind('\n').map(|at| start + at + 1);
        line_end.filter(|end| end - start > self.bytes_max / 2).unwrap_or(limit)
    }

    /// Returns the start of the next chunk. It must be greater than `start`, or the loop in `chunks` would not end.
    fn next_start(&self, start: usize, end: usize) -> usize {
        let back = self.text.floor_char_boundary(end.saturating_sub(self.overlap_bytes));
        let next = if self.by_line && back < end {
            self.text[back..end].find('\n').map_or(back, |at| back + at + 1)
        } else {
            back
        };
        if next > start { next } else { end }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunking(bytes_max: usize, overlap_percent: usize, avg_line_bytes_threshold: usize) -> ChunkSettings {
        ChunkSettings { bytes_max, overlap_percent, avg_line_bytes_threshold }
    }

    #[test]
    fn chunks_end_at_line_breaks_unless_lines_are_long() {
        let check = |text: &str, chunking: ChunkSettings, expected: &[&str]| {
            assert_eq!(chunks(text, chunking), expected);
        };
        check("", chunking(8, 0, 100), &[]);
        check("one\ntwo\n", chunking(8, 0, 100), &["one\ntwo\n"]);
        check("one\ntwo\nthree\n", chunking(8, 0, 100), &["one\ntwo\n", "three\n"]);
        check("a line that is long\n", chunking(8, 0, 100), &["a line t", "hat is l", "ong\n"]);
        check("one\ntwo\nthree\n", chunking(9, 0, 2), &["one\ntwo\nt", "hree\n"]);
        check("ääää", chunking(5, 0, 2), &["ää", "ää"]);
    }

    #[test]
    fn each_chunk_overlaps_the_end_of_the_previous_chunk() {
        let text = (0..100).map(|at| format!("{at:09}\n")).collect::<Vec<_>>().concat();
        let pieces = chunks(&text, chunking(200, 10, 100));
        assert!(pieces[0].ends_with("000000019\n"));
        assert!(pieces[1].starts_with("000000019\n"), "{}", pieces[1]);
    }

    proptest! {
        #[test]
        fn chunks_cover_the_whole_text_and_fit_the_size_limit(
            text in "(.{0,20}\n?){0,40}",
            bytes_max in 0usize..200,
            overlap in 0usize..80,
            threshold in 0usize..40,
        ) {
            let pieces = chunks(&text, chunking(bytes_max, overlap, threshold));
            let mut covered = 0;
            for piece in &pieces {
                let start = piece.as_ptr() as usize - text.as_ptr() as usize;
                prop_assert!(start <= covered, "text before {start} is in no chunk");
                prop_assert!(start + piece.len() > covered, "the chunk contains no new text");
                prop_assert!(piece.len() <= bytes_max.max(CHAR_BYTES_MAX));
                covered = start + piece.len();
            }
            prop_assert_eq!(covered, text.len());
        }
    }
}
