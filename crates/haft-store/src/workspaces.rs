//! The workspaces of the server: a directory for the files of each conversation, with a record of its last use.
//!
//! The directory is in `workspace/TENANT`, where commands see it. The record is in `data/workspaces`, where they do
//! not: its modification time is the last use, and its lock is shared by the runs that use the workspace. The kernel
//! releases the lock of a process that was killed.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_fs::{file_lock, private_file};
use serde::{Deserialize, Serialize};

use crate::sweep;
use crate::tenant::directory_of;

/// The name of the workspace that all subjects of a tenant share. No subject has a directory with this name.
const SHARED: &str = "_shared";

/// The beginning of the names of directories that are being removed. A run never uses such a name.
const REMOVED: &str = ".removed_";

/// The number of files that a sweep removes before it pauses.
const STEP_FILES: usize = 256;

/// The pause between two steps. It limits a sweep to a few percent of one core.
const STEP_PAUSE: Duration = Duration::from_millis(10);

/// The workspaces of all tenants.
#[derive(Debug, Clone)]
pub struct WorkspaceStore {
    root: PathBuf,
    records: PathBuf,
}

/// The name of a workspace within its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceName {
    /// The workspace of one conversation, named by the id of the conversation or of its first response.
    Conversation(String),
    /// The workspace of all subjects of the tenant.
    Tenant,
}

impl WorkspaceName {
    /// Returns the name in a stored response.
    pub fn text(&self) -> &str {
        match self {
            Self::Conversation(id) => id,
            Self::Tenant => SHARED,
        }
    }

    /// Reads the name in a stored response.
    pub fn of_text(text: &str) -> Self {
        if text == SHARED { Self::Tenant } else { Self::Conversation(text.to_owned()) }
    }
}

/// The content of a record.
#[derive(Debug, Serialize, Deserialize)]
struct WorkspaceRecord {
    /// The owner; `None` for a workspace that all subjects of the tenant share.
    subject: Option<String>,
}

/// The use of a workspace by one run. While it exists, no sweep removes the workspace.
#[derive(Debug)]
pub struct WorkspaceLease {
    name: WorkspaceName,
    directory: PathBuf,
    record: File,
}

impl WorkspaceLease {
    /// Returns the directory of the workspace.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the name of the workspace.
    pub fn name(&self) -> &WorkspaceName {
        &self.name
    }
}

impl Drop for WorkspaceLease {
    fn drop(&mut self) {
        // The age counts from the end of the last run. If this fails, it counts from the beginning of that run.
        let _ = self.record.set_modified(SystemTime::now());
    }
}

impl WorkspaceStore {
    pub fn of(home: &Home) -> Self {
        Self { root: home.workspace(), records: home.data().join("workspaces") }
    }

    /// Opens a workspace for a run, and creates it if it does not exist.
    pub fn open(&self, owner: &Principal, name: WorkspaceName) -> io::Result<WorkspaceLease> {
        let tenant = directory_of(owner.tenant());
        let (file_name, subject) = match &name {
            WorkspaceName::Conversation(id) => (checked(id)?, Some(owner.subject().to_owned())),
            WorkspaceName::Tenant => (SHARED, None),
        };
        let path = self.records.join(&tenant).join(format!("{file_name}.json"));
        private_file::create_parent_dir(&path)?;
        let record = loop {
            let file = file_lock::open_lock_file(&path)?;
            // A sweep holds the lock only while it renames the directory.
            file.lock_shared()?;
            if file.metadata()?.nlink() > 0 {
                break file;
            }
        };
        if record.metadata()?.len() == 0 {
            fs::write(&path, serde_json::to_vec(&WorkspaceRecord { subject })?)?;
        }
        record.set_modified(SystemTime::now())?;
        let directory = self.root.join(&tenant).join(file_name);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(WorkspaceLease { name, directory, record })
    }

    /// Removes the workspaces that no run has used for this time. A workspace in use stays.
    pub fn sweep(&self, keep: Duration, now: SystemTime) {
        for tenant in sweep::entries(&self.records) {
            let directory = self.root.join(tenant.file_name());
            for record in sweep::entries(&tenant.path()) {
                // Ignore a failure: the next sweep tries again.
                let _ = retire(&record.path(), &directory, Some((keep, now)));
                thread::sleep(STEP_PAUSE);
            }
            remove_retired(&directory);
        }
    }

    /// Returns the directories of the conversations of a principal.
    pub fn of_principal(&self, owner: &Principal) -> Vec<PathBuf> {
        let tenant = directory_of(owner.tenant());
        let is_own = |path: &Path| {
            let record = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            record.is_some_and(|record: WorkspaceRecord| record.subject.as_deref() == Some(owner.subject()))
        };
        let records = sweep::entries(&self.records.join(&tenant)).map(|entry| entry.path());
        let names =
            records.filter(|path| is_own(path)).filter_map(|path| path.file_stem().map(PathBuf::from));
        names.map(|name| self.root.join(&tenant).join(name)).collect()
    }

    /// Removes the workspace in this directory. Returns false if a run uses it.
    pub fn remove(&self, directory: &Path) -> io::Result<bool> {
        let (Some(name), Some(parent)) = (directory.file_name(), directory.parent()) else {
            return Ok(false);
        };
        let tenant = parent.file_name().unwrap_or_default();
        let record = self.records.join(tenant).join(name).with_extension("json");
        let is_removed = retire(&record, parent, None)?;
        remove_retired(parent);
        Ok(is_removed)
    }
}

/// Returns the bytes that the files of a directory occupy on the disk, or a number above `bytes_max` as soon as they
/// exceed it. Links are not followed. Returns an error for a directory that cannot be read, because it may hide any
/// size.
pub fn occupied_bytes(directory: &Path, bytes_max: u64) -> io::Result<u64> {
    let mut bytes = 0;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            // A command removes files while they are counted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let Ok(entry) = entry else { continue };
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += metadata.blocks() * 512;
            if bytes > bytes_max {
                return Ok(bytes);
            }
            if metadata.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Ok(bytes)
}

/// Returns the directory that commands of a principal see as `/tmp` in a workspace.
pub fn private_tmp(home: &Home, owner: &Principal, workspace: &Path) -> PathBuf {
    let (tenant, subject) = (owner.tenant(), owner.subject());
    let name = Digest::of_text(&format!("{tenant}\n{subject}\n{}", workspace.display()));
    home.private_tmps().join(name.to_string())
}

/// Checks an id that becomes the name of a directory.
fn checked(id: &str) -> io::Result<&str> {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let has_prefix = id.starts_with("resp_") || id.starts_with("conv_");
    if has_prefix && is_plain && id.len() <= 80 {
        return Ok(id);
    }
    Err(io::Error::other("the id is not the id of a conversation or a response"))
}

/// Renames an unused workspace and removes its record, so that a run of the same conversation begins with an empty
/// directory and need not wait. `age` gives the time that an unused workspace is kept, and the present time.
fn retire(record: &Path, tenant: &Path, age: Option<(Duration, SystemTime)>) -> io::Result<bool> {
    let file = File::open(record)?;
    let is_recent = |file: &File| -> io::Result<bool> {
        let Some((keep, now)) = age else { return Ok(false) };
        Ok(now.duration_since(file.metadata()?.modified()?).is_ok_and(|age| age <= keep))
    };
    if is_recent(&file)? {
        return Ok(false);
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // A run may have used the workspace between the first check and the lock.
    if is_recent(&file)? {
        return Ok(false);
    }
    let name = record.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let retired = tenant.join(format!("{REMOVED}{name}_{}", uuid::Uuid::new_v4().simple()));
    match fs::rename(tenant.join(&name), retired) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::remove_file(record).map(|()| true),
    }
}

/// Removes the renamed directories of a tenant, including those that an earlier process left.
fn remove_retired(tenant: &Path) {
    let mut removed = 0;
    for entry in sweep::entries(tenant) {
        if entry.file_name().to_string_lossy().starts_with(REMOVED) {
            remove_tree(&entry.path(), &mut removed);
        }
    }
}

fn remove_tree(directory: &Path, removed: &mut usize) {
    // A command can take away our permission to read its directory. No command runs in this directory any more, so that
    // no link can take its place now.
    let _ = fs::set_permissions(directory, fs::Permissions::from_mode(0o700));
    for entry in sweep::entries(directory) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path(), removed);
        } else {
            let _ = fs::remove_file(entry.path());
        }
        *removed += 1;
        if removed.is_multiple_of(STEP_FILES) {
            thread::sleep(STEP_PAUSE);
        }
    }
    let _ = fs::remove_dir(directory);
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn conversation(id: &str) -> WorkspaceName {
        WorkspaceName::Conversation(id.into())
    }

    #[test]
    fn sweep_removes_unused_workspaces_and_never_one_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let store = WorkspaceStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        let used = store.open(&anna, conversation("resp_1")).unwrap();
        let unused = store.open(&anna, conversation("conv_2")).unwrap().directory().to_owned();
        fs::create_dir(unused.join("locked")).unwrap();
        fs::write(unused.join("locked/file"), "x").unwrap();
        fs::set_permissions(unused.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
        store.sweep(HOUR, SystemTime::now());
        assert!(unused.exists(), "it was used less than an hour ago");
        store.sweep(HOUR, SystemTime::now() + 2 * HOUR);
        assert!(used.directory().exists() && !unused.exists());
        let left: Vec<_> = sweep::entries(unused.parent().unwrap()).map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["resp_1"], "nothing is left of the removed workspace");
        let (kept, now) = (used.directory().to_owned(), SystemTime::now() + 2 * HOUR);
        drop(used);
        store.sweep(HOUR, now);
        assert!(!kept.exists(), "the lease has ended");
        assert!(store.open(&anna, conversation("resp_1")).unwrap().directory().exists());
    }

    #[test]
    fn a_workspace_belongs_to_its_subject_and_the_shared_one_to_the_tenant() {
        let directory = tempfile::tempdir().unwrap();
        let store = WorkspaceStore::of(&Home::at(directory.path()));
        let (anna, bert) = (Principal::new("acme", "anna", "k"), Principal::new("acme", "bert", "k"));
        let own = store.open(&anna, conversation("resp_1")).unwrap();
        let shared = store.open(&anna, WorkspaceName::Tenant).unwrap();
        assert_eq!(shared.directory(), store.open(&bert, WorkspaceName::Tenant).unwrap().directory());
        for lease in [&own, &shared] {
            assert_eq!(WorkspaceName::of_text(lease.name().text()), *lease.name());
        }
        assert_eq!(store.of_principal(&anna), [own.directory().to_owned()]);
        assert!(store.of_principal(&bert).is_empty());
        let path = own.directory().to_owned();
        assert!(!store.remove(&path).unwrap(), "it is in use");
        drop(own);
        assert!(store.remove(&path).unwrap() && !path.exists() && shared.directory().exists());
        for id in ["", "resp_../x", "anna", "conv_a/b", ".removed_x", "_shared"] {
            assert!(store.open(&anna, conversation(id)).is_err(), "{id}");
        }
    }

    #[test]
    fn occupied_bytes_counts_blocks_without_following_links() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir(path.join("a")).unwrap();
        fs::write(path.join("a/file"), vec![1; 100_000]).unwrap();
        let before = occupied_bytes(path, u64::MAX).unwrap();
        assert!((100_000..200_000).contains(&before), "{before}");
        std::os::unix::fs::symlink("/", path.join("link")).unwrap();
        File::create(path.join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let after = occupied_bytes(path, u64::MAX).unwrap();
        assert!(after - before < 20_000, "{after}");
        assert!(occupied_bytes(path, 10).unwrap() > 10);
    }
}
