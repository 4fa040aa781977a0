//! Removes old data and measures the data of tenants, in the background while the server runs.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use haft_store::retention::RetentionLimits;
use haft_store::server_caches::ServerCaches;
use haft_store::sweep::SweepPace;
use tokio::sync::oneshot;

use crate::auth::now_ms;
use crate::server::ServerState;

/// The shortest pause between two sweeps, and between two measurements.
const INTERVAL: Duration = Duration::from_mins(1);

/// The minimum pause after a sweep or a measurement, as a multiple of the time for which it worked. It limits the share
/// of time that they use.
const WORK_SHARE: u32 = 50;

/// Sweeps and measures at once, and again after each pause. The two do not wait for each other: a long sweep must not
/// delay the quotas of tenants, which apply only after the first measurement.
pub(crate) async fn sweep_repeatedly(state: Arc<ServerState>) {
    tokio::join!(repeat(Arc::clone(&state), "measure", measure), repeat(state, "sweep", sweep));
}

/// Repeats the work on a separate thread: it reads files for a long time, and must not delay the end of the process. A
/// sweep pauses between its steps; a measurement does not, because it only reads. If no thread can be started, the
/// sender is dropped, and the server tries again after the next interval.
async fn repeat(state: Arc<ServerState>, name: &str, work: fn(&ServerState, &mut SweepPace)) {
    loop {
        let begun = Instant::now();
        let (ended, end) = oneshot::channel::<Duration>();
        let working = Arc::clone(&state);
        let _ = thread::Builder::new().name(name.into()).spawn(move || {
            let mut pace = SweepPace::default();
            work(&working, &mut pace);
            // The receiver is gone only if the server stops.
            let _ = ended.send(pace.paused());
        });
        let paused = end.await.unwrap_or_default();
        tokio::time::sleep(pause_after(begun.elapsed(), paused)).await;
    }
}

/// Returns the pause after work that took this time, of which it paused for some time. A pause of the work uses nothing,
/// so it does not count: otherwise a sweep of many files would run too rarely.
fn pause_after(elapsed: Duration, paused: Duration) -> Duration {
    INTERVAL.max(elapsed.saturating_sub(paused) * WORK_SHARE)
}

fn measure(state: &ServerState, _: &mut SweepPace) {
    let bytes_max = state.runtime.config().serve.workspaces.bytes_max;
    state.tenant_sizes.update(&state.tenant_data, bytes_max);
}

fn sweep(state: &ServerState, pace: &mut SweepPace) {
    let config = state.runtime.config();
    let storage = config.serve.storage;
    let limits = RetentionLimits {
        keep: storage.keep,
        responses_max: storage.responses_max,
        bytes_max: storage.bytes_max,
    };
    let keep = config.serve.workspaces.keep;
    state.workspaces.sweep(keep, SystemTime::now, pace);
    ServerCaches::of(state.runtime.home()).sweep(keep, SystemTime::now(), pace);
    state.used_approvals.sweep(now_ms());
    state.tenant_data.sweep(&limits, SystemTime::now(), pace);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_of_a_sweep_do_not_delay_the_next_sweep() {
        let seconds = Duration::from_secs;
        let check = |elapsed, paused, expected| {
            assert_eq!(pause_after(seconds(elapsed), seconds(paused)), seconds(expected));
        };
        check(0, 0, 60);
        check(20, 20, 60);
        check(22, 20, 100);
        check(2, 0, 100);
    }
}
