//! Server-sent events.

use haft_core::model_error::ModelError;

use super::EVENT_BYTES_MAX;
use super::ndjson::LineSplitter;
use crate::bounded_json;

/// One event: its name and its joined data lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    pub name: String,
    pub data: String,
}

/// Splits a stream into events. Skips comments, ids, retry hints and events without data.
#[derive(Debug, Default)]
pub struct SseDecoder {
    lines: LineSplitter,
    event: SseEvent,
    has_data: bool,
}

impl SseDecoder {
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, ModelError> {
        let mut events = Vec::new();
        for line in self.lines.push(bytes)? {
            self.line(&line, &mut events)?;
        }
        Ok(events)
    }

    /// Ends the stream. Returns the last event even if the server omitted the blank line after it.
    pub fn finish(&mut self) -> Result<Option<SseEvent>, ModelError> {
        let mut events = Vec::new();
        if let Some(line) = self.lines.finish()? {
            self.line(&line, &mut events)?;
        }
        self.line("", &mut events)?;
        Ok(events.pop())
    }

    fn line(&mut self, line: &str, events: &mut Vec<SseEvent>) -> Result<(), ModelError> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                events.push(event);
            }
            return Ok(());
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => self.data(value)?,
            // A comment, an id, a retry hint or an unknown field, which the specification says to ignore.
            _ => {}
        }
        Ok(())
    }

    fn data(&mut self, value: &str) -> Result<(), ModelError> {
        if self.event.data.len() + value.len() > EVENT_BYTES_MAX {
            return Err(bounded_json::too_large());
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.event.data.push('\n');
        }
        self.event.data.push_str(value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for piece in pieces {
            events.extend(decoder.push(piece).unwrap());
        }
        events.extend(decoder.finish().unwrap());
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    const STREAM: &str = "\u{FEFF}: hello\r\nevent: a\r\ndata: {\"x\":\r\ndata: \"\u{e4}\"}\r\nid: 7\r\n\r\n\
                          \n: ping\n\nevent: empty\n\ndata:[DONE]\r\rdata: last";

    #[test]
    fn stream_split_at_any_byte_gives_the_same_events() {
        let whole = read(&[STREAM.as_bytes()]);
        let pair = |name: &str, data: &str| (name.to_owned(), data.to_owned());
        assert_eq!(whole, [pair("a", "{\"x\":\n\"\u{e4}\"}"), pair("", "[DONE]"), pair("", "last")]);
        for at in 0..STREAM.len() {
            let (left, right) = STREAM.as_bytes().split_at(at);
            assert_eq!(read(&[left, right]), whole, "split at {at}");
        }
        let bytes: Vec<_> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes), whole);
    }

    #[test]
    fn event_over_the_size_limit_is_an_error() {
        let mut decoder = SseDecoder::default();
        let piece = vec![b'x'; 1024 * 1024];
        let refused = (0..40).find_map(|_| decoder.push(&piece).err());
        assert!(refused.unwrap().message.contains("larger than"));
        let mut decoder = SseDecoder::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert!((0..40).any(|_| decoder.push(&line).is_err()));
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(read(&[b"data: \xFF\n\n"])[0].1, "\u{FFFD}");
    }
}
