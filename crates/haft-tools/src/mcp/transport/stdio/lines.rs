//! Splits bytes into lines of limited length.

/// The number of bytes to keep from the end of a line that is too long: enough to find a request id.
const TAIL_BYTES: usize = 256;

/// The number of bytes to report from the beginning of a line that is too long.
const HEAD_BYTES: usize = 1024;

/// A line, or the beginning and the end of a line that is too long.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StdioLine {
    /// The whole line, with invalid UTF-8 replaced.
    Whole(String),
    /// A line that is too long, reported twice with the same head: without a tail as soon as the line exceeds the
    /// limit, and with its tail at the end of the line.
    TooLong { head: String, tail: String },
}

/// Splits a stream of bytes. Stores at most one line.
#[derive(Debug)]
pub(super) struct StdioLineSplitter {
    bytes_max: usize,
    held: Vec<u8>,
    /// The beginning of a line that is too long.
    head: String,
    /// The number of bytes of the current line that were discarded; 0 while it is short enough.
    skipped: usize,
}

impl StdioLineSplitter {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, held: Vec::new(), head: String::new(), skipped: 0 }
    }

    /// Returns the number of bytes of the current line that were discarded.
    pub(super) fn skipped_bytes(&self) -> usize {
        self.skipped
    }

    pub(super) fn push(&mut self, mut bytes: &[u8], emit: &mut dyn FnMut(StdioLine)) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.extend(&bytes[..end], emit);
            self.finish(emit);
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes, emit);
    }

    fn extend(&mut self, bytes: &[u8], emit: &mut dyn FnMut(StdioLine)) {
        self.held.extend_from_slice(bytes);
        if self.skipped == 0 && self.held.len() > self.bytes_max {
            self.head = lossy(&self.held[..HEAD_BYTES.min(self.held.len())]);
            emit(StdioLine::TooLong { head: self.head.clone(), tail: String::new() });
            self.skipped = 1;
        }
        if self.skipped > 0 && self.held.len() > TAIL_BYTES {
            let surplus = self.held.len() - TAIL_BYTES;
            self.held.drain(..surplus);
            self.held.shrink_to(64 << 10);
            self.skipped += surplus;
        }
    }

    fn finish(&mut self, emit: &mut dyn FnMut(StdioLine)) {
        let line = std::mem::take(&mut self.held);
        let head = std::mem::take(&mut self.head);
        if std::mem::take(&mut self.skipped) > 0 {
            emit(StdioLine::TooLong { head, tail: lossy(&line) });
        } else if !line.is_empty() {
            emit(StdioLine::Whole(text_of(line)));
        }
    }
}

fn text_of(line: Vec<u8>) -> String {
    String::from_utf8(line).unwrap_or_else(|error| lossy(error.as_bytes()))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes_max: usize, pieces: &[&[u8]]) -> Vec<StdioLine> {
        let mut found = Vec::new();
        let mut lines = StdioLineSplitter::new(bytes_max);
        for piece in pieces {
            lines.push(piece, &mut |line| found.push(line));
        }
        found
    }

    fn whole(text: &str) -> StdioLine {
        StdioLine::Whole(text.into())
    }

    #[test]
    fn input_split_at_any_byte_gives_the_same_lines() {
        let text = "a\n\nbc\nunfinished".as_bytes();
        for split in 0..text.len() {
            let (left, right) = text.split_at(split);
            assert_eq!(lines(100, &[left, right]), [whole("a"), whole("bc")], "{split}");
        }
    }

    #[test]
    fn invalid_utf8_in_a_line_of_a_server_is_replaced() {
        assert_eq!(lines(100, &[b"a\xffb\n"]), [whole("a\u{fffd}b")]);
    }

    #[test]
    fn oversized_line_is_reported_at_the_limit_and_at_its_end() {
        let long = [b"{\"id\":1".as_slice(), &[b'x'; 2000]].concat();
        let found = lines(1000, &[&long, &[b'y'; 500], b"\"id\":1}\nnext\n"]);
        assert!(
            matches!(&found[0], StdioLine::TooLong { head, tail } if head.starts_with("{\"id\":1") && tail.is_empty())
        );
        assert!(
            matches!(&found[1], StdioLine::TooLong { head, tail } if head.starts_with("{\"id\":1") && tail.ends_with("\"id\":1}"))
        );
        assert_eq!(found[2..], [whole("next")]);
    }

    #[test]
    fn splitter_memory_is_bounded_for_endless_lines() {
        let mut lines = StdioLineSplitter::new(1000);
        for _ in 0..100 {
            lines.push(&[b'x'; 10_000], &mut |_| {});
        }
        assert!(lines.held.capacity() <= 64 << 10, "{}", lines.held.capacity());
        assert!(lines.skipped_bytes() > 900_000);
    }
}
