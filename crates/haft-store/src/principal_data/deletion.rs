//! The deletion of all data of a principal.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use haft_core::principal::Principal;
use uuid::Uuid;

use super::{FileGroup, GroupLock, PrincipalData};
use crate::api_keys::ApiKeyStore;
use crate::mcp_tokens::{owned_directories, removal_order, token_directory};
use crate::server_caches::ServerCaches;
use crate::sessions::SessionError;
use crate::sweep::SweepPace;
use crate::tenant::directory_of;
use crate::tool_switches::ToolSwitchStore;
use crate::tree::{is_missing, remove_tree};
use crate::workspaces;

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedData {
    /// The number of files and directories that were removed.
    pub removed: u64,
    /// The name that replaces the principal in usage records and logs.
    pub pseudonym: String,
    /// The files that cannot be read and stay. They may belong to any subject of the tenant.
    pub unreadable: Vec<PathBuf>,
}

/// The reason why a deletion is not complete.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error("haft stores no data of this principal")]
    NotFound,
    #[error(
        "a run of this principal is in progress; haft has revoked the principal's keys, but has not \
         deleted its data; try again when the run has ended"
    )]
    Busy,
    #[error("haft cannot change its data directory: {0}")]
    Io(#[from] io::Error),
    #[error("haft could not delete some data of this principal; remove the cause and try again: {}", .0.join("; "))]
    Incomplete(Vec<String>),
}

#[derive(Debug, Default)]
struct Deletion {
    pace: SweepPace,
    removed: u64,
    failures: Vec<String>,
}

impl Deletion {
    /// Removes the files in this order. Stops at the first failure, because the last file names the others.
    fn remove(&mut self, paths: &[PathBuf]) {
        for path in paths.iter().filter(|path| !is_missing(path)) {
            match remove_tree(path, &mut self.pace) {
                Ok(()) => self.removed += 1,
                Err(error) => return self.failures.push(error.to_string()),
            }
        }
    }
}

impl PrincipalData {
    /// Revokes the keys of the principal, deletes its data, and replaces its name in usage records and logs, which keep
    /// their amounts. After a failure it deletes the rest and returns an error; a second deletion then finds what is
    /// left.
    pub fn delete(&self) -> Result<DeletedData, DeleteError> {
        let keys = self.key_ids()?;
        // Find the credentials before the keys are revoked, because some file names contain the id of a key.
        let credentials = self.credentials()?;
        let unexported = self.unexported(&credentials)?;
        let is_empty = unexported.iter().all(|path| is_missing(path));
        if is_empty && !self.has_data(&self.owned_files(&credentials)?)? {
            return Err(DeleteError::NotFound);
        }
        // Revoke the keys first, so that no run starts while the files are removed.
        ApiKeyStore::of(&self.home).revoke(&keys)?;
        let owned = self.owned_files(&credentials)?;
        for group in &owned.groups {
            drop(self.hold(&group.lock)?);
        }
        let mut deletion = Deletion::default();
        for group in &owned.groups {
            self.remove_group(group, &mut deletion);
        }
        for directory in unexported {
            deletion.remove(&removal_order(&directory));
        }
        self.clear_cache();
        if !deletion.failures.is_empty() {
            // Return before the lines are renamed: a second deletion finds the tokens by the keys in these lines.
            return Err(DeleteError::Incomplete(deletion.failures));
        }
        let pseudonym =
            format!("{}/deleted-{}", self.owner.tenant(), &Uuid::new_v4().simple().to_string()[..12]);
        self.rename_lines(&pseudonym)?;
        ToolSwitchStore::of(&self.home).rename(&self.owner.to_string(), &pseudonym)?;
        Ok(DeletedData { removed: deletion.removed, pseudonym, unreadable: owned.unreadable })
    }

    fn remove_group(&self, group: &FileGroup, deletion: &mut Deletion) {
        // Lock each group separately, because a process cannot have thousands of files open.
        match self.hold(&group.lock) {
            Ok(_held) => deletion.remove(&group.paths),
            Err(error) => {
                let path = group.paths.last().map(|path| path.display().to_string()).unwrap_or_default();
                deletion.failures.push(format!("{path}: {error}"));
            }
        }
    }

    /// Takes the lock of a group. Returns `None` if a sweep has already removed the files, so that there is nothing to
    /// lock.
    pub(super) fn hold(&self, lock: &GroupLock) -> Result<Option<File>, DeleteError> {
        match lock {
            GroupLock::None => Ok(None),
            GroupLock::Session(id) => match self.sessions.hold(*id) {
                Ok(file) => Ok(Some(file)),
                Err(SessionError::NotFound { .. }) => Ok(None),
                Err(SessionError::Busy { .. }) => Err(DeleteError::Busy),
                Err(error) => Err(super::io_error(error).into()),
            },
            GroupLock::Workspace(record) => match workspaces::hold(record) {
                Ok(None) => Err(DeleteError::Busy),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                held => Ok(held?),
            },
        }
    }

    /// Returns the directories that an export leaves out: tokens of MCP servers, which are secrets, and the caches of
    /// MCP servers, which contain programs from the network.
    fn unexported(&self, credentials: &BTreeSet<String>) -> io::Result<BTreeSet<PathBuf>> {
        let (tenant, subject) = (self.owner.tenant(), self.owner.subject());
        // Directories of earlier versions have no record of their owner.
        let named =
            credentials.iter().map(|id| token_directory(&self.home, &Principal::new(tenant, subject, id)));
        let caches = ServerCaches::of(&self.home).directory(&self.owner);
        Ok(owned_directories(&self.home, &self.owner)?.into_iter().chain(named).chain([caches]).collect())
    }

    /// Empties the cache of the tenant: cached outputs do not name their principal, and haft can create them again. A
    /// server may write them at the same time, so the directory first gets another name. Failures are ignored, because
    /// cached outputs expire.
    fn clear_cache(&self) {
        let cache = self.home.data().join("cache");
        let renamed = cache.join(format!(".removed_{}", Uuid::new_v4().simple()));
        let _ = fs::rename(cache.join(directory_of(self.owner.tenant())), &renamed);
        let _ = remove_tree(&renamed, &mut SweepPace::default());
    }
}
