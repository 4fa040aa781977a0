//! The events of a response that has ended, read from its file in parts. The memory of a reader therefore does not depend
//! on the length of the response.

use haft_store::responses::StoredEvents;
use serde_json::json;
use tokio::task::JoinHandle;

use super::event_block::EventBlock;
use super::fold::StreamEvent;

/// The maximum number of events that are read at once.
const EVENTS_AT_ONCE: usize = 256;

/// The events that were not read yet, and the file after them. `None` if the file cannot be read.
type ReadEvents = Option<(Vec<EventBlock>, StoredEvents)>;

/// Reads the events of a response that has ended.
#[derive(Debug)]
pub(crate) struct RecordedEvents {
    /// The read in progress, on another thread; `None` after the last event.
    reading: Option<JoinHandle<ReadEvents>>,
}

impl RecordedEvents {
    pub(crate) fn new(stored: StoredEvents) -> Self {
        Self { reading: Some(read(stored)) }
    }

    /// Returns the next events; `None` after the last ones. Cancelling this future loses no events. If the file cannot
    /// be read, the last event is an error.
    pub(crate) async fn next(&mut self) -> Option<Vec<EventBlock>> {
        let done = self.reading.as_mut()?.await;
        self.reading = None;
        let Some((blocks, stored)) = done.ok().flatten() else { return Some(vec![unreadable()]) };
        if blocks.is_empty() {
            return None;
        }
        self.reading = Some(read(stored));
        Some(blocks)
    }
}

fn read(mut stored: StoredEvents) -> JoinHandle<ReadEvents> {
    tokio::task::spawn_blocking(move || {
        let lines = stored.next(EVENTS_AT_ONCE).ok()?;
        let blocks = lines.iter().map(|line| EventBlock::of_stored(line)).collect();
        Some((blocks, stored))
    })
}

fn unreadable() -> EventBlock {
    let message = "the server cannot read the rest of the events";
    EventBlock::of(&StreamEvent::of_data(
        json!({"type": "error", "code": "server_error", "message": message, "param": null}),
    ))
}
