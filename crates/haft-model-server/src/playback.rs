//! Sends a response chunk by chunk, and records its outcome.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::Stream;

use crate::decision::PlannedResponse;
use crate::pace::ResponseChunk;
use crate::request_log::RequestOutcome;
use crate::server::ModelServerState;

/// The maximum duration of a scripted hang, in seconds.
const HANG_SECONDS_MAX: u64 = 600;

/// Records a request as abandoned when this value is dropped, unless another outcome was recorded first.
#[derive(Debug)]
pub(crate) struct OutcomeGuard {
    shared: Arc<ModelServerState>,
    serial: usize,
}

impl OutcomeGuard {
    pub(crate) fn new(shared: Arc<ModelServerState>, serial: usize) -> Self {
        Self { shared, serial }
    }

    fn note(&self, outcome: RequestOutcome) {
        self.shared.note(self.serial, outcome);
    }
}

impl Drop for OutcomeGuard {
    fn drop(&mut self) {
        self.note(RequestOutcome::Abandoned);
    }
}

/// Waits for this time. Returns at once for a zero delay, because a timer would round it up to a millisecond.
pub(crate) async fn pause(wait: Duration) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

/// Sends the chunks with their delays. Records the outcome before the last chunk is sent, so that the outcome is
/// already recorded when a client has received the whole response.
pub(crate) fn play(decision: PlannedResponse, noting: OutcomeGuard) -> impl Stream<Item = io::Result<Bytes>> {
    let PlannedResponse { pace, pieces, outcome, .. } = decision;
    let state = (pieces.into_iter().peekable(), Duration::ZERO);
    futures_util::stream::unfold((state, noting), move |((mut pieces, wait), noting)| {
        let outcome = outcome.clone();
        async move {
            pause(wait).await;
            let piece = pieces.next();
            if pieces.peek().is_none() && !matches!(piece, Some(ResponseChunk::Cut | ResponseChunk::Hang)) {
                noting.note(outcome);
            }
            let sent = match piece? {
                ResponseChunk::Bytes(bytes) => Ok(Bytes::from(bytes)),
                ResponseChunk::Cut => {
                    noting.note(RequestOutcome::Cut);
                    // Yield, so that the connection writes the bytes before the cut.
                    tokio::task::yield_now().await;
                    Err(io::Error::new(io::ErrorKind::ConnectionReset, "the script ends the connection here"))
                }
                ResponseChunk::Hang => {
                    tokio::time::sleep(Duration::from_secs(HANG_SECONDS_MAX)).await;
                    Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "the script stops the reply here without closing the connection",
                    ))
                }
            };
            Some((sent, ((pieces, pace.between()), noting)))
        }
    })
}
