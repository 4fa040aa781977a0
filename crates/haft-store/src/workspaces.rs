//! The workspaces of the server: a directory for the files of each conversation, with a record of its last use.
//!
//! The directory is in `workspace/TENANT`, where commands see it. The record is in `data/workspaces`, where they do
//! not: its modification time is the last use, and its lock is shared by the runs that use the workspace. The kernel
//! releases the lock of a process that was killed.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use haft_core::digest::Digest;
use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_fs::{file_lock, private_file};
use serde::{Deserialize, Serialize};

use crate::sweep::{self, SweepPace};
use crate::tenant::directory_of;
use crate::tree::remove_tree;

/// The name of the workspace that all subjects of a tenant share. No subject has a directory with this name.
const SHARED: &str = "_shared";

/// The name of a workspace that belongs to one subject, in a stored response. The directory has the name of the subject.
const OWN: &str = "_own";

/// The name prefix of directories that a sweep is removing. A run never uses such a name.
const REMOVED: &str = ".removed_";

/// The workspaces of all tenants.
#[derive(Debug, Clone)]
pub struct WorkspaceStore {
    root: PathBuf,
    records: PathBuf,
    /// The directories that commands see as `/tmp`: `TENANT/WORKSPACE/SUBJECT`.
    tmps: PathBuf,
}

/// The stored parts of a workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredWorkspace {
    pub(crate) directory: PathBuf,
    /// The `/tmp` directories of all subjects in this workspace.
    pub(crate) tmps: PathBuf,
    pub(crate) record: PathBuf,
}

/// The name of a workspace within its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkspaceName {
    /// The workspace of one conversation, named by the id of the conversation or of its first response.
    Conversation(String),
    /// The workspace of all subjects of the tenant.
    Tenant,
    /// The workspace of one subject, for runs that use no files themselves. Their MCP servers work in it.
    Subject,
}

impl WorkspaceName {
    /// Returns the name in a stored response.
    pub fn text(&self) -> &str {
        match self {
            Self::Conversation(id) => id,
            Self::Tenant => SHARED,
            Self::Subject => OWN,
        }
    }

    /// Reads the name in a stored response.
    pub fn of_text(text: &str) -> Self {
        match text {
            SHARED => Self::Tenant,
            OWN => Self::Subject,
            id => Self::Conversation(id.to_owned()),
        }
    }
}

/// The content of the record of a workspace.
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
        // Record the end of this run as the last use of the workspace. If this fails, the beginning of the run stays
        // the last use.
        let _ = self.record.set_modified(SystemTime::now());
    }
}

impl WorkspaceStore {
    pub fn of(home: &Home) -> Self {
        Self { root: home.workspace(), records: home.data().join("workspaces"), tmps: home.private_tmps() }
    }

    /// Opens a workspace for a run, and creates it if it does not exist.
    pub fn open(&self, owner: &Principal, name: WorkspaceName) -> io::Result<WorkspaceLease> {
        let tenant = directory_of(owner.tenant());
        let (file_name, subject) = match &name {
            WorkspaceName::Conversation(id) => (checked(id)?.to_owned(), Some(owner.subject().to_owned())),
            WorkspaceName::Tenant => (SHARED.to_owned(), None),
            WorkspaceName::Subject => (directory_of(owner.subject()), Some(owner.subject().to_owned())),
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
        let directory = self.root.join(&tenant).join(&file_name);
        DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        Ok(WorkspaceLease { name, directory, record })
    }

    /// Removes the workspaces that no run has used for this time, with their `/tmp`. A workspace in use stays. `now`
    /// returns the present time, because a sweep takes long and runs use workspaces in the meantime.
    pub fn sweep(&self, keep: Duration, now: impl Fn() -> SystemTime, pace: &mut SweepPace) {
        for tenant in sweep::entries(&self.records) {
            for record in sweep::entries(&tenant.path()) {
                // Ignore a failure: the next sweep tries again.
                let _ = self.retire(&tenant.file_name(), &record.path(), keep, &now);
                pace.step();
            }
            for root in [&self.root, &self.tmps] {
                remove_retired(&root.join(tenant.file_name()), pace);
            }
        }
    }

    /// Removes the `/tmp` directories to which no entry was added for this time. Skips those of workspaces with a
    /// record, which [`sweep`](Self::sweep) removes together with their workspace.
    pub fn sweep_tmps(&self, keep: Duration, now: SystemTime) {
        for tenant in sweep::entries(&self.tmps) {
            let recorded = self.recorded_tmps(&tenant.file_name());
            for workspace in sweep::entries(&tenant.path()) {
                if recorded.contains(&workspace.path()) {
                    continue;
                }
                sweep::remove_unused_directories(&workspace.path(), keep, now);
                // Remove the directory only if it is empty: while it still contains the `/tmp` of a subject, this
                // fails, as intended.
                let _ = fs::remove_dir(workspace.path());
            }
        }
    }

    /// Returns the `/tmp` directories of the workspaces that have a record.
    fn recorded_tmps(&self, tenant: &OsStr) -> HashSet<PathBuf> {
        let records = sweep::entries(&self.records.join(tenant));
        records.map(|record| self.stored(tenant, &record.path()).tmps).collect()
    }

    /// Returns the workspaces of the conversations of a principal, and the records that cannot be read, which may
    /// belong to any subject of the tenant.
    pub(crate) fn of_principal(&self, owner: &Principal) -> io::Result<(Vec<StoredWorkspace>, Vec<PathBuf>)> {
        let tenant = directory_of(owner.tenant());
        let (mut own, mut unreadable) = (Vec::new(), Vec::new());
        for entry in sweep::list(&self.records.join(&tenant))? {
            let bytes = fs::read(entry.path());
            match bytes.ok().and_then(|bytes| serde_json::from_slice::<WorkspaceRecord>(&bytes).ok()) {
                Some(record) if record.subject.as_deref() == Some(owner.subject()) => {
                    own.push(self.stored(OsStr::new(&tenant), &entry.path()));
                }
                Some(_) => {}
                None => unreadable.push(entry.path()),
            }
        }
        Ok((own, unreadable))
    }

    fn stored(&self, tenant: &OsStr, record: &Path) -> StoredWorkspace {
        let directory = self.root.join(tenant).join(record.file_stem().unwrap_or_default());
        let tmps = self.tmps.join(tenant).join(tmps_name(&directory));
        StoredWorkspace { directory, tmps, record: record.to_owned() }
    }

    /// Renames an unused workspace and removes its record, so that a run of the same conversation begins with an empty
    /// directory and need not wait.
    fn retire(
        &self,
        tenant: &OsStr,
        record: &Path,
        keep: Duration,
        now: &impl Fn() -> SystemTime,
    ) -> io::Result<()> {
        let file = File::open(record)?;
        if is_recent(&file, keep, now())? || !file_lock::try_lock(&file)? {
            return Ok(());
        }
        // A run may have used the workspace between the first check and the lock.
        if is_recent(&file, keep, now())? {
            return Ok(());
        }
        let stored = self.stored(tenant, record);
        for directory in [&stored.tmps, &stored.directory] {
            rename_retired(directory)?;
        }
        fs::remove_file(record)
    }
}

/// Locks the workspace of a record until the file is closed. Returns `None` if a run uses it.
pub(crate) fn hold(record: &Path) -> io::Result<Option<File>> {
    let file = File::open(record)?;
    Ok(file_lock::try_lock(&file)?.then_some(file))
}

/// Returns the bytes that the files of a directory occupy on the disk, or a number above `bytes_max` as soon as they
/// exceed it. Links are not followed. Returns an error for a directory that cannot be read, because it may hide any
/// size.
pub fn occupied_bytes(directory: &Path, bytes_max: u64) -> io::Result<u64> {
    let mut bytes = 0;
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            // A command has removed the directory during the count.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                metadata => metadata?,
            };
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

/// Returns the directory that commands of a principal see as `/tmp` in a workspace. All these directories of a tenant
/// have the same parent, so that they count for its disk space. haft removes them together with the workspace.
pub fn private_tmp(home: &Home, owner: &Principal, workspace: &Path) -> PathBuf {
    let of_tenant = home.private_tmps().join(directory_of(owner.tenant()));
    of_tenant.join(tmps_name(workspace)).join(directory_of(owner.subject()))
}

/// Returns the name of the directory that contains the `/tmp` directories of a workspace. The name is a digest, because
/// the path of the workspace can be any path.
fn tmps_name(workspace: &Path) -> String {
    Digest::of_text(&workspace.to_string_lossy()).to_string()
}

/// Checks an id that becomes the name of a directory.
fn checked(id: &str) -> io::Result<&str> {
    let is_plain = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let has_prefix = id.starts_with("resp_") || id.starts_with("conv_");
    if has_prefix && is_plain && id.len() <= 80 {
        return Ok(id);
    }
    Err(io::Error::other("the id of a workspace must be the id of a conversation or a response"))
}

/// Returns true if a workspace was used within this time. A use in the future counts as recent, because it means that
/// the clock was set back.
fn is_recent(record: &File, keep: Duration, now: SystemTime) -> io::Result<bool> {
    Ok(now.duration_since(record.metadata()?.modified()?).map_or(true, |age| age <= keep))
}

/// Renames a directory that a sweep removes, so that its name is free at once.
pub(crate) fn rename_retired(directory: &Path) -> io::Result<()> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let retired = format!("{REMOVED}{name}_{}", uuid::Uuid::new_v4().simple());
    match fs::rename(directory, directory.with_file_name(retired)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

/// Removes the renamed directories of a tenant, including those that an earlier process left.
pub(crate) fn remove_retired(tenant: &Path, pace: &mut SweepPace) {
    for entry in sweep::entries(tenant) {
        if entry.file_name().to_string_lossy().starts_with(REMOVED) {
            // Ignore a failure: the next sweep tries again.
            let _ = remove_tree(&entry.path(), pace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::{nest_deeply, set_mode, without_capabilities};

    const HOUR: Duration = Duration::from_hours(1);

    fn conversation(id: &str) -> WorkspaceName {
        WorkspaceName::Conversation(id.into())
    }

    #[test]
    fn sweep_removes_unused_workspaces_but_none_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let store = WorkspaceStore::of(&home);
        let anna = Principal::new("acme", "anna", "k");
        let later = || SystemTime::now() + 2 * HOUR;
        let mut pace = SweepPace::default();
        let used = store.open(&anna, conversation("resp_1")).unwrap();
        let unused = store.open(&anna, conversation("conv_2")).unwrap().directory().to_owned();
        fs::create_dir(unused.join("locked")).unwrap();
        fs::write(unused.join("locked/file"), "x").unwrap();
        set_mode(&unused.join("locked"), 0o000);
        let tmps = [used.directory(), &unused].map(|workspace| private_tmp(&home, &anna, workspace));
        for tmp in &tmps {
            fs::create_dir_all(tmp.join("locked")).unwrap();
            set_mode(&tmp.join("locked"), 0o000);
        }
        store.sweep(HOUR, SystemTime::now, &mut pace);
        assert!(unused.exists() && tmps[1].exists(), "a workspace used in the last hour is kept");
        without_capabilities(|| store.sweep(HOUR, later, &mut SweepPace::default()));
        assert!(used.directory().exists() && !unused.exists());
        assert!(tmps[0].exists() && !tmps[1].exists());
        let left: Vec<_> = sweep::entries(unused.parent().unwrap()).map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["resp_1"], "the removed workspace has no files left");
        let kept = used.directory().to_owned();
        drop(used);
        store.sweep(HOUR, later, &mut pace);
        assert!(!kept.exists(), "a workspace without a lease is removed");
        assert!(store.open(&anna, conversation("resp_1")).unwrap().directory().exists());
    }

    #[test]
    fn sweep_keeps_a_workspace_with_a_last_use_in_the_future() {
        let directory = tempfile::tempdir().unwrap();
        let store = WorkspaceStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        let workspace = store.open(&anna, conversation("conv_1")).unwrap().directory().to_owned();
        for earlier in [Duration::from_secs(5), 48 * HOUR] {
            store.sweep(HOUR, || SystemTime::now() - earlier, &mut SweepPace::default());
            assert!(workspace.exists(), "{earlier:?}");
        }
    }

    #[test]
    fn sweep_of_many_recent_workspaces_pauses_only_between_steps() {
        let directory = tempfile::tempdir().unwrap();
        let store = WorkspaceStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        for number in 0..2_000 {
            drop(store.open(&anna, conversation(&format!("conv_{number}"))).unwrap());
        }
        let mut pace = SweepPace::default();
        store.sweep(HOUR, SystemTime::now, &mut pace);
        assert_eq!(pace.paused(), 7 * Duration::from_millis(10), "2,000 records are 7 full steps of 256");
    }

    #[test]
    fn workspace_of_a_subject_has_a_record_of_its_own_and_expires() {
        let directory = tempfile::tempdir().unwrap();
        let store = WorkspaceStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "Anna Smith", "k");
        let bert = Principal::new("acme", "bert", "k");
        let open = |owner: &Principal| store.open(owner, WorkspaceName::Subject).unwrap();
        let (of_anna, of_bert) = (open(&anna), open(&bert));
        assert_eq!(WorkspaceName::of_text(of_anna.name().text()), WorkspaceName::Subject);
        let paths = [of_anna.directory(), of_bert.directory()].map(Path::to_owned);
        assert_ne!(paths[0], paths[1]);
        assert_eq!(store.of_principal(&anna).unwrap().0[0].directory, paths[0]);
        drop(of_anna);
        store.sweep(HOUR, || SystemTime::now() + 2 * HOUR, &mut SweepPace::default());
        assert!(!paths[0].exists() && paths[1].exists(), "only a workspace in use is kept");
    }

    #[test]
    fn tmp_of_a_workspace_with_a_record_is_kept_until_the_workspace_expires() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let store = WorkspaceStore::of(&home);
        let anna = Principal::new("acme", "anna", "k");
        let workspace = store.open(&anna, conversation("conv_1")).unwrap().directory().to_owned();
        let tmp = private_tmp(&home, &anna, &workspace);
        fs::create_dir_all(&tmp).unwrap();
        let later = SystemTime::now() + 2 * HOUR;
        store.sweep_tmps(HOUR, later);
        assert!(tmp.exists(), "the sweep of the runtime leaves the workspace to the server");
        store.sweep(HOUR, || later, &mut SweepPace::default());
        assert!(!tmp.exists());
    }

    #[test]
    fn tmp_directories_without_new_entries_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let (anna, bert) = (Principal::new("acme", "anna", "k"), Principal::new("acme", "bert", "k"));
        let tmps = [&anna, &bert].map(|owner| private_tmp(&home, owner, Path::new("/srv/project")));
        for tmp in &tmps {
            fs::create_dir_all(tmp.join("below")).unwrap();
        }
        File::open(&tmps[0]).unwrap().set_modified(SystemTime::now() - 2 * HOUR).unwrap();
        WorkspaceStore::of(&home).sweep_tmps(HOUR, SystemTime::now());
        assert!(!tmps[0].exists() && tmps[1].join("below").exists());
        WorkspaceStore::of(&home).sweep_tmps(HOUR, SystemTime::now() + 2 * HOUR);
        assert!(!tmps[1].parent().unwrap().exists());
    }

    #[test]
    fn only_the_shared_workspace_belongs_to_the_whole_tenant() {
        let directory = tempfile::tempdir().unwrap();
        let store = WorkspaceStore::of(&Home::at(directory.path()));
        let (anna, bert) = (Principal::new("acme", "anna", "k"), Principal::new("acme", "bert", "k"));
        let own = store.open(&anna, conversation("resp_1")).unwrap();
        let shared = store.open(&anna, WorkspaceName::Tenant).unwrap();
        assert_eq!(shared.directory(), store.open(&bert, WorkspaceName::Tenant).unwrap().directory());
        for lease in [&own, &shared] {
            assert_eq!(WorkspaceName::of_text(lease.name().text()), *lease.name());
        }
        let (of_anna, unreadable) = store.of_principal(&anna).unwrap();
        assert_eq!((of_anna.len(), unreadable.len()), (1, 0));
        assert_eq!(of_anna[0].directory, own.directory());
        assert!(store.of_principal(&bert).unwrap().0.is_empty());
        assert!(hold(&of_anna[0].record).unwrap().is_none(), "a workspace with a lease cannot be held");
        drop(own);
        assert!(hold(&of_anna[0].record).unwrap().is_some());
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

    #[test]
    fn size_of_an_unreadable_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        fs::create_dir(path.join("a")).unwrap();
        fs::write(path.join("a/file"), "x").unwrap();
        for mode in [0o000, 0o444] {
            set_mode(&path.join("a"), mode);
            assert!(without_capabilities(|| occupied_bytes(path, u64::MAX)).is_err(), "{mode:o}");
        }
        set_mode(&path.join("a"), 0o700);
        assert!(occupied_bytes(path, u64::MAX).is_ok());
        nest_deeply(path);
        assert!(occupied_bytes(path, u64::MAX).is_err());
    }
}
