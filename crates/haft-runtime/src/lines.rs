//! Reads lines of bounded length, and continues after a line that is too long.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// One line of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum InputLine {
    /// The line without its newline.
    Text(Vec<u8>),
    /// The line was too long. It was read to its end and discarded, so that the next line can be read.
    TooLong {
        /// The length of the line, in bytes.
        bytes: usize,
    },
}

/// Reads line by line. Keeps a partial line, so that dropping a pending `next` loses no bytes.
#[derive(Debug)]
pub struct InputLineReader<R> {
    input: R,
    bytes_max: usize,
    line: Vec<u8>,
    total: usize,
}

impl<R: AsyncBufRead + Unpin> InputLineReader<R> {
    /// Creates a reader that accepts lines of at most `bytes_max` bytes.
    pub fn new(input: R, bytes_max: usize) -> Self {
        Self { input, bytes_max, line: Vec::new(), total: 0 }
    }

    /// Returns the next line without its newline; `None` at the end of input.
    pub async fn next(&mut self) -> std::io::Result<Option<InputLine>> {
        loop {
            let chunk = self.input.fill_buf().await?;
            if chunk.is_empty() {
                return Ok((self.total > 0).then(|| self.finish()));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = &chunk[..end.unwrap_or(chunk.len())];
            self.total += part.len();
            if self.total <= self.bytes_max {
                self.line.extend_from_slice(part);
            } else {
                self.line = Vec::new();
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(self.finish()));
            }
        }
    }

    fn finish(&mut self) -> InputLine {
        let line = std::mem::take(&mut self.line);
        let bytes = std::mem::take(&mut self.total);
        if bytes > self.bytes_max { InputLine::TooLong { bytes } } else { InputLine::Text(line) }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    async fn check(input: &str, expected: &[InputLine]) {
        // Use a small buffer, so that lines need several reads.
        let mut lines = InputLineReader::new(tokio::io::BufReader::with_capacity(3, input.as_bytes()), 8);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            found.push(line);
        }
        assert_eq!(found, expected, "{input:?}");
    }

    #[tokio::test]
    async fn cancelled_read_of_a_line_loses_no_input() {
        let (mut writer, reader) = tokio::io::duplex(16);
        let mut lines = InputLineReader::new(tokio::io::BufReader::new(reader), 64);
        tokio::io::AsyncWriteExt::write_all(&mut writer, b"half").await.unwrap();
        assert!(lines.next().now_or_never().is_none());
        tokio::io::AsyncWriteExt::write_all(&mut writer, b" and half\n").await.unwrap();
        assert_eq!(lines.next().await.unwrap(), Some(InputLine::Text(b"half and half".to_vec())));
    }

    #[tokio::test]
    async fn overlong_line_is_skipped_and_next_line_is_intact() {
        let text = |text: &str| InputLine::Text(text.as_bytes().to_vec());
        check("", &[]).await;
        check("one\n\ntwo", &[text("one"), text(""), text("two")]).await;
        check("12345678\nx\n", &[text("12345678"), text("x")]).await;
        check("123456789\nx\n", &[InputLine::TooLong { bytes: 9 }, text("x")]).await;
        check("1234567890123", &[InputLine::TooLong { bytes: 13 }]).await;
    }
}
