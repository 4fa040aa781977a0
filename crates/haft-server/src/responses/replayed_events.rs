//! The events of a response that has ended, read from its file in parts. The memory of a reader therefore does not depend
//! on the length of the response, even if its client does not read.

use haft_store::responses::StoredEvents;
use serde_json::json;
use tokio::task::JoinHandle;

use super::event_block::EventBlock;
use super::fold::StreamEvent;

/// The maximum number of events that are read at once.
const EVENTS_AT_ONCE: usize = 256;

/// The number of bytes after which a read ends. The last event of a read may exceed it. A reader keeps at most two reads
/// in memory: the one that it sends, and the next one.
const BYTES_AT_ONCE: usize = 64 << 10;

/// The events of one read, and the rest of the file; `None` if the file cannot be read.
type ReadEvents = Option<(Vec<EventBlock>, StoredEvents)>;

/// Reads the events of a response that has ended.
#[derive(Debug)]
pub(crate) struct ReplayedEvents {
    /// The read in progress, on another thread; `None` after the last event.
    reading: Option<JoinHandle<ReadEvents>>,
    /// The last event that was read.
    last: Option<EventBlock>,
}

impl ReplayedEvents {
    pub(crate) fn new(stored: StoredEvents) -> Self {
        Self { reading: Some(read(stored)), last: None }
    }

    /// Returns the next events; `None` after the last ones. Cancelling this future loses no events. If the file cannot
    /// be read, the last event is an error.
    pub(crate) async fn next(&mut self) -> Option<Vec<EventBlock>> {
        let done = self.reading.as_mut()?.await;
        self.reading = None;
        let Some((blocks, stored)) = done.ok().flatten() else { return Some(vec![self.unreadable()]) };
        if blocks.is_empty() {
            return None;
        }
        self.reading = Some(read(stored));
        self.last = blocks.last().cloned();
        Some(blocks)
    }

    /// Returns the error about the remaining events, with the number that follows the last one.
    fn unreadable(&self) -> EventBlock {
        let last = self.last.as_ref().and_then(|event| event.data()["sequence_number"].as_u64());
        let (code, message) = ("server_error", "the server cannot read the remaining events of the response");
        let nested = json!({"type": code, "code": code, "message": message, "param": null});
        EventBlock::of(&StreamEvent::of_data(json!({
            "type": "error", "sequence_number": last.map_or(0, |number| number + 1), "code": code,
            "message": message, "param": null, "error": nested,
        })))
    }
}

fn read(mut stored: StoredEvents) -> JoinHandle<ReadEvents> {
    tokio::task::spawn_blocking(move || {
        let lines = stored.next(EVENTS_AT_ONCE, BYTES_AT_ONCE).ok()?;
        let blocks = lines.iter().map(|line| EventBlock::of_stored(line)).collect();
        Some((blocks, stored))
    })
}

#[cfg(test)]
mod tests {
    use haft_core::home::Home;
    use haft_core::principal::Principal;
    use haft_store::responses::{NewResponse, ResponseStore};

    use super::*;

    #[tokio::test]
    async fn replayed_events_of_a_response_are_read_in_parts() {
        // The events are short at first, and then long.
        const EVENTS: usize = 2 * EVENTS_AT_ONCE + 3;
        const LONG_BYTES: usize = 10_000;
        let directory = tempfile::tempdir().unwrap();
        let (store, owner) = (ResponseStore::of(&Home::at(directory.path())), Principal::new("t", "s", "k"));
        let response = json!({});
        let new = NewResponse {
            id: "resp_1",
            run: "",
            created_ms: 1,
            response: &response,
            input: &[],
            messages: &[],
            open_calls: &[],
            has_events: true,
            approvals: &[],
            first_event: 1,
            request_digest: None,
            workspace: None,
            error_type: None,
        };
        let line = |number| {
            let text = if number < EVENTS_AT_ONCE { String::new() } else { "x".repeat(LONG_BYTES) };
            json!({"type": "a.b", "n": number, "text": text}).to_string()
        };
        let lines: Vec<String> = (0..EVENTS).map(line).collect();
        let encoded = store.encode(&owner, new).unwrap();
        encoded.write_with_events(&lines.iter().map(String::as_str)).unwrap();
        let (_, stored) = store.get_with_events(&owner, "resp_1").unwrap().unwrap();
        let (mut events, mut read) = (ReplayedEvents::new(stored), Vec::new());
        while let Some(blocks) = events.next().await {
            assert!(blocks.len() <= EVENTS_AT_ONCE);
            let bytes: usize = blocks.iter().map(|block| block.bytes().len()).sum();
            assert!(bytes < BYTES_AT_ONCE + 2 * LONG_BYTES, "{bytes}");
            read.extend(blocks.iter().map(|block| block.data_text().to_owned()));
        }
        assert_eq!(read, lines);
        assert!(events.next().await.is_none());
    }
}
