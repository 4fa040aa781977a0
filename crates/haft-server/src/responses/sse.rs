//! A response as a stream of server-sent events.

use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::timeout;

use super::drive::ActiveResponse;
use super::event_block::EventBlock;
use super::live::LiveFollower;
use super::replayed_events::ReplayedEvents;
use crate::event_stream::{self, PING, PING_INTERVAL};

/// The last block of every stream.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// The source of the events of a stream.
pub(crate) enum EventSource {
    /// The response of a run that ends with the connection.
    Active(Box<ActiveResponse>),
    /// The response of a run that continues without the connection.
    Follower(LiveFollower),
    /// The stored events of a run that has ended.
    Recorded(ReplayedEvents),
}

impl EventSource {
    async fn next(&mut self) -> Option<Vec<EventBlock>> {
        match self {
            Self::Active(active) => active.next().await.map(|events| active.blocks(&events)),
            Self::Follower(follower) => follower.next().await,
            Self::Recorded(events) => events.next().await,
        }
    }
}

enum StreamPhase {
    Events(EventSource),
    /// Blocks that wait to be sent, in reverse order.
    Blocks(EventSource, Vec<EventBlock>),
    Done,
}

pub(crate) fn stream_response(source: EventSource) -> Response {
    event_stream::response(stream::unfold(StreamPhase::Events(source), next_block))
}

async fn next_block(phase: StreamPhase) -> Option<(Bytes, StreamPhase)> {
    let (mut source, mut blocks) = match phase {
        StreamPhase::Done => return None,
        StreamPhase::Events(source) => (source, Vec::new()),
        StreamPhase::Blocks(source, blocks) => (source, blocks),
    };
    if blocks.is_empty() {
        match timeout(PING_INTERVAL, source.next()).await {
            Err(_) => return Some((Bytes::from_static(PING), StreamPhase::Events(source))),
            Ok(None) => return Some((Bytes::from_static(DONE), StreamPhase::Done)),
            Ok(Some(events)) => {
                blocks = events;
                blocks.reverse();
            }
        }
    }
    let block = blocks.pop()?;
    Some((block.bytes(), StreamPhase::Blocks(source, blocks)))
}
