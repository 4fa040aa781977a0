//! An incremental parser for server-sent events.

/// A complete event.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct McpSseEvent {
    pub(super) name: String,
    pub(super) data: String,
}

/// Parses a stream of events. Holds at most one event and one line.
#[derive(Debug)]
pub(super) struct McpSseParser {
    bytes_max: usize,
    line: Vec<u8>,
    event: McpSseEvent,
    has_data: bool,
    ends_with_return: bool,
    /// The last id that the server sent; a resume starts after it.
    pub(super) last_id: Option<String>,
    /// The wait before a resume that the server asks for.
    pub(super) retry_millis: Option<u64>,
}

/// The longest event id that is kept, in bytes: every resume sends it back.
const ID_BYTES_MAX: usize = 1024;

/// An event exceeds the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct McpSseEventTooLong;

impl McpSseParser {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            line: Vec::new(),
            event: McpSseEvent::default(),
            has_data: false,
            ends_with_return: false,
            last_id: None,
            retry_millis: None,
        }
    }

    /// Takes bytes, and returns the events that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<McpSseEvent>, McpSseEventTooLong> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|&byte| byte == b'\n' || byte == b'\r') {
            let (text, end) = match piece.split_last() {
                Some((end @ (b'\n' | b'\r'), text)) => (text, Some(*end)),
                Some(_) | None => (piece, None),
            };
            // A line may end with CR LF. The LF then ends no further line.
            let second_half = self.ends_with_return && text.is_empty() && end == Some(b'\n');
            self.ends_with_return = end == Some(b'\r');
            if second_half {
                continue;
            }
            self.line.extend_from_slice(text);
            if self.line.len() + self.event.data.len() > self.bytes_max {
                return Err(McpSseEventTooLong);
            }
            if end.is_some() {
                events.extend(self.line_ended());
            }
        }
        Ok(events)
    }

    fn line_ended(&mut self) -> Option<McpSseEvent> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_start_matches('\u{feff}');
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        self.field(field, value.strip_prefix(' ').unwrap_or(value));
        None
    }

    fn field(&mut self, field: &str, value: &str) {
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            "id" if !value.contains('\0') && value.len() <= ID_BYTES_MAX => {
                self.last_id = Some(value.to_owned());
            }
            "retry" => self.retry_millis = value.parse().ok().or(self.retry_millis),
            // Comments, which begin with a colon, and unknown fields.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ": hi\r\nevent: endpoint\r\ndata: /m\r\n\r\nid: 7\nretry: 500\ndata: a\ndata:b\n\ndata\n\nevent: x\n\ndata: cut";

    #[test]
    fn stream_split_at_any_byte_gives_the_same_events() {
        let event = |name: &str, data: &str| McpSseEvent { name: name.into(), data: data.into() };
        let expected = [event("endpoint", "/m"), event("", "a\nb"), event("", "")];
        for split in 0..TEXT.len() {
            let mut stream = McpSseParser::new(1000);
            let mut events = stream.push(&TEXT.as_bytes()[..split]).unwrap();
            events.extend(stream.push(&TEXT.as_bytes()[split..]).unwrap());
            assert_eq!(events, expected, "{split}");
            assert_eq!((stream.last_id.as_deref(), stream.retry_millis), (Some("7"), Some(500)));
        }
    }

    #[test]
    fn oversized_event_is_an_error() {
        let mut stream = McpSseParser::new(100);
        assert_eq!(stream.push(format!("data: {}", "x".repeat(200)).as_bytes()), Err(McpSseEventTooLong));
        let mut stream = McpSseParser::new(100);
        assert_eq!(stream.push("data: 0123456789\n".repeat(20).as_bytes()), Err(McpSseEventTooLong));
    }
}
