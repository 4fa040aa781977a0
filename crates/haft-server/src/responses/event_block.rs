//! An event of a response as the text that clients get.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use super::fold::{self, StreamEvent};
use super::request::DeltaPadding;

/// One event as a block of server-sent events. Clones share the text, so the event is encoded and kept in memory only
/// once, even for 10,000 readers of a response.
#[derive(Debug, Clone)]
pub(crate) struct EventBlock(Bytes);

/// The text between the name of an event and its data.
const DATA: &str = "\ndata: ";

const NAME: &str = "event: ";

impl EventBlock {
    pub(crate) fn of(event: &StreamEvent) -> Self {
        // Drop the spare capacity of the text, because a long response keeps 100,000 blocks in memory.
        Self(event.sse().into_bytes().into_boxed_slice().into())
    }

    /// Restores an event from its stored data.
    pub(crate) fn of_stored(data: &str) -> Self {
        #[derive(Default, Deserialize)]
        struct EventType<'a> {
            #[serde(borrow, rename = "type")]
            kind: Cow<'a, str>,
        }
        let EventType { kind } = serde_json::from_str(data).unwrap_or_default();
        Self(format!("{NAME}{kind}{DATA}{data}\n\n").into())
    }

    /// Returns the data of the event as JSON text in one line.
    pub(crate) fn data_text(&self) -> &str {
        self.parts().1.trim_end()
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.0.clone()
    }

    pub(crate) fn kind(&self) -> &str {
        self.parts().0
    }

    /// Returns the data of the event.
    pub(crate) fn data(&self) -> Value {
        // The server has encoded the data itself, so decoding cannot fail.
        serde_json::from_str(self.parts().1).unwrap_or_default()
    }

    /// Returns the same event with or without padding.
    pub(crate) fn with_padding(self, padding: DeltaPadding) -> Self {
        if fold::can_be_padded(self.kind()) {
            Self::of(&StreamEvent::of_data(fold::repadded(self.data(), padding)))
        } else {
            self
        }
    }

    fn parts(&self) -> (&str, &str) {
        let text = std::str::from_utf8(&self.0).unwrap_or_default();
        text.strip_prefix(NAME).and_then(|text| text.split_once(DATA)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_block_returns_the_kind_and_the_data_of_its_event() {
        let data = json!({"type": "error", "message": "a\ndata: b"});
        let block = EventBlock::of(&StreamEvent::of_data(data.clone()));
        assert_eq!((block.kind(), block.data()), ("error", data));
        assert_eq!(EventBlock::of_stored(block.data_text()).bytes(), block.bytes());
    }

    #[test]
    fn padding_of_a_delta_is_added_and_removed() {
        let event = |data: Value| EventBlock::of(&StreamEvent::of_data(data));
        let plain = json!({"type": "response.output_text.delta", "delta": "Hello."});
        let padded = event(plain.clone()).with_padding(DeltaPadding::On);
        assert_eq!(padded.data()["obfuscation"], "x".repeat(26));
        assert_eq!(padded.clone().with_padding(DeltaPadding::On).data(), padded.data());
        assert_eq!(padded.with_padding(DeltaPadding::Off).data(), plain);
        let other = json!({"type": "response.mcp_call_arguments.delta", "delta": "{}"});
        assert_eq!(event(other.clone()).with_padding(DeltaPadding::On).data(), other);
    }
}
