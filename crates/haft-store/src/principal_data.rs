//! All data of one principal: what an export contains, and what a deletion removes.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haft_core::event_store::RunKey;
use haft_core::home::Home;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::accounting::FileAccounting;
use crate::accounting::line_file::{self, LinePaths};
use crate::api_keys::ApiKeyStore;
use crate::backup::{self, ArchiveSummary, ExistingFile};
use crate::conversations::ConversationStore;
use crate::events::FileEvents;
use crate::grants::FileGrants;
use crate::outputs::FileOutputs;
use crate::responses::ResponseStore;
use crate::sessions::{SessionLimits, SessionStore};
use crate::sweep;
use crate::tenant::directory_of;
use crate::workspaces::{WorkspaceStore, private_tmp};

/// The data of one principal in haft's home directory.
#[derive(Debug)]
pub struct PrincipalData {
    home: Home,
    owner: Principal,
    sessions: SessionStore,
}

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedData {
    /// The number of files and directories that were removed.
    pub removed: u64,
    /// The name that replaces the principal in usage records and logs.
    pub pseudonym: String,
}

/// The reason why nothing was deleted.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    #[error("a run of this principal is in progress; try again when it has ended")]
    Busy,
    #[error("haft's data cannot be changed: {0}")]
    Io(#[from] io::Error),
}

/// The stored objects of a principal.
struct OwnedObjects {
    responses: Vec<String>,
    conversations: Vec<String>,
    sessions: Vec<SessionId>,
    /// All runs: those of the sessions, and those of responses whose session is gone.
    runs: BTreeSet<SessionId>,
    idempotency_keys: Vec<PathBuf>,
    workspaces: Vec<PathBuf>,
}

impl PrincipalData {
    pub fn of(home: &Home, owner: Principal) -> Self {
        let limits = SessionLimits { bytes_max: u64::MAX, keep: Duration::MAX };
        let sessions = SessionStore::of(home, limits).of_tenant(owner.tenant());
        Self { home: home.clone(), owner, sessions }
    }

    /// Writes all data to an archive. The usage records and the log lines of the principal are in files of their own.
    pub fn export(&self, path: &Path, existing: ExistingFile) -> io::Result<ArchiveSummary> {
        let objects = self.objects()?;
        backup::write_archive(&self.home, path, existing, |archive| {
            for file in self.files(&objects) {
                let name = file.strip_prefix(self.home.root()).unwrap_or(&file);
                if file.is_dir() {
                    archive.add_tree(name, &file)?;
                } else if file.is_file() {
                    archive.add_file(name, &file)?;
                }
            }
            for (name, paths) in self.line_files() {
                let lines = self.own_lines(&paths)?;
                if !lines.is_empty() {
                    archive.add_bytes(&Path::new("lines").join(name), lines.as_bytes(), 0)?;
                }
            }
            archive.add_bytes(Path::new("keys.json"), format!("{:#}\n", self.keys()?).as_bytes(), 0)
        })
    }

    /// Deletes all data, revokes the keys of the principal, and replaces its name in usage records and logs, which keep
    /// their amounts.
    pub fn delete(&self) -> Result<DeletedData, DeleteError> {
        let objects = self.objects()?;
        if objects.sessions.iter().any(|id| self.sessions.is_busy(*id)) {
            return Err(DeleteError::Busy);
        }
        let store = ApiKeyStore::of(&self.home);
        let own = store.load()?;
        let own = own.all().iter().filter(|key| key.tenant == self.owner.tenant());
        let own: Vec<String> =
            own.filter(|key| key.subject == self.owner.subject()).map(|key| key.id.clone()).collect();
        store.revoke(&own)?;
        let files: Vec<PathBuf> = self.files(&objects).into_iter().filter(|file| file.exists()).collect();
        let workspaces = WorkspaceStore::of(&self.home);
        for directory in WorkspaceStore::of(&self.home).of_principal(&self.owner) {
            if !workspaces.remove(&directory)? {
                return Err(DeleteError::Busy);
            }
        }
        for file in &files {
            remove(file)?;
        }
        // Cached outputs do not name their principal, and haft can create them again.
        remove(&self.home.data().join("cache"))?;
        let pseudonym =
            format!("{}/deleted-{}", self.owner.tenant(), &Uuid::new_v4().simple().to_string()[..12]);
        for (_, paths) in self.line_files() {
            self.rename_in(&paths, &pseudonym)?;
        }
        Ok(DeletedData { removed: files.len() as u64, pseudonym })
    }

    fn objects(&self) -> io::Result<OwnedObjects> {
        let responses = ResponseStore::of(&self.home).list(&self.owner)?;
        let ids = self.sessions.ids().unwrap_or_default().into_iter();
        let is_own =
            |id: &SessionId| self.sessions.opened(*id).is_ok_and(|opened| opened.belongs_to(&self.owner));
        let sessions: Vec<SessionId> = ids.filter(is_own).collect();
        let parsed = |id: &str| Uuid::parse_str(id).ok().map(|id| SessionId(id.as_u128()));
        let of_responses = responses.iter().filter_map(|response| parsed(&response.run));
        let runs: BTreeSet<SessionId> = sessions.iter().copied().chain(of_responses).collect();
        let responses: Vec<String> = responses.into_iter().map(|response| response.id).collect();
        let bound: BTreeSet<SessionId> = responses
            .iter()
            .filter_map(|id| parsed(id.strip_prefix("resp_")?))
            .chain(runs.iter().copied())
            .collect();
        Ok(OwnedObjects {
            conversations: ConversationStore::of(&self.home).ids(&self.owner)?,
            idempotency_keys: self.idempotency_keys(&bound),
            workspaces: self.workspaces(),
            responses,
            sessions,
            runs,
        })
    }

    /// Returns the idempotency keys that are bound to these responses or runs. Their names are digests.
    fn idempotency_keys(&self, bound: &BTreeSet<SessionId>) -> Vec<PathBuf> {
        let directory = self.home.data().join("idempotency").join(directory_of(self.owner.tenant()));
        let is_own = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            Uuid::parse_str(text.trim()).is_ok_and(|id| bound.contains(&SessionId(id.as_u128())))
        };
        sweep::entries(&directory).map(|entry| entry.path()).filter(is_own).collect()
    }

    /// Returns the workspaces, and the directories that their commands see as `/tmp`.
    fn workspaces(&self) -> Vec<PathBuf> {
        let mut all = WorkspaceStore::of(&self.home).of_principal(&self.owner);
        let tenant = self.home.workspace().join(directory_of(self.owner.tenant()));
        all.push(tenant.join(directory_of(self.owner.subject())));
        let shared = tenant.join("_shared");
        let tmps =
            all.iter().chain([&shared]).map(|directory| private_tmp(&self.home, &self.owner, directory));
        let tmps: Vec<PathBuf> = tmps.collect();
        [all, tmps].concat()
    }

    fn files(&self, objects: &OwnedObjects) -> Vec<PathBuf> {
        let data = self.home.data();
        let tenant = directory_of(self.owner.tenant());
        let in_tenant =
            |name: &str, id: &str, suffix: &str| data.join(name).join(&tenant).join(format!("{id}{suffix}"));
        let mut files: Vec<PathBuf> = Vec::new();
        for id in &objects.responses {
            let waiting = ["responses-unfinished", "approvals-pending"].map(|name| data.join(name).join(id));
            files.push(in_tenant("responses", id, ".json"));
            files.extend(waiting);
        }
        for id in &objects.conversations {
            files.extend([".json", ".lock"].map(|suffix| in_tenant("conversations", id, suffix)));
        }
        files.extend(objects.sessions.iter().map(|id| self.sessions.file(*id)));
        let (events, outputs) = (FileEvents::of(&self.home), FileOutputs::of(&self.home));
        for run in &objects.runs {
            let key = RunKey { tenant: self.owner.tenant().to_owned(), run: *run };
            files.extend([events.file_of(&key), outputs.directory_of(&key)]);
        }
        let grants = FileGrants::of(&self.home).file_of(&self.owner);
        files.extend([grants.with_extension("json"), grants.with_extension("lock")]);
        files.extend(objects.idempotency_keys.iter().cloned());
        files.extend(objects.workspaces.iter().cloned());
        files
    }

    /// Returns the files in which lines name the principal.
    fn line_files(&self) -> Vec<(&'static str, LinePaths)> {
        let data = self.home.data();
        let rotated = |name: &str| LinePaths {
            current: data.join(format!("{name}.jsonl")),
            old: data.join(format!("{name}.1.jsonl")),
        };
        let mut all = vec![("access.jsonl", rotated("access")), ("audit.jsonl", rotated("audit"))];
        let accounting = FileAccounting::of(&self.home).paths_of(&self.owner);
        all.extend(accounting.into_iter().map(|paths| ("accounting.jsonl", paths)));
        all
    }

    /// Returns the member of a line that names the principal. In a text, its quotes would be escaped.
    fn member(&self) -> String {
        format!("\"principal\":{}", json!(self.owner.to_string()))
    }

    fn own_lines(&self, paths: &LinePaths) -> io::Result<String> {
        let mut own = String::new();
        for path in [&paths.old, &paths.current] {
            let text = match fs::read(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                bytes => String::from_utf8_lossy(&bytes?).into_owned(),
            };
            for line in text.lines().filter(|line| line.contains(&self.member())) {
                own.push_str(line);
                own.push('\n');
            }
        }
        Ok(own)
    }

    fn rename_in(&self, paths: &LinePaths, pseudonym: &str) -> io::Result<()> {
        let (before, after) = (self.member(), format!("\"principal\":{}", json!(pseudonym)));
        // The audit log describes a key by its owner and scopes.
        let owner = json!(format!("{} ", self.owner)).to_string();
        let detail = format!("\"detail\":{}", owner.trim_end_matches('"'));
        let renamed = format!("\"detail\":\"{pseudonym} ");
        line_file::rewrite(paths, |text| text.replace(&before, &after).replace(&detail, &renamed))
    }

    /// Returns the keys, without their digests.
    fn keys(&self) -> io::Result<Value> {
        let keys = ApiKeyStore::of(&self.home).load()?;
        let own = keys.all().iter().filter(|key| key.tenant == self.owner.tenant());
        let own = own.filter(|key| key.subject == self.owner.subject());
        Ok(own.map(|key| json!({"id": key.id, "name": key.name, "created_ms": key.created_ms})).collect())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
