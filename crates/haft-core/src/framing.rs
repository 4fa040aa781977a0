//! Splits byte streams into lines and server-sent events. Bytes arrive in chunks of any size.

use memchr::memchr2;

/// The limits of one stream, in bytes. A peer that sends a line without an end must not fill the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// The maximum length of a line, and of the data in one event, in bytes.
    pub frame_bytes_max: usize,
    /// The maximum length of the whole stream, in bytes.
    pub stream_bytes_max: usize,
}

impl StreamLimits {
    /// Returns limits for each line and event, but not for the stream, which may stay open for days.
    pub fn per_frame(frame_bytes_max: usize) -> Self {
        Self { frame_bytes_max, stream_bytes_max: usize::MAX }
    }
}

/// A line, an event or the whole stream exceeds its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the stream, or one of its lines or events, is too large")]
pub struct FrameTooLarge;

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Splits bytes into lines that end with LF, CR LF or CR. Drops a byte order mark at the beginning and replaces invalid
/// UTF-8.
#[derive(Debug)]
pub struct LineSplitter {
    limits: StreamLimits,
    unfinished: Vec<u8>,
    /// True if the last line ended with CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    past_first_line: bool,
    stream_bytes: usize,
}

impl LineSplitter {
    /// Creates a splitter for one stream.
    pub fn new(limits: StreamLimits) -> Self {
        Self { limits, unfinished: Vec::new(), after_cr: false, past_first_line: false, stream_bytes: 0 }
    }

    /// Adds bytes and returns the lines that they complete, including blank lines.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, FrameTooLarge> {
        self.stream_bytes = self.stream_bytes.saturating_add(bytes.len());
        if self.stream_bytes > self.limits.stream_bytes_max {
            return Err(FrameTooLarge);
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
        if self.unfinished.len() > self.limits.frame_bytes_max { Err(FrameTooLarge) } else { Ok(lines) }
    }

    /// Ends the stream, and returns the text after the last line end.
    pub fn finish(&mut self) -> Result<Option<String>, FrameTooLarge> {
        if self.unfinished.is_empty() { Ok(None) } else { self.take().map(Some) }
    }

    fn take(&mut self) -> Result<String, FrameTooLarge> {
        if self.unfinished.len() > self.limits.frame_bytes_max {
            return Err(FrameTooLarge);
        }
        let mut line = std::mem::take(&mut self.unfinished);
        let first = !std::mem::replace(&mut self.past_first_line, true);
        if first && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(String::from_utf8(line).unwrap_or_else(|bad| String::from_utf8_lossy(bad.as_bytes()).into_owned()))
    }
}

/// One server-sent event: its name and its joined data lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The value of the `event` field; empty if the event has no such field.
    pub name: String,
    /// The `data` lines, joined by line feeds.
    pub data: String,
}

/// The maximum length of an event id, in bytes. A client that resumes sends the id back in a header.
const ID_BYTES_MAX: usize = 1024;

/// Splits a stream into server-sent events, as the HTML standard defines them (9.2.6). Skips events without data.
#[derive(Debug)]
pub struct SseDecoder {
    lines: LineSplitter,
    event: SseEvent,
    has_data: bool,
    /// The last id that the server sent; a resume starts after it.
    pub last_id: Option<String>,
    /// The delay before a resume that the server asked for, in milliseconds.
    pub retry_millis: Option<u64>,
}

impl SseDecoder {
    /// Creates a decoder for one stream.
    pub fn new(limits: StreamLimits) -> Self {
        Self {
            lines: LineSplitter::new(limits),
            event: SseEvent::default(),
            has_data: false,
            last_id: None,
            retry_millis: None,
        }
    }

    /// Adds bytes and returns the events that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, FrameTooLarge> {
        let mut events = Vec::new();
        for line in self.lines.push(bytes)? {
            events.extend(self.line(&line)?);
        }
        Ok(events)
    }

    /// Ends the stream. Returns the last event even if the blank line after it is missing, because some servers omit
    /// it.
    pub fn finish(&mut self) -> Result<Option<SseEvent>, FrameTooLarge> {
        if let Some(line) = self.lines.finish()? {
            self.line(&line)?;
        }
        self.line("")
    }

    fn line(&mut self, line: &str) -> Result<Option<SseEvent>, FrameTooLarge> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return Ok(std::mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => self.data(value)?,
            "id" if !value.contains('\0') && value.len() <= ID_BYTES_MAX => {
                self.last_id = Some(value.to_owned());
            }
            "retry" => self.retry_millis = value.parse().ok().or(self.retry_millis),
            // A comment, which begins with a colon, or an unknown field, which the standard says to ignore.
            _ => {}
        }
        Ok(None)
    }

    fn data(&mut self, value: &str) -> Result<(), FrameTooLarge> {
        if self.event.data.len() + value.len() > self.lines.limits.frame_bytes_max {
            return Err(FrameTooLarge);
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

    const LIMITS: StreamLimits = StreamLimits { frame_bytes_max: 100, stream_bytes_max: 1000 };

    fn lines(pieces: &[&[u8]]) -> Vec<String> {
        let mut splitter = LineSplitter::new(LIMITS);
        let mut lines: Vec<_> = pieces.iter().flat_map(|piece| splitter.push(piece).unwrap()).collect();
        lines.extend(splitter.finish().unwrap());
        lines
    }

    fn events(pieces: &[&[u8]]) -> (Vec<SseEvent>, SseDecoder) {
        let mut decoder = SseDecoder::new(LIMITS);
        let mut events: Vec<_> = pieces.iter().flat_map(|piece| decoder.push(piece).unwrap()).collect();
        events.extend(decoder.finish().unwrap());
        (events, decoder)
    }

    #[test]
    fn input_split_at_any_byte_gives_the_same_lines() {
        let stream = "\u{FEFF}a\r\n\r\nb\u{e4}\n  \rc".as_bytes();
        for at in 0..=stream.len() {
            let (left, right) = stream.split_at(at);
            assert_eq!(lines(&[left, right]), ["a", "", "b\u{e4}", "  ", "c"], "split at {at}");
        }
    }

    const STREAM: &str = "\u{FEFF}: hello\r\nevent: a\r\ndata: {\"x\":\r\ndata: \"\u{e4}\"}\r\nid: 7\r\nretry: 500\r\n\r\n\
                          \n: ping\n\nevent: empty\n\ndata\n\ndata:[DONE]\r\rdata: last";

    #[test]
    fn stream_split_at_any_byte_gives_the_same_events() {
        let event = |name: &str, data: &str| SseEvent { name: name.into(), data: data.into() };
        let expected =
            [event("a", "{\"x\":\n\"\u{e4}\"}"), event("", ""), event("", "[DONE]"), event("", "last")];
        for at in 0..=STREAM.len() {
            let (left, right) = STREAM.as_bytes().split_at(at);
            let (events, decoder) = events(&[left, right]);
            assert_eq!(events, expected, "split at {at}");
            assert_eq!((decoder.last_id.as_deref(), decoder.retry_millis), (Some("7"), Some(500)));
        }
    }

    #[test]
    fn line_event_or_stream_over_its_limit_is_an_error() {
        let push = |piece: &str, times: usize| {
            let mut decoder = SseDecoder::new(LIMITS);
            (0..times).find_map(|_| decoder.push(piece.as_bytes()).err())
        };
        assert_eq!(push(&"x".repeat(101), 1), Some(FrameTooLarge), "a line without an end");
        assert_eq!(push(&format!("data: {}\n", "x".repeat(95)), 1), Some(FrameTooLarge), "a line");
        assert_eq!(push("data: 0123456789\n", 20), Some(FrameTooLarge), "an event");
        assert_eq!(push(": 0123456789\n\n", 71), None);
        assert_eq!(push(": 0123456789\n\n", 72), Some(FrameTooLarge), "the stream");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(lines(&[b"a\xFFb\n"]), ["a\u{FFFD}b"]);
    }

    #[test]
    fn id_that_no_header_can_carry_is_not_kept() {
        let long = format!("id: {}\n", "x".repeat(90));
        let (_, decoder) = events(&[b"id: a\0b\n", long.as_bytes(), b"\n"]);
        assert_eq!(decoder.last_id.map(|id| id.len()), Some(90));
    }
}
