//! A response as a stream of server-sent events.

use std::future::Future;

use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use tokio::time::timeout;

use super::event_block::EventBlock;
use super::foreground::StreamedResponse;
use super::live::LiveFollower;
use super::replayed_events::ReplayedEvents;
use super::request::DeltaPadding;
use crate::event_stream::{self, PING, PING_INTERVAL};

/// The last block of every stream.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// The source of the events of a stream.
pub(crate) enum EventSource {
    /// The response of a run that ends with the connection.
    Foreground(StreamedResponse),
    /// The response of a run that continues without the connection.
    Follower(LiveFollower),
    /// The stored events of a run that has ended.
    Recorded(ReplayedEvents),
    /// All events of a response that has ended; `None` after they were sent.
    InMemory(Option<Vec<EventBlock>>),
}

/// Returns the next events; `None` after the last ones. Cancelling the future loses no events.
trait BlockSource: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<Vec<EventBlock>>> + Send;
}

impl BlockSource for EventSource {
    async fn next(&mut self) -> Option<Vec<EventBlock>> {
        match self {
            Self::Foreground(response) => {
                response.next().await.map(|events| events.iter().map(EventBlock::of).collect())
            }
            Self::Follower(follower) => follower.next().await,
            Self::Recorded(events) => events.next().await,
            Self::InMemory(events) => events.take(),
        }
    }
}

enum StreamPhase<S> {
    Events(S),
    /// Blocks that wait to be sent, in reverse order.
    Blocks(S, Vec<EventBlock>),
    Done,
}

pub(crate) fn stream_response(source: EventSource) -> Response {
    stream_of(source)
}

/// Streams events that earlier readers may have read with another padding.
pub(crate) fn stream_with_padding(source: EventSource, padding: DeltaPadding) -> Response {
    stream_of(RepaddedEvents { source, padding })
}

struct RepaddedEvents {
    source: EventSource,
    padding: DeltaPadding,
}

impl BlockSource for RepaddedEvents {
    async fn next(&mut self) -> Option<Vec<EventBlock>> {
        let events = self.source.next().await?;
        Some(events.into_iter().map(|event| event.with_padding(self.padding)).collect())
    }
}

fn stream_of(source: impl BlockSource) -> Response {
    event_stream::response(stream::unfold(StreamPhase::Events(source), next_block))
}

async fn next_block<S: BlockSource>(phase: StreamPhase<S>) -> Option<(Bytes, StreamPhase<S>)> {
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use futures_util::StreamExt as _;
    use serde_json::json;
    use tokio::time::{Instant, sleep_until};

    use super::*;
    use crate::responses::fold::StreamEvent;

    /// Events that become available at fixed times.
    struct TimedEvents(VecDeque<(Instant, Vec<&'static str>)>);

    impl TimedEvents {
        fn new(events: &[(u64, &[&'static str])]) -> Self {
            let began = Instant::now();
            let timed = |(second, names): &(u64, &[&'static str])| {
                (began + Duration::from_secs(*second), names.to_vec())
            };
            Self(events.iter().map(timed).collect())
        }
    }

    impl BlockSource for TimedEvents {
        async fn next(&mut self) -> Option<Vec<EventBlock>> {
            let at = self.0.front()?.0;
            sleep_until(at).await;
            let (_, names) = self.0.pop_front()?;
            Some(
                names
                    .iter()
                    .map(|name| EventBlock::of(&StreamEvent::of_data(json!({"type": name}))))
                    .collect(),
            )
        }
    }

    /// Returns the chunks of the stream, each with the second at which it was sent.
    async fn chunks(source: TimedEvents) -> Vec<(u64, String)> {
        let began = Instant::now();
        let mut body = stream_of(source).into_body().into_data_stream();
        let mut sent = Vec::new();
        while let Some(chunk) = body.next().await {
            sent.push((began.elapsed().as_secs(), String::from_utf8(chunk.unwrap().to_vec()).unwrap()));
        }
        sent
    }

    fn block(name: &str) -> String {
        format!("event: {name}\ndata: {{\"type\":\"{name}\"}}\n\n")
    }

    #[tokio::test(start_paused = true)]
    async fn silent_stream_gets_a_comment_every_15_seconds() {
        let ping = || ": ping\n\n".to_owned();
        let sent = chunks(TimedEvents::new(&[(0, &["a"]), (14, &["b"]), (50, &["c"])])).await;
        let expected = [
            (0, block("a")),
            (14, block("b")),
            (29, ping()),
            (44, ping()),
            (50, block("c")),
            (50, "data: [DONE]\n\n".to_owned()),
        ];
        assert_eq!(sent, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_become_available_together_are_separate_chunks() {
        let sent = chunks(TimedEvents::new(&[(0, &["a", "b", "c"])])).await;
        let texts: Vec<String> = sent.into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, [block("a"), block("b"), block("c"), "data: [DONE]\n\n".to_owned()]);
    }
}
