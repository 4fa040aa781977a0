//! A grant store that reports its failures to the user.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use haft_core::grant::{Grant, GrantId, GrantOwner};
use haft_core::grant_store::{GrantStore, GrantStoreError};

/// Passes every request to another grant store. A failure does not stop a call, so without a report the user would not
/// know why haft asks for the same approval again.
pub struct ReportingGrants {
    store: Arc<dyn GrantStore>,
    report: Box<dyn Fn(String) + Send + Sync>,
    /// True after a read error was reported. Each call reads the store, and one report is enough.
    reported_reading: AtomicBool,
}

impl ReportingGrants {
    /// Wraps a store. `report` gets each failure as a message for the operator.
    pub fn new(store: Arc<dyn GrantStore>, report: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self { store, report: Box::new(report), reported_reading: AtomicBool::new(false) }
    }

    fn report_reading(&self, error: &GrantStoreError) {
        if !self.reported_reading.swap(true, Ordering::Relaxed) {
            (self.report)(format!(
                "haft cannot read the remembered approvals, so it does not use them: {error}"
            ));
        }
    }
}

impl GrantStore for ReportingGrants {
    fn load<'a>(
        &'a self,
        owner: &'a GrantOwner,
        workspace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>> {
        Box::pin(async move {
            let loaded = self.store.load(owner, workspace).await;
            loaded.inspect_err(|error| self.report_reading(error))
        })
    }

    fn add<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), GrantStoreError>> {
        Box::pin(async move {
            let added = self.store.add(grant).await;
            added.inspect_err(|error| {
                (self.report)(format!(
                    "haft could not store the approval, so the approval applies to this call only: {error}"
                ));
            })
        })
    }

    fn list<'a>(&'a self, owner: &'a GrantOwner) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>> {
        self.store.list(owner)
    }

    fn revoke<'a>(
        &'a self,
        owner: &'a GrantOwner,
        id: GrantId,
    ) -> BoxFuture<'a, Result<bool, GrantStoreError>> {
        self.store.revoke(owner, id)
    }
}

impl fmt::Debug for ReportingGrants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReportingGrants").finish_non_exhaustive()
    }
}
