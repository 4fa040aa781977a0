//! Reads streamed responses: JSON lines or server-sent events.

use haft_core::framing::{FrameTooLarge, Framing, StreamLimits};
use haft_core::settings::rest::{StreamMode, StreamSettings};
use serde_json::Value;

/// The last data line of some services. It is not JSON.
const END_MARK: &str = "[DONE]";

/// An incremental reader of a streamed HTTP response.
#[derive(Debug)]
pub(super) struct StreamReader<'a> {
    streaming: &'a StreamSettings,
    frames: Framing,
    tokens: String,
    answer: Option<String>,
}

impl<'a> StreamReader<'a> {
    pub(super) fn new(streaming: &'a StreamSettings) -> Self {
        // The limit of a line is the limit of the stream, because a line cannot be longer than the whole stream.
        let limits =
            StreamLimits { frame_bytes_max: streaming.bytes_max, stream_bytes_max: streaming.bytes_max };
        let frames = match streaming.mode {
            StreamMode::JsonStream => Framing::lines(limits),
            StreamMode::Sse => Framing::sse(limits),
        };
        Self { streaming, frames, tokens: String::new(), answer: None }
    }

    /// Consumes the next bytes and returns the text they added.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<String, FrameTooLarge> {
        let before = self.tokens.len();
        self.frames.push(bytes)?.iter().for_each(|frame| self.take_frame(frame));
        Ok(self.tokens[before..].to_owned())
    }

    /// Returns whether the answer is complete; the caller can then ignore the rest of the stream.
    pub(super) fn is_done(&self) -> bool {
        self.answer.is_some()
    }

    /// Returns the answer: the text of the final event, or all tokens if there is no final event.
    pub(super) fn finish(mut self) -> String {
        let last = self.frames.finish();
        last.iter().flatten().for_each(|frame| self.take_frame(frame));
        self.answer.unwrap_or(self.tokens)
    }

    fn take_frame(&mut self, frame: &str) {
        match self.streaming.mode {
            StreamMode::JsonStream => self.take_line(frame),
            StreamMode::Sse => self.take_sse_data(frame),
        }
    }

    fn take_line(&mut self, line: &str) {
        let prefix = self.streaming.line_prefix.as_str();
        let text = line.strip_prefix(prefix).unwrap_or(line).trim();
        if let Ok(event) = serde_json::from_str(text) {
            self.take_event(&event);
        }
    }

    /// Processes the data of an event. Data that is not a JSON object is plain text.
    fn take_sse_data(&mut self, text: &str) {
        match serde_json::from_str::<Value>(text) {
            Ok(event @ Value::Object(_)) => self.take_event(&event),
            Ok(_) | Err(_) if text == END_MARK => self.answer = Some(self.tokens.clone()),
            Ok(_) | Err(_) => self.tokens.push_str(text),
        }
    }

    fn take_event(&mut self, event: &Value) {
        let StreamSettings {
            discriminator_field, done_value, answer_field, token_value, token_field, ..
        } = self.streaming;
        match event[discriminator_field].as_str() {
            Some(kind) if kind == done_value => {
                self.answer = Some(text(&event[answer_field]).unwrap_or_else(|| self.tokens.clone()));
            }
            Some(kind) if kind == token_value => {
                self.tokens.push_str(&text(&event[token_field]).unwrap_or_default());
            }
            Some(_) | None => {}
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => Some(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the stream whole and in small chunks, down to single bytes.
    fn check(streaming: &StreamSettings, stream: &str, deltas: &str, expected: &str) {
        for size in [1, 2, 7, stream.len()] {
            let mut reader = StreamReader::new(streaming);
            let mut seen = String::new();
            for piece in stream.as_bytes().chunks(size) {
                seen.push_str(&reader.push(piece).unwrap());
            }
            assert_eq!(reader.finish(), expected, "{size}");
            assert_eq!(seen, deltas, "{size}");
        }
    }

    #[test]
    fn json_line_stream_yields_tokens_and_the_final_answer() {
        let streaming = StreamSettings { line_prefix: "data: ".into(), ..StreamSettings::default() };
        let tokens = "data: {\"type\":\"token\",\"content\":\"hé\"}\r\n\nnoise\n[DONE]\ndata: {\"type\":\"token\",\"content\":\"llo\"}\n";
        check(&streaming, tokens, "héllo", "héllo");
        let done = format!("{tokens}data: {{\"type\":\"done\",\"answer\":\"Hello!\"}}");
        check(&streaming, &done, "héllo", "Hello!");
    }

    #[test]
    fn sse_stream_yields_the_text_of_its_events() {
        let streaming = StreamSettings { mode: StreamMode::Sse, ..StreamSettings::default() };
        let events = ": hello\nevent: x\ndata: one\ndata: two\n\ndata: {\"type\":\"token\",\"content\":\"3\"}\n\ndata: [DONE]\n\n";
        check(&streaming, events, "one\ntwo3", "one\ntwo3");
    }

    #[test]
    fn stream_over_the_byte_limit_is_an_error() {
        let streaming = StreamSettings { bytes_max: 10, ..StreamSettings::default() };
        let mut reader = StreamReader::new(&streaming);
        assert!(reader.push(&[b'x'; 10]).is_ok());
        assert_eq!(reader.push(b"x"), Err(FrameTooLarge));
    }
}
