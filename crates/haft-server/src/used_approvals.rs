//! The approvals of runs that are not stored, after their use. A client keeps such a run and could send it back with the
//! same answers again, which would make the approved calls again.
//!
//! The ids are only in memory, because nothing about such a run may be on the disk. After a restart, an approval that
//! has not expired can therefore be used once more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haft_core::approval::ApprovalId;

/// The maximum number of approvals that are remembered, about 5 MB. The server refuses further ones until some expire.
const APPROVALS_MAX: usize = 100_000;

/// The approvals that were used, with the times at which they expire, in milliseconds since 1970.
#[derive(Debug, Default)]
pub(crate) struct UsedApprovals(Mutex<HashMap<ApprovalId, u64>>);

/// The reason why approvals cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UseRefusal {
    /// One of them was used before.
    Used,
    /// The table is full.
    Full,
}

/// Approvals that are being used. Dropping it gives them back, unless the run has started.
#[derive(Debug)]
pub(crate) struct ApprovalUse<'a> {
    used: &'a UsedApprovals,
    ids: Vec<ApprovalId>,
}

impl UsedApprovals {
    /// Uses these approvals together, or none of them.
    pub(crate) fn begin(
        &self,
        ids: Vec<ApprovalId>,
        expires_ms: u64,
        now_ms: u64,
    ) -> Result<ApprovalUse<'_>, UseRefusal> {
        let mut table = self.table();
        if ids.iter().any(|id| table.contains_key(id)) {
            return Err(UseRefusal::Used);
        }
        if table.len() + ids.len() > APPROVALS_MAX {
            table.retain(|_, expires| *expires >= now_ms);
        }
        if table.len() + ids.len() > APPROVALS_MAX {
            return Err(UseRefusal::Full);
        }
        table.extend(ids.iter().map(|id| (*id, expires_ms)));
        Ok(ApprovalUse { used: self, ids })
    }

    fn table(&self) -> MutexGuard<'_, HashMap<ApprovalId, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ApprovalUse<'_> {
    /// Keeps the approvals as used, because the run has started.
    pub(crate) fn keep(mut self) {
        self.ids.clear();
    }
}

impl Drop for ApprovalUse<'_> {
    fn drop(&mut self) {
        let mut table = self.used.table();
        for id in &self.ids {
            table.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> ApprovalId {
        ApprovalId::parse(&format!("{number:032x}")).unwrap()
    }

    #[test]
    fn an_approval_is_used_once_unless_the_run_did_not_start() {
        let used = UsedApprovals::default();
        drop(used.begin(vec![id(1), id(2)], 10, 1).unwrap());
        used.begin(vec![id(1), id(2)], 10, 1).unwrap().keep();
        assert_eq!(used.begin(vec![id(3), id(2)], 10, 1).unwrap_err(), UseRefusal::Used);
        used.begin(vec![id(3)], 10, 1).unwrap().keep();
    }

    #[test]
    fn full_table_forgets_only_expired_approvals() {
        let used = UsedApprovals::default();
        used.begin((0..APPROVALS_MAX - 1).map(id).collect(), 10, 1).unwrap().keep();
        used.begin(vec![id(APPROVALS_MAX)], 5, 1).unwrap().keep();
        let next = || vec![id(APPROVALS_MAX + 1)];
        assert_eq!(used.begin(next(), 20, 5).unwrap_err(), UseRefusal::Full);
        used.begin(next(), 20, 6).unwrap().keep();
        assert_eq!(used.begin(vec![id(0)], 20, 6).unwrap_err(), UseRefusal::Used);
    }
}
