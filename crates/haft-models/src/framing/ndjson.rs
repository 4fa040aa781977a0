//! Splits a stream into lines, with one JSON document per line.

use haft_core::model_error::ModelError;
use memchr::memchr2;

use super::EVENT_BYTES_MAX;
use crate::bounded_json::{self, REPLY_BYTES_MAX};

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Splits a stream into its lines and skips blank ones.
#[derive(Debug, Default)]
pub struct NdjsonDecoder {
    lines: LineSplitter,
}

impl NdjsonDecoder {
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        let mut lines = self.lines.push(bytes)?;
        lines.retain(|line| !line.trim().is_empty());
        Ok(lines)
    }

    /// Returns the text after the last line end.
    pub fn finish(&mut self) -> Result<Option<String>, ModelError> {
        Ok(self.lines.finish()?.filter(|line| !line.trim().is_empty()))
    }
}

/// Splits bytes into lines that end with LF, CR LF or CR. Drops a byte order mark at the beginning.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    unfinished: Vec<u8>,
    /// Set if the last line ended with CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    past_first_line: bool,
    bytes: usize,
}

impl LineSplitter {
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, ModelError> {
        self.bytes += bytes.len();
        if self.bytes > REPLY_BYTES_MAX {
            return Err(bounded_json::too_large());
        }
        let mut lines = Vec::new();
        let mut rest = bytes;
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let ends_cr_lf = at == 0 && self.after_cr && rest[at] == b'\n' && self.unfinished.is_empty();
            self.unfinished.extend_from_slice(&rest[..at]);
            self.after_cr = rest[at] == b'\r';
            rest = &rest[at + 1..];
            if !ends_cr_lf {
                lines.push(self.take()?);
            }
        }
        if !rest.is_empty() {
            self.after_cr = false;
            self.unfinished.extend_from_slice(rest);
        }
        if self.unfinished.len() > EVENT_BYTES_MAX { Err(bounded_json::too_large()) } else { Ok(lines) }
    }

    pub(super) fn finish(&mut self) -> Result<Option<String>, ModelError> {
        if self.unfinished.is_empty() { Ok(None) } else { self.take().map(Some) }
    }

    fn take(&mut self) -> Result<String, ModelError> {
        if self.unfinished.len() > EVENT_BYTES_MAX {
            return Err(bounded_json::too_large());
        }
        let mut line = std::mem::take(&mut self.unfinished);
        let first = !std::mem::replace(&mut self.past_first_line, true);
        if first && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(String::from_utf8(line).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_split_at_any_byte_gives_the_same_lines() {
        let stream = "\u{FEFF}{\"a\":1}\r\n\r\n{\"b\":\"\u{e4}\"}\n  \n{\"c\":3}".as_bytes();
        for at in 0..=stream.len() {
            let mut decoder = NdjsonDecoder::default();
            let mut lines = decoder.push(&stream[..at]).unwrap();
            lines.extend(decoder.push(&stream[at..]).unwrap());
            lines.extend(decoder.finish().unwrap());
            assert_eq!(lines, ["{\"a\":1}", "{\"b\":\"\u{e4}\"}", "{\"c\":3}"], "split at {at}");
        }
    }
}
