//! Grants in files: one file per owner, replaced as a whole under a lock.

mod record;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use haft_core::grant::{Grant, GrantId, GrantOwner};
use haft_core::grant_store::{GrantStore, GrantStoreError, OwnedGrants};
use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_fs::{file_lock, private_file};

use crate::tenant::directory_of;
use record::GrantsFile;

/// The directory of all grants.
#[derive(Debug, Clone)]
pub struct FileGrants {
    root: PathBuf,
}

impl FileGrants {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("grants") }
    }

    /// Returns the path without its extension. Tenant and subject are one path component each.
    fn path(&self, owner: &GrantOwner) -> PathBuf {
        self.root.join(directory_of(&owner.tenant)).join(directory_of(&owner.subject))
    }

    /// Returns the path of the grants of a principal, without an extension.
    pub(crate) fn file_of(&self, owner: &Principal) -> PathBuf {
        self.root.join(directory_of(owner.tenant())).join(directory_of(owner.subject()))
    }

    fn read(&self, owner: &GrantOwner) -> io::Result<OwnedGrants> {
        read(&self.path(owner).with_extension("json"), owner)
    }

    /// Changes the grants of an owner while no other process can change them. Returns an error if the file cannot be
    /// read, because replacing it would drop grants that the user may still need.
    pub(crate) fn change<T>(
        &self,
        owner: &GrantOwner,
        change: impl FnOnce(&mut OwnedGrants) -> Result<T, GrantStoreError>,
    ) -> Result<T, GrantStoreError> {
        let path = self.path(owner);
        let _lock = lock(&path.with_extension("lock")).map_err(unavailable)?;
        let before = self.read(owner).map_err(unavailable)?;
        let mut after = before.clone();
        let outcome = change(&mut after)?;
        if after != before {
            let bytes = GrantsFile::of(owner, &after).bytes().map_err(unavailable)?;
            private_file::replace(&path.with_extension("json"), &bytes).map_err(unavailable)?;
        }
        Ok(outcome)
    }
}

fn read(path: &Path, owner: &GrantOwner) -> io::Result<OwnedGrants> {
    match std::fs::read(path) {
        Ok(bytes) => GrantsFile::read(&bytes)
            .and_then(|file| file.grants_of(owner))
            .map_err(|problem| io::Error::other(format!("{}: {problem}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(OwnedGrants::default()),
        Err(error) => Err(error),
    }
}

/// Waits for the lock. Closing the file releases the lock; a process holds it only while it replaces a small file.
pub(crate) fn lock(path: &Path) -> io::Result<File> {
    private_file::create_parent_dir(path)?;
    let file = file_lock::open_lock_file(path)?;
    file.lock()?;
    Ok(file)
}

impl GrantStore for FileGrants {
    fn load<'a>(
        &'a self,
        owner: &'a GrantOwner,
        workspace: &'a str,
    ) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>> {
        let in_workspace = |owned: OwnedGrants| owned.in_workspace(workspace);
        Box::pin(async move { self.read(owner).map(in_workspace).map_err(unavailable) })
    }

    fn add<'a>(&'a self, grant: &'a Grant) -> BoxFuture<'a, Result<(), GrantStoreError>> {
        Box::pin(async move { self.change(&grant.owner, |owned| owned.add(grant.clone())) })
    }

    fn list<'a>(&'a self, owner: &'a GrantOwner) -> BoxFuture<'a, Result<Vec<Grant>, GrantStoreError>> {
        Box::pin(async move { self.read(owner).map(|owned| owned.all().to_vec()).map_err(unavailable) })
    }

    fn revoke<'a>(
        &'a self,
        owner: &'a GrantOwner,
        id: GrantId,
    ) -> BoxFuture<'a, Result<bool, GrantStoreError>> {
        Box::pin(async move { self.change(owner, |owned| Ok(owned.remove(id))) })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "handed to `map_err`")]
fn unavailable(error: io::Error) -> GrantStoreError {
    GrantStoreError::Unavailable { reason: error.to_string() }
}

#[cfg(test)]
mod tests;
