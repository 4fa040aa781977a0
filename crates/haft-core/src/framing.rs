//! Splits byte streams into lines and server-sent events. Bytes arrive in chunks of any size.

use std::borrow::Cow;

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
        let mut lines = Vec::new();
        self.each_line(bytes, |line| {
            lines.push(line.into_owned());
            Ok(())
        })?;
        Ok(lines)
    }

    /// Adds bytes, and calls the closure with each line that they complete. A line that is complete in `bytes` is not
    /// copied.
    fn each_line(
        &mut self,
        bytes: &[u8],
        mut pass_on: impl FnMut(Cow<'_, str>) -> Result<(), FrameTooLarge>,
    ) -> Result<(), FrameTooLarge> {
        self.stream_bytes = self.stream_bytes.saturating_add(bytes.len());
        if self.stream_bytes > self.limits.stream_bytes_max {
            return Err(FrameTooLarge);
        }
        let mut rest = bytes;
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let ends_cr_lf = at == 0 && self.after_cr && rest[at] == b'\n' && self.unfinished.is_empty();
            let end = &rest[..at];
            self.after_cr = rest[at] == b'\r';
            rest = &rest[at + 1..];
            if ends_cr_lf {
                continue;
            }
            if self.unfinished.is_empty() {
                pass_on(self.line(end)?)?;
            } else {
                self.unfinished.extend_from_slice(end);
                pass_on(self.take()?.into())?;
            }
        }
        if !rest.is_empty() {
            self.after_cr = false;
            self.unfinished.extend_from_slice(rest);
        }
        if self.unfinished.len() > self.limits.frame_bytes_max { Err(FrameTooLarge) } else { Ok(()) }
    }

    /// Ends the stream, and returns the text after the last line end.
    pub fn finish(&mut self) -> Result<Option<String>, FrameTooLarge> {
        if self.unfinished.is_empty() { Ok(None) } else { self.take().map(Some) }
    }

    fn take(&mut self) -> Result<String, FrameTooLarge> {
        let line = std::mem::take(&mut self.unfinished);
        self.line(&line).map(Cow::into_owned)
    }

    fn line<'a>(&mut self, line: &'a [u8]) -> Result<Cow<'a, str>, FrameTooLarge> {
        if line.len() > self.limits.frame_bytes_max {
            return Err(FrameTooLarge);
        }
        let first = !std::mem::replace(&mut self.past_first_line, true);
        let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| first).unwrap_or(line);
        // `from_utf8_lossy` alone is several times slower for valid text.
        Ok(str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed))
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

/// The maximum length of an event id, in bytes. A longer id is ignored, because a client that resumes must send it back
/// in a header.
const ID_BYTES_MAX: usize = 1024;

/// Splits a stream into server-sent events, as the HTML standard defines them (9.2.6). Skips events without data.
#[derive(Debug)]
pub struct SseDecoder {
    lines: LineSplitter,
    fields: SseFields,
}

/// The fields of the current event, and the fields that are kept for the whole stream.
#[derive(Debug, Default)]
struct SseFields {
    event: SseEvent,
    has_data: bool,
    last_id: Option<String>,
    retry_millis: Option<u64>,
}

impl SseDecoder {
    /// Creates a decoder for one stream.
    pub fn new(limits: StreamLimits) -> Self {
        Self { lines: LineSplitter::new(limits), fields: SseFields::default() }
    }

    /// Adds bytes and returns the events that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, FrameTooLarge> {
        let mut events = Vec::new();
        let Self { lines, fields } = self;
        let data_max = lines.limits.frame_bytes_max;
        lines.each_line(bytes, |line| {
            events.extend(fields.line(&line, data_max)?);
            Ok(())
        })?;
        Ok(events)
    }

    /// Ends the stream. Returns the last event even if the blank line after it is missing, because some servers omit
    /// it.
    pub fn finish(&mut self) -> Result<Option<SseEvent>, FrameTooLarge> {
        let data_max = self.lines.limits.frame_bytes_max;
        if let Some(line) = self.lines.finish()? {
            self.fields.line(&line, data_max)?;
        }
        self.fields.line("", data_max)
    }

    /// Returns the last id that the server sent; a resume starts after it.
    pub fn last_id(&self) -> Option<&str> {
        self.fields.last_id.as_deref()
    }

    /// Returns the time that the server asks clients to wait before they reconnect, in milliseconds.
    pub fn retry_millis(&self) -> Option<u64> {
        self.fields.retry_millis
    }
}

impl SseFields {
    fn line(&mut self, line: &str, data_max: usize) -> Result<Option<SseEvent>, FrameTooLarge> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return Ok(std::mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => self.data(value, data_max)?,
            "id" if !value.contains('\0') && value.len() <= ID_BYTES_MAX => {
                self.last_id = Some(value.to_owned());
            }
            "retry" => self.retry_millis = value.parse().ok().or(self.retry_millis),
            // The line is a comment, which begins with a colon, or has an unknown field. The standard says to ignore
            // both.
            _ => {}
        }
        Ok(None)
    }

    fn data(&mut self, value: &str, data_max: usize) -> Result<(), FrameTooLarge> {
        if self.event.data.len() + value.len() > data_max {
            return Err(FrameTooLarge);
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.event.data.push('\n');
        }
        self.event.data.push_str(value);
        Ok(())
    }
}

/// Splits a stream into frames of text, either into lines or into the data of server-sent events.
#[derive(Debug)]
pub enum Framing {
    /// Each frame is the data of one event.
    Sse(SseDecoder),
    /// Each frame is one line.
    Lines(LineSplitter),
}

impl Framing {
    /// Creates the framing of a stream of server-sent events.
    pub fn sse(limits: StreamLimits) -> Self {
        Self::Sse(SseDecoder::new(limits))
    }

    /// Creates the framing of a stream of lines.
    pub fn lines(limits: StreamLimits) -> Self {
        Self::Lines(LineSplitter::new(limits))
    }

    /// Adds bytes and returns the frames that they complete. A frame may be blank.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<String>, FrameTooLarge> {
        match self {
            Self::Sse(events) => Ok(events.push(bytes)?.into_iter().map(|event| event.data).collect()),
            Self::Lines(lines) => lines.push(bytes),
        }
    }

    /// Ends the stream, and returns the last frame if the stream did not terminate it.
    pub fn finish(&mut self) -> Result<Option<String>, FrameTooLarge> {
        match self {
            Self::Sse(events) => Ok(events.finish()?.map(|event| event.data)),
            Self::Lines(lines) => lines.finish(),
        }
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
            assert_eq!((decoder.last_id(), decoder.retry_millis()), (Some("7"), Some(500)));
        }
    }

    #[test]
    fn line_event_or_stream_over_its_limit_is_an_error() {
        let push = |piece: &str, times: usize| {
            let mut decoder = SseDecoder::new(LIMITS);
            (0..times).find_map(|_| decoder.push(piece.as_bytes()).err())
        };
        assert_eq!(
            push(&"x".repeat(101), 1),
            Some(FrameTooLarge),
            "a line without a newline is over the limit"
        );
        assert_eq!(
            push(&format!("data: {}\n", "x".repeat(95)), 1),
            Some(FrameTooLarge),
            "a line is over the limit"
        );
        assert_eq!(push("data: 0123456789\n", 20), Some(FrameTooLarge), "an event is over the limit");
        assert_eq!(push(": 0123456789\n\n", 71), None);
        assert_eq!(push(": 0123456789\n\n", 72), Some(FrameTooLarge), "the stream is over the limit");
    }

    #[test]
    fn invalid_utf8_in_a_line_becomes_replacement_characters() {
        assert_eq!(lines(&[b"a\xFFb\n"]), ["a\u{FFFD}b"]);
    }

    #[test]
    fn event_id_with_a_nul_character_is_ignored() {
        let long = format!("id: {}\n", "x".repeat(90));
        let (_, decoder) = events(&[b"id: a\0b\n", long.as_bytes(), b"\n"]);
        assert_eq!(decoder.last_id().map(str::len), Some(90));
    }
}
