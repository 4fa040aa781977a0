//! Sends a response piece by piece and records its outcome.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use futures_util::Stream;

use crate::decision::Decision;
use crate::pace::Piece;
use crate::recorded::Outcome;
use crate::server::Shared;

/// The longest that a scripted hang lasts.
const HANG_SECONDS_MAX: u64 = 600;

/// A guard that records an abandoned request when it drops, unless another outcome was recorded first.
#[derive(Debug)]
pub(crate) struct Noting {
    shared: Arc<Shared>,
    serial: usize,
}

impl Noting {
    pub(crate) fn new(shared: Arc<Shared>, serial: usize) -> Self {
        Self { shared, serial }
    }

    fn note(&self, outcome: Outcome) {
        self.shared.note(self.serial, outcome);
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        self.note(Outcome::Abandoned);
    }
}

/// Waits. A zero delay returns at once, because a timer would round it up to a millisecond.
pub(crate) async fn pause(wait: Duration) {
    if !wait.is_zero() {
        tokio::time::sleep(wait).await;
    }
}

/// Sends the pieces at their pace. The outcome is recorded before the last piece is sent, so that a client that has
/// received everything always finds it.
pub(crate) fn play(decision: Decision, noting: Noting) -> impl Stream<Item = io::Result<Bytes>> {
    let Decision { pace, pieces, outcome, .. } = decision;
    let state = (pieces.into_iter().peekable(), Duration::ZERO);
    futures_util::stream::unfold((state, noting), move |((mut pieces, wait), noting)| {
        let outcome = outcome.clone();
        async move {
            pause(wait).await;
            let piece = pieces.next();
            if pieces.peek().is_none() && !matches!(piece, Some(Piece::Cut | Piece::Hang)) {
                noting.note(outcome);
            }
            let sent = match piece? {
                Piece::Bytes(bytes) => Ok(Bytes::from(bytes)),
                Piece::Cut => {
                    noting.note(Outcome::Cut);
                    // The bytes before the cut must be flushed first: yielding lets the connection write them.
                    tokio::task::yield_now().await;
                    Err(io::Error::new(io::ErrorKind::ConnectionReset, "the script cuts here"))
                }
                Piece::Hang => {
                    tokio::time::sleep(Duration::from_secs(HANG_SECONDS_MAX)).await;
                    Err(io::Error::new(io::ErrorKind::TimedOut, "the script hangs here"))
                }
            };
            Some((sent, ((pieces, pace.between()), noting)))
        }
    })
}
