//! Removes old data in the background while the server runs.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::server::ServerState;

/// The pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

/// Sweeps at once, and again after each interval.
pub(crate) async fn sweep_repeatedly(state: Arc<ServerState>) {
    loop {
        let (swept, done) = oneshot::channel::<()>();
        let sweeping = Arc::clone(&state);
        // A thread of its own: a sweep pauses between its steps, and must not delay the end of the process. If no thread
        // can be started, the sender is dropped and the next interval tries again.
        let _ = thread::Builder::new().name("sweep".into()).spawn(move || {
            sweep(&sweeping, SystemTime::now());
            drop(swept);
        });
        let _ = done.await;
        tokio::time::sleep(SWEEP_INTERVAL).await;
    }
}

fn sweep(state: &ServerState, now: SystemTime) {
    state.workspaces.sweep(state.runtime.config().serve.workspaces.keep, now);
}
