//! Removes old data in the background while the server runs.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use haft_store::retention::RetentionLimits;
use tokio::sync::oneshot;

use crate::auth::now_ms;
use crate::server::ServerState;

/// The shortest pause between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// The minimum pause after a sweep, as a multiple of the duration of the sweep. It limits the share of time that sweeps
/// use.
const SWEEP_SHARE: u32 = 50;

/// Sweeps at once, and again after each pause.
pub(crate) async fn sweep_repeatedly(state: Arc<ServerState>) {
    loop {
        let begun = Instant::now();
        let (swept, done) = oneshot::channel::<()>();
        let sweeping = Arc::clone(&state);
        // Use a separate thread: a sweep pauses between its steps, and must not delay the end of the process. If no
        // thread can be started, the sender is dropped, and the server tries again after the next interval.
        let _ = thread::Builder::new().name("sweep".into()).spawn(move || {
            sweep(&sweeping);
            drop(swept);
        });
        let _ = done.await;
        tokio::time::sleep(SWEEP_INTERVAL.max(begun.elapsed() * SWEEP_SHARE)).await;
    }
}

fn sweep(state: &ServerState) {
    let config = state.runtime.config();
    let storage = config.serve.storage;
    let limits = RetentionLimits {
        keep: storage.keep,
        responses_max: storage.responses_max,
        bytes_max: storage.bytes_max,
    };
    let workspaces = &config.serve.workspaces;
    state.workspaces.sweep(workspaces.keep, SystemTime::now);
    state.used_approvals.sweep(now_ms());
    state.tenant_data.sweep(&limits, SystemTime::now());
    state.tenant_sizes.update(&state.tenant_data, workspaces.bytes_max);
}
