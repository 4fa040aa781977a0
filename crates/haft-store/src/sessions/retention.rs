//! Removes sessions that are too old, in the background.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, SystemTime};

use haft_core::position::SessionId;

use super::{SessionError, SessionStore};
use crate::sweep::{self, STEP_PAUSE};

/// The minimum time between two sweeps of one process.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

/// The number of sessions that one step visits.
const STEP_SESSIONS: usize = 256;

impl SessionStore {
    /// Sweeps if a sweep is due. The first step runs at once, so that even a process that ends soon removes expired
    /// sessions. A thread runs the other steps, so that the start of a session does not depend on the number of kept
    /// sessions. The thread ends with the process at the latest.
    pub(super) fn sweep_when_due(&self) {
        if self.limits.keep == Duration::MAX || !sweep::is_due(&self.root, SWEEP_INTERVAL) {
            return;
        }
        let now = SystemTime::now();
        let Ok(mut ids) = self.ids_in_random_order() else { return };
        let rest = ids.split_off(ids.len().min(STEP_SESSIONS));
        self.sweep_step(&ids, now);
        let tenants = self.tenants();
        if rest.is_empty() && tenants.is_empty() {
            return;
        }
        let sessions = self.clone();
        let sweep = move || {
            sessions.sweep(&rest, now, STEP_PAUSE);
            for tenant in tenants {
                let ids = tenant.unsorted_ids().unwrap_or_default();
                tenant.sweep(&ids, now, STEP_PAUSE);
            }
        };
        // If no thread can be started, the sweep stops here. The sweep of a later session continues it.
        let _ = thread::Builder::new().name("session-sweep".into()).spawn(sweep);
    }

    /// Returns the session stores of all tenants except the local user.
    fn tenants(&self) -> Vec<Self> {
        let of_entry = |entry: fs::DirEntry| Self { root: entry.path(), ..self.clone() };
        sweep::entries(&self.tenants_root()).map(of_entry).collect()
    }

    pub(super) fn sweep(&self, ids: &[SessionId], now: SystemTime, pause: Duration) {
        for step in ids.chunks(STEP_SESSIONS) {
            thread::sleep(pause);
            self.sweep_step(step, now);
        }
    }

    fn sweep_step(&self, ids: &[SessionId], now: SystemTime) {
        for id in ids {
            // Ignore a failure: the next sweep tries again.
            let _ = self.remove_if_expired(*id, now);
        }
    }

    /// Returns the ids, starting at a random session. Otherwise processes that end early would always visit the same
    /// sessions.
    pub(super) fn ids_in_random_order(&self) -> Result<Vec<SessionId>, SessionError> {
        let mut ids = self.unsorted_ids()?;
        let random = uuid::Uuid::new_v4().as_u128() % (ids.len().max(1) as u128);
        ids.rotate_left(usize::try_from(random).unwrap_or_default());
        Ok(ids)
    }

    /// Removes a session if it has expired. Checks the age again under the lock, because another process may have
    /// resumed the session.
    fn remove_if_expired(&self, id: SessionId, now: SystemTime) -> Result<(), SessionError> {
        let path = self.path(id);
        if !self.is_expired(fs::metadata(&path)?.modified()?, now) {
            return Ok(());
        }
        let file = File::open(&path)?;
        self.lock(&file, id)?;
        if self.is_expired(file.metadata()?.modified()?, now) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn is_expired(&self, changed: SystemTime, now: SystemTime) -> bool {
        now.duration_since(changed).is_ok_and(|age| age > self.limits.keep)
    }
}
