//! All data of one principal, for exports and deletions.

mod deletion;
mod lines;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haft_core::event_store::RunKey;
use haft_core::home::Home;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::api_keys::ApiKeyStore;
use crate::backup::{self, ArchiveSummary, ExistingFile};
use crate::conversations::ConversationStore;
use crate::events::FileEvents;
use crate::grants::FileGrants;
use crate::idempotency::FileIdempotencyKeys;
use crate::outputs::FileOutputs;
use crate::responses::ResponseStore;
use crate::sessions::{ReadError, SessionError, SessionLimits, SessionStore};
use crate::spending::SpendingStore;
use crate::sweep;
use crate::tenant::directory_of;
use crate::tree::is_missing;
use crate::workspaces::WorkspaceStore;

pub use deletion::{DeleteError, DeletedData};

/// The data of one principal in haft's home directory.
#[derive(Debug)]
pub struct PrincipalData {
    home: Home,
    owner: Principal,
    sessions: SessionStore,
}

/// The reason why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("haft stores no data of this principal")]
    NotFound,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The stored files of a principal.
#[derive(Debug, Default)]
struct OwnedFiles {
    groups: Vec<FileGroup>,
    /// The files that cannot be read. They may belong to any subject of the tenant.
    unreadable: Vec<PathBuf>,
}

/// A group of files that a deletion removes together.
#[derive(Debug)]
struct FileGroup {
    lock: GroupLock,
    /// The files in the order of removal. The last file names the others, so that after a failure a second deletion
    /// finds them.
    paths: Vec<PathBuf>,
}

/// The lock that a run holds while it uses the files of a group.
#[derive(Debug)]
enum GroupLock {
    None,
    Session(SessionId),
    /// The lock on the record at this path. Each run in the workspace holds it.
    Workspace(PathBuf),
}

impl OwnedFiles {
    fn add(&mut self, lock: GroupLock, paths: Vec<PathBuf>) {
        self.groups.push(FileGroup { lock, paths });
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.groups.iter().flat_map(|group| &group.paths)
    }
}

impl PrincipalData {
    pub fn of(home: &Home, owner: Principal) -> Self {
        let limits = SessionLimits { bytes_max: u64::MAX, keep: Duration::MAX };
        let sessions = SessionStore::of(home, limits).of_tenant(owner.tenant());
        Self { home: home.clone(), owner, sessions }
    }

    /// Writes all data to an archive. The usage records and the log lines of the principal are in files of their own.
    /// Tokens of MCP servers are left out, because they are secrets.
    pub fn export(&self, path: &Path, existing: ExistingFile) -> Result<ArchiveSummary, ExportError> {
        let owned = self.owned_files(&self.credentials()?)?;
        if !self.has_data(&owned)? {
            return Err(ExportError::NotFound);
        }
        let mut summary = backup::write_archive(&self.home, path, existing, |archive| {
            for file in owned.paths() {
                archive.add_tree(file.strip_prefix(self.home.root()).unwrap_or(file), file)?;
            }
            for (name, paths) in self.line_files() {
                let lines = self.own_lines(&paths)?;
                if !lines.is_empty() {
                    archive.add_bytes(&Path::new("lines").join(name), lines.as_bytes(), 0)?;
                }
            }
            archive.add_bytes(Path::new("keys.json"), format!("{:#}\n", self.keys()?).as_bytes(), 0)
        })?;
        summary.skipped.extend(owned.unreadable);
        Ok(summary)
    }

    fn has_data(&self, owned: &OwnedFiles) -> io::Result<bool> {
        let has_files = owned.paths().any(|path| !is_missing(path));
        Ok(has_files || !self.key_ids()?.is_empty() || self.is_in_lines()?)
    }

    /// Returns the groups in the order of removal. A response names its run, so the runs are first.
    fn owned_files(&self, credentials: &BTreeSet<String>) -> io::Result<OwnedFiles> {
        let mut bound: HashMap<SessionId, Vec<PathBuf>> = HashMap::new();
        for (run, path) in FileIdempotencyKeys::of(&self.home).of_tenant(self.owner.tenant())? {
            bound.entry(run).or_default().push(path);
        }
        let mut owned = OwnedFiles::default();
        self.add_workspaces(&mut owned)?;
        let sessions = self.add_sessions(&mut owned, &bound)?;
        self.add_responses(&mut owned, &bound, &sessions)?;
        self.add_conversations(&mut owned)?;
        self.add_outputs(&mut owned)?;
        let grants = FileGrants::of(&self.home).file_of(&self.owner);
        owned.add(GroupLock::None, ["lock", "json"].map(|suffix| grants.with_extension(suffix)).into());
        let spending = SpendingStore::of(&self.home);
        let spent = credentials.iter().filter_map(|key| spending.file_of(key));
        for file in spent {
            owned.add(GroupLock::None, vec![file]);
        }
        Ok(owned)
    }

    /// Adds the workspaces, and the directories that their commands see as `/tmp`.
    fn add_workspaces(&self, owned: &mut OwnedFiles) -> io::Result<()> {
        let (workspaces, unreadable) = WorkspaceStore::of(&self.home).of_principal(&self.owner)?;
        let known: HashSet<PathBuf> =
            workspaces.iter().flat_map(|stored| [stored.tmps.clone(), stored.directory.clone()]).collect();
        for stored in workspaces {
            let paths = vec![stored.tmps, stored.directory, stored.record.clone()];
            owned.add(GroupLock::Workspace(stored.record), paths);
        }
        let (tenant, subject) = (directory_of(self.owner.tenant()), directory_of(self.owner.subject()));
        // The workspace for runs that use no files. If an earlier version created it, it has no record, so it is not in
        // `workspaces`.
        let own = self.home.workspace().join(&tenant).join(&subject);
        if !known.contains(&own) {
            owned.add(GroupLock::None, vec![own]);
        }
        // Some workspaces have no record that names the principal: the workspace of the tenant, and the directory that
        // the operator configured, now or in the past. The principal may have a `/tmp` in each of them.
        for tmps in sweep::list(&self.home.private_tmps().join(&tenant))? {
            if !known.contains(&tmps.path()) {
                owned.add(GroupLock::None, vec![tmps.path().join(&subject)]);
            }
        }
        owned.unreadable.extend(unreadable);
        Ok(())
    }

    fn add_sessions(
        &self,
        owned: &mut OwnedFiles,
        bound: &HashMap<SessionId, Vec<PathBuf>>,
    ) -> io::Result<BTreeSet<SessionId>> {
        let mut own = BTreeSet::new();
        for id in self.sessions.ids().map_err(io_error)? {
            match self.sessions.opened(id) {
                Ok(opened) if opened.belongs_to(&self.owner) => {
                    own.insert(id);
                    let keys = bound.get(&id).cloned().unwrap_or_default();
                    let paths = [self.files_of_run(id), keys, vec![self.sessions.file(id)]].concat();
                    owned.add(GroupLock::Session(id), paths);
                }
                // Skip a session without a first line: it contains no data.
                Ok(_) | Err(SessionError::Unreadable { problem: ReadError::Empty, .. }) => {}
                Err(SessionError::Io { problem }) if problem.kind() == io::ErrorKind::NotFound => {}
                Err(SessionError::Io { problem }) if problem.kind() != io::ErrorKind::PermissionDenied => {
                    return Err(problem);
                }
                Err(_) => owned.unreadable.push(self.sessions.file(id)),
            }
        }
        Ok(own)
    }

    fn add_responses(
        &self,
        owned: &mut OwnedFiles,
        bound: &HashMap<SessionId, Vec<PathBuf>>,
        sessions: &BTreeSet<SessionId>,
    ) -> io::Result<()> {
        let data = self.home.data();
        let responses = ResponseStore::of(&self.home).owned(&self.owner, |record| (record.id, record.run))?;
        let parsed = |id: &str| Uuid::parse_str(id).ok().map(|id| SessionId(id.as_u128()));
        for (id, run) in responses.records {
            let run = parsed(&run).filter(|run| !sessions.contains(run));
            let mut paths = run.map(|run| self.files_of_run(run)).unwrap_or_default();
            let names = run.into_iter().chain(id.strip_prefix("resp_").and_then(parsed));
            paths.extend(names.filter_map(|name| bound.get(&name)).flatten().cloned());
            paths.extend(["responses-unfinished", "approvals-pending"].map(|name| data.join(name).join(&id)));
            paths.push(self.in_tenant("responses", &format!("{id}.json")));
            owned.add(GroupLock::None, paths);
        }
        owned.unreadable.extend(responses.unreadable);
        Ok(())
    }

    fn add_conversations(&self, owned: &mut OwnedFiles) -> io::Result<()> {
        let conversations = ConversationStore::of(&self.home).owned_ids(&self.owner)?;
        for id in conversations.records {
            let file = |suffix: &str| self.in_tenant("conversations", &format!("{id}.{suffix}"));
            owned.add(GroupLock::None, vec![file("lock"), file("json")]);
        }
        owned.unreadable.extend(conversations.unreadable);
        Ok(())
    }

    /// Adds the outputs of calls outside of runs.
    fn add_outputs(&self, owned: &mut OwnedFiles) -> io::Result<()> {
        let outputs = FileOutputs::of(&self.home);
        for (session, record) in outputs.owned_sessions(&self.owner)? {
            let key = RunKey { tenant: self.owner.tenant().to_owned(), run: session };
            owned.add(GroupLock::None, vec![outputs.directory_of(&key), record]);
        }
        Ok(())
    }

    fn in_tenant(&self, directory: &str, file: &str) -> PathBuf {
        self.home.data().join(directory).join(directory_of(self.owner.tenant())).join(file)
    }

    fn files_of_run(&self, run: SessionId) -> Vec<PathBuf> {
        let key = RunKey { tenant: self.owner.tenant().to_owned(), run };
        let events = FileEvents::of(&self.home).files_of(&key);
        events.into_iter().chain([FileOutputs::of(&self.home).directory_of(&key)]).collect()
    }

    /// Returns the API keys of the principal, without their digests.
    fn keys(&self) -> io::Result<Value> {
        let keys = ApiKeyStore::of(&self.home).load()?;
        let own = keys.all().iter().filter(|key| key.principal().is_subject_of(&self.owner));
        Ok(own.map(|key| json!({"id": key.id, "name": key.name, "created_ms": key.created_ms})).collect())
    }

    fn key_ids(&self) -> io::Result<Vec<String>> {
        let keys = ApiKeyStore::of(&self.home).load()?;
        let own = keys.all().iter().filter(|key| key.principal().is_subject_of(&self.owner));
        Ok(own.map(|key| key.id.clone()).collect())
    }
}

fn io_error(error: SessionError) -> io::Error {
    match error {
        SessionError::Io { problem } => problem,
        error => io::Error::other(error),
    }
}

#[cfg(test)]
mod tests;
