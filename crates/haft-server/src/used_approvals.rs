//! Remembers the used approvals of runs that are not stored. The client keeps such a run, and could send it back a
//! second time with the same answers, which would repeat the approved calls.
//!
//! Nothing about such a run may be on the disk, so the server stores only a keyed digest of each id.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use haft_core::approval::ApprovalId;
use haft_core::home::Home;
use haft_store::used_approvals::UsedApprovalStore;
use ring::hmac;

/// The maximum number of approvals that are remembered. The server refuses further ones until some expire.
const APPROVALS_MAX: usize = 100_000;

/// The approvals that were used and have not expired. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct UsedApprovals {
    store: UsedApprovalStore,
    approvals_max: usize,
    /// The number of stored approvals; `None` until they are counted. Each use holds this lock, so that concurrent uses
    /// do not exceed the maximum.
    count: Arc<Mutex<Option<usize>>>,
}

/// The reason why approvals cannot be used.
#[derive(Debug)]
pub(crate) enum UseRefusal {
    /// One of the approvals was used before.
    Used,
    /// The server has reached the maximum number of remembered approvals.
    Full,
    /// The use cannot be written to the disk, so a later use would not be noticed.
    Storage(io::Error),
}

impl From<io::Error> for UseRefusal {
    fn from(error: io::Error) -> Self {
        Self::Storage(error)
    }
}

/// Approvals that a starting run uses. Dropping this value makes them usable again, unless the run has started.
#[derive(Debug)]
pub(crate) struct ApprovalUse {
    used: UsedApprovals,
    digests: Vec<String>,
}

impl UsedApprovals {
    pub(crate) fn of(home: &Home) -> Self {
        Self { store: UsedApprovalStore::of(home), approvals_max: APPROVALS_MAX, count: Arc::default() }
    }

    /// Marks all of these approvals as used, or none of them. Blocks while it writes to the disk.
    pub(crate) fn begin(
        &self,
        ids: &[ApprovalId],
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<ApprovalUse, UseRefusal> {
        let mut count = self.count();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.store.key()?);
        let known = self.swept_count(*count, ids.len(), now_ms)?;
        if known + ids.len() > self.approvals_max {
            return Err(UseRefusal::Full);
        }
        *count = Some(known + ids.len());
        drop(count);
        // If a later approval fails, dropping this value gives back the approvals so far.
        let mut usage = ApprovalUse { used: self.clone(), digests: Vec::new() };
        for digest in sorted_digests(&key, ids) {
            if !self.store.add(&digest, expires_ms)? {
                return Err(UseRefusal::Used);
            }
            usage.digests.push(digest);
        }
        Ok(usage)
    }

    /// Forgets the approvals that have expired.
    pub(crate) fn sweep(&self, now_ms: u64) {
        let mut count = self.count();
        // After an error, the next use counts the stored approvals again.
        *count = self.store.sweep(now_ms).and_then(|()| self.store.count()).ok();
    }

    /// Returns the number of stored approvals. If the new ones would exceed the maximum, removes expired approvals
    /// first.
    fn swept_count(&self, count: Option<usize>, new: usize, now_ms: u64) -> io::Result<usize> {
        let count = count.map_or_else(|| self.store.count(), Ok)?;
        if count + new <= self.approvals_max {
            return Ok(count);
        }
        self.store.sweep(now_ms)?;
        self.store.count()
    }

    fn count(&self) -> MutexGuard<'_, Option<usize>> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the digests in a fixed order, so that one of two concurrent requests with the same approvals succeeds.
fn sorted_digests(key: &hmac::Key, ids: &[ApprovalId]) -> Vec<String> {
    let digest = |id: &ApprovalId| BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(key, id.to_string().as_bytes()));
    let mut digests: Vec<String> = ids.iter().map(digest).collect();
    digests.sort();
    digests
}

impl ApprovalUse {
    /// Keeps the approvals as used, because the run has started.
    pub(crate) fn keep(mut self) {
        self.digests.clear();
    }
}

impl Drop for ApprovalUse {
    fn drop(&mut self) {
        for digest in &self.digests {
            // Ignore a failure: the approval then stays used, and the client has to start a new response.
            let _ = self.used.store.remove(digest);
        }
        if !self.digests.is_empty() {
            *self.used.count() = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> ApprovalId {
        ApprovalId::parse(&format!("{number:032x}")).unwrap()
    }

    fn ids<const N: usize>(numbers: [usize; N]) -> [ApprovalId; N] {
        numbers.map(id)
    }

    #[test]
    fn approval_can_be_used_again_only_if_its_run_did_not_start() {
        let directory = tempfile::tempdir().unwrap();
        let open = || UsedApprovals::of(&Home::at(directory.path()));
        let used = open();
        drop(used.begin(&ids([1, 2]), 10, 1).unwrap());
        used.begin(&ids([1, 2]), 10, 1).unwrap().keep();
        for used in [used, open()] {
            assert!(matches!(used.begin(&ids([3, 2]), 10, 1), Err(UseRefusal::Used)));
        }
        open().begin(&ids([3]), 10, 1).unwrap().keep();
        let marks = std::fs::read_dir(Home::at(directory.path()).data().join("approvals-used")).unwrap();
        for name in marks.map(|entry| entry.unwrap().file_name()) {
            assert!(
                !name.to_string_lossy().contains("00000000"),
                "the file name contains an approval id: {name:?}"
            );
        }
    }

    #[test]
    fn full_store_forgets_only_expired_approvals() {
        let directory = tempfile::tempdir().unwrap();
        let used = UsedApprovals { approvals_max: 3, ..UsedApprovals::of(&Home::at(directory.path())) };
        used.begin(&ids([0, 1]), 10, 1).unwrap().keep();
        used.begin(&ids([2]), 5, 1).unwrap().keep();
        assert!(matches!(used.begin(&ids([3]), 20, 5), Err(UseRefusal::Full)));
        used.begin(&ids([3]), 20, 6).unwrap().keep();
        assert!(matches!(used.begin(&ids([4]), 20, 6), Err(UseRefusal::Full)));
        assert!(used.begin(&ids([]), 20, 6).is_ok());
        used.sweep(11);
        used.begin(&ids([4, 5]), 20, 11).unwrap().keep();
        assert!(matches!(used.begin(&ids([3]), 20, 11), Err(UseRefusal::Full)));
        used.sweep(21);
        used.begin(&ids([3]), 30, 21).unwrap().keep();
        assert!(matches!(used.begin(&ids([3]), 30, 21), Err(UseRefusal::Used)));
    }

    #[test]
    fn approval_is_not_used_if_the_use_cannot_be_stored() {
        let directory = tempfile::tempdir().unwrap();
        // Put a file in the place of the directory. A read-only directory would not be enough, because root can write
        // to every directory.
        std::fs::create_dir_all(Home::at(directory.path()).data()).unwrap();
        std::fs::write(Home::at(directory.path()).data().join("approvals-used"), "").unwrap();
        let used = UsedApprovals::of(&Home::at(directory.path()));
        assert!(matches!(used.begin(&ids([1]), 10, 1), Err(UseRefusal::Storage(_))));
    }
}
