//! The trait of stores that hold grants, and an in-memory store.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use crate::grant::{Grant, GrantId, GrantOwner};

/// The maximum number of grants per owner. A person cannot keep track of more, and every call that needs approval reads
/// all of them.
pub const GRANTS_MAX: usize = 2_000;

/// Stores the grants of all principals. The owner comes first in every key, so that no query can reach another owner's
/// grants.
pub trait GrantStore: Send + Sync {
    /// Returns the owner's grants that may apply in a workspace.
    fn load<'a>(
        &'a self,
        owner: &'a GrantOwner,
        workspace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>>;

    /// Adds a grant for its owner and replaces a grant with the same id. The grant is stored when this returns.
    fn add<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), GrantStoreError>>;

    /// Returns all grants of an owner, the oldest first.
    fn list<'a>(&'a self, owner: &'a GrantOwner) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>>;

    /// Removes a grant. Returns false if the owner has no such grant.
    fn revoke<'a>(
        &'a self,
        owner: &'a GrantOwner,
        id: GrantId,
    ) -> BoxFuture<'a, Result<bool, GrantStoreError>>;
}

/// The reason why an operation of the store failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantStoreError {
    /// The owner already has [`GRANTS_MAX`] grants.
    #[error("haft already remembers {GRANTS_MAX} approvals, the maximum; revoke some of them first")]
    Full,
    /// The store cannot be read or written.
    #[error("{reason}")]
    Unavailable {
        /// The cause, in words for the operator.
        reason: String,
    },
}

/// The grants of one owner. Store implementations differ only in where they keep this value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnedGrants {
    grants: Vec<Grant>,
}

impl OwnedGrants {
    /// Builds the set of an owner's grants from stored grants.
    pub fn new(grants: Vec<Grant>) -> Self {
        Self { grants }
    }

    /// Returns all grants, the oldest first.
    pub fn all(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns the grants that may apply in a workspace.
    pub fn in_workspace(&self, workspace: &str) -> Vec<Grant> {
        self.grants.iter().filter(|grant| grant.is_in(workspace)).cloned().collect()
    }

    /// Adds a grant, and removes the grants that had expired by the time of its approval.
    pub fn add(&mut self, grant: Grant) -> Result<(), GrantStoreError> {
        let now_ms = grant.decision.at_ms;
        self.grants.retain(|other| other.id != grant.id && !other.is_expired(now_ms));
        if self.grants.len() >= GRANTS_MAX {
            return Err(GrantStoreError::Full);
        }
        self.grants.push(grant);
        self.grants.sort_by_key(|grant| (grant.decision.at_ms, grant.id));
        Ok(())
    }

    /// Removes a grant. Returns false if there is no such grant.
    pub fn remove(&mut self, id: GrantId) -> bool {
        let before = self.grants.len();
        self.grants.retain(|grant| grant.id != id);
        self.grants.len() < before
    }
}

/// Keeps grants in memory until the process ends, for programs that store nothing on disk.
#[derive(Debug, Default)]
pub struct MemoryGrants(Mutex<BTreeMap<GrantOwner, OwnedGrants>>);

impl MemoryGrants {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<GrantOwner, OwnedGrants>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GrantStore for MemoryGrants {
    fn load<'a>(
        &'a self,
        owner: &'a GrantOwner,
        workspace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>> {
        let found = self.lock().get(owner).map(|owned| owned.in_workspace(workspace));
        Box::pin(async { Ok(found.unwrap_or_default()) })
    }

    fn add<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), GrantStoreError>> {
        let added = self.lock().entry(grant.owner.clone()).or_default().add(grant.clone());
        Box::pin(async { added })
    }

    fn list<'a>(&'a self, owner: &'a GrantOwner) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>> {
        let found = self.lock().get(owner).map(|owned| owned.all().to_vec());
        Box::pin(async { Ok(found.unwrap_or_default()) })
    }

    fn revoke<'a>(
        &'a self,
        owner: &'a GrantOwner,
        id: GrantId,
    ) -> BoxFuture<'a, Result<bool, GrantStoreError>> {
        let removed = self.lock().get_mut(owner).is_some_and(|owned| owned.remove(id));
        Box::pin(async move { Ok(removed) })
    }
}
