//! Sessions: the stored journals of runs, from which a run can be resumed.
//!
//! A session is one file of JSON lines in haft's data directory. [`SessionJournal`] writes it, [`SessionHistory`] is
//! its content after reading, and [`SessionStore`] is the directory. Start reading at [`mod@line`], the format of the
//! file.

mod claim;
mod header;
mod history;
mod journal;
pub mod line;
mod overview;
mod quick_line;
mod read;
mod retention;
mod sync_batch;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use haft_core::event_store::RunKey;
use haft_core::home::Home;
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_fs::{file_lock, private_file};

pub use haft_core::settings::sessions::SessionLimits;
pub use history::{RestoredRun, SessionHistory, SessionStatus};
pub use journal::SessionJournal;
pub use overview::SessionOverview;
pub use read::{JournalLines, ReadError};
pub use sync_batch::SyncBatch;

use crate::journals::{
    ClaimedJournal, HolderBefore, JournalClaim, JournalStore, ListedRun, RunListPage, Takeover,
};
use crate::lock_file::LockFile;
use crate::tenant::directory_of;
use claim::{ClaimedFile, FileClaim};
use header::SessionHeader;
use line::{SessionJournalLine, SessionStart};

const SUFFIX: &str = "jsonl";

/// The minimum number of digits of an id prefix that selects a session.
pub const PREFIX_CHARS_MIN: usize = 4;

/// The maximum wait for the lock of a session.
const LOCK_WAIT_MAX: Duration = Duration::from_millis(25);

/// The directory of all sessions.
#[derive(Debug, Clone)]
pub struct SessionStore {
    root: PathBuf,
    limits: SessionLimits,
    /// The batch that syncs the journals of ended runs together; `None` if each journal is synced at once.
    batch: Option<SyncBatch>,
}

/// The reason why a session cannot be found, read or claimed.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No stored session has an id with this prefix.
    #[error("there is no session `{id}`")]
    NotFound { id: String },
    /// The prefix is shorter than [`PREFIX_CHARS_MIN`].
    #[error("`{id}` is too short for a session id; give at least the first {PREFIX_CHARS_MIN} digits")]
    TooShort { id: String },
    /// Several ids have this prefix.
    #[error("the ids of {found} sessions begin with `{id}`; give more digits of the id")]
    Ambiguous { id: String, found: usize },
    /// Another process works on the session.
    #[error("another process uses the session {id}; wait for that process, or end it")]
    Busy { id: SessionId },
    /// A new session has the id of a stored session.
    #[error("a session with the id {id} already exists")]
    Exists { id: SessionId },
    #[error("haft cannot read the session {id}: {problem}")]
    Unreadable { id: SessionId, problem: ReadError },
    #[error("haft cannot use `data/sessions` in its home directory: {problem}")]
    Io { problem: io::Error },
}

impl From<io::Error> for SessionError {
    fn from(problem: io::Error) -> Self {
        Self::Io { problem }
    }
}

impl SessionStore {
    pub fn of(home: &Home, limits: SessionLimits) -> Self {
        Self { root: home.data().join("sessions"), limits, batch: None }
    }

    /// Syncs the journals of ended runs together. If the machine crashes, the final records of runs that ended in the
    /// last second may be lost, but never the record of a mutating call.
    #[must_use]
    pub fn batching(self, batch: SyncBatch) -> Self {
        Self { batch: Some(batch), ..self }
    }

    /// Returns the sessions of a tenant.
    #[must_use]
    pub fn of_tenant(&self, tenant: &str) -> Self {
        if Principal::local().tenant() == tenant {
            return self.clone();
        }
        Self { root: self.tenants_root().join(directory_of(tenant)), ..self.clone() }
    }

    /// Returns the sessions of the tenant whose directory has this name. The local user has no such directory.
    pub(crate) fn in_directory(&self, name: &str) -> Self {
        Self { root: self.tenants_root().join(name), ..self.clone() }
    }

    /// Returns true if a process works on the session now, or if its run is suspended.
    pub(crate) fn is_unfinished(&self, id: SessionId) -> bool {
        self.is_busy(id) || self.overview(id).is_ok_and(|overview| overview.standing == SessionStatus::Open)
    }

    /// Returns the directory of tenants other than the local user. It is outside of the local user's directory, so that
    /// listing that directory need not skip it.
    fn tenants_root(&self) -> PathBuf {
        self.root.with_file_name("tenant-sessions")
    }

    /// Creates a session. The cost does not depend on the number of kept sessions.
    pub fn open(&self, id: SessionId, opened: SessionStart) -> Result<SessionJournal, SessionError> {
        let path = self.path(id);
        let create = || OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path);
        let file = private_file::creating_parent_dir(&path, create).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => SessionError::Exists { id },
            _ => SessionError::Io { problem: error },
        })?;
        lock(&file, id)?;
        let claim = FileClaim::first(self.claimed(file, id), self.limits.bytes_max);
        let first = claim.append(&[SessionJournalLine::Session(Box::new(opened))]);
        first.map_err(|error| SessionError::Io { problem: io::Error::other(error) })?;
        // Sweep last: listing the directory would delay the creation of the file.
        self.sweep_when_due();
        Ok(SessionJournal::new(id, Arc::new(claim)))
    }

    /// Claims a stored session, so that this process can continue it.
    pub fn resume(&self, id: SessionId, takeover: Takeover) -> Result<ClaimedJournal, SessionError> {
        let file = OpenOptions::new().read(true).append(true).open(self.path(id));
        let file = file.map_err(|error| not_found(id, error))?;
        let before = match (self.lock(&file, id), takeover) {
            (Ok(()), _) => HolderBefore::Gone,
            (Err(_), Takeover::Allowed) => HolderBefore::Fenced,
            (Err(busy), Takeover::Never) => return Err(busy),
        };
        check_linked(&file, id)?;
        let (past, claim) = FileClaim::of(id, self.claimed(file, id), before, self.limits.bytes_max)?;
        let claim = match before {
            HolderBefore::Gone => claim,
            // Replace the lock only after the claim: of two takeovers at once, only the valid one may replace it.
            HolderBefore::Fenced => claim.with_lock(LockFile::replace(&self.takeover_path(id))?),
        };
        Ok(ClaimedJournal { past, journal: SessionJournal::new(id, Arc::new(claim)), before })
    }

    fn claimed(&self, file: File, id: SessionId) -> ClaimedFile {
        ClaimedFile { file, path: self.path(id), batch: self.batch.clone() }
    }

    /// Reads the first line of a session, which describes its start.
    pub fn opened(&self, id: SessionId) -> Result<SessionStart, SessionError> {
        let unreadable = |problem| SessionError::Unreadable { id, problem };
        let file = File::open(self.path(id))?.take(self.limits.bytes_max);
        match JournalLines::of(file).next().unwrap_or(Err(ReadError::Empty)).map_err(unreadable)? {
            SessionJournalLine::Session(opened) => Ok(*opened),
            _ => Err(unreadable(ReadError::NoHeader)),
        }
    }

    /// Reads a session, which may be in use by a process that writes it.
    pub fn past(&self, id: SessionId) -> Result<SessionHistory, SessionError> {
        self.past_of(id, &File::open(self.path(id))?)
    }

    /// Reads the fields of a session that a list shows. Another process may be writing the session.
    pub fn overview(&self, id: SessionId) -> Result<SessionOverview, SessionError> {
        let lines = JournalLines::of(File::open(self.path(id))?.take(self.limits.bytes_max));
        SessionOverview::of(lines).map_err(|problem| SessionError::Unreadable { id, problem })
    }

    fn header(&self, id: SessionId) -> Result<SessionHeader, SessionError> {
        let mut lines = JournalLines::of(File::open(self.path(id))?.take(self.limits.bytes_max));
        SessionHeader::of(&mut lines).map_err(|problem| SessionError::Unreadable { id, problem })
    }

    fn past_of(&self, id: SessionId, mut file: &File) -> Result<SessionHistory, SessionError> {
        let unreadable = |problem| SessionError::Unreadable { id, problem };
        file.seek(SeekFrom::Start(0))?;
        SessionHistory::of(JournalLines::of(file.take(self.limits.bytes_max))).map_err(unreadable)
    }

    /// Returns the ids of all sessions, the newest first.
    pub fn ids(&self) -> Result<Vec<SessionId>, SessionError> {
        let mut found: Vec<(SystemTime, SessionId)> = self.entries(|entry, id| {
            let changed = entry.metadata().and_then(|meta| meta.modified()).ok()?;
            Some((changed, id))
        })?;
        found.sort_unstable_by(|one, other| other.cmp(one));
        Ok(found.into_iter().map(|(_, id)| id).collect())
    }

    /// Returns the newest root sessions, at most `limit`. Reads headers until it has found that many. Includes a
    /// session that cannot be read, so that a list reports it.
    pub fn newest_roots(&self, limit: usize) -> Result<Vec<SessionId>, SessionError> {
        let is_root = |id: &SessionId| self.header(*id).map_or(true, |header| header.origin.is_none());
        Ok(self.ids()?.into_iter().filter(is_root).take(limit).collect())
    }

    /// Finds the only session whose id begins with this text.
    pub fn find(&self, beginning: &str) -> Result<SessionId, SessionError> {
        if beginning.len() < PREFIX_CHARS_MIN {
            return Err(SessionError::TooShort { id: beginning.to_owned() });
        }
        let ids = self.unsorted_ids()?;
        let written = beginning.to_ascii_lowercase();
        let fits = |id: &&SessionId| id.to_string().starts_with(&written);
        match ids.iter().filter(fits).collect::<Vec<_>>().as_slice() {
            [id] => Ok(**id),
            [] => Err(SessionError::NotFound { id: beginning.to_owned() }),
            several => Err(SessionError::Ambiguous { id: beginning.to_owned(), found: several.len() }),
        }
    }

    /// Removes a session that no process works on.
    pub fn remove(&self, id: SessionId) -> Result<(), SessionError> {
        let _held = self.hold(id)?;
        Ok(fs::remove_file(self.path(id))?)
    }

    /// Returns the newest root session. Returns it even if it cannot be read, because a caller that asks for the newest
    /// session must not get an older one. Skips a session whose process was killed before it wrote the first line.
    pub fn newest(&self) -> Result<Option<SessionId>, SessionError> {
        let is_first = |id: &SessionId| match self.header(*id) {
            Ok(header) => header.origin.is_none(),
            Err(SessionError::Unreadable { problem: ReadError::Empty, .. }) => false,
            Err(_) => true,
        };
        Ok(self.ids()?.into_iter().find(is_first))
    }

    /// Returns the sessions of all sub-agents of this session, at any depth.
    pub fn below(&self, id: SessionId) -> Result<Vec<SessionId>, SessionError> {
        let origin = Some(id.to_string());
        let works_for = |below: &SessionId| self.header(*below).is_ok_and(|header| header.origin == origin);
        Ok(self.ids()?.into_iter().filter(works_for).collect())
    }

    pub fn has(&self, id: SessionId) -> bool {
        self.path(id).exists()
    }

    /// Returns true if a process works on the session now.
    pub fn is_busy(&self, id: SessionId) -> bool {
        let locked = |file: File| file.try_lock().is_err();
        File::open(self.path(id)).is_ok_and(locked) || LockFile::is_held(&self.takeover_path(id))
    }

    /// Locks a session until the file is closed, so that no process can continue it.
    pub(crate) fn hold(&self, id: SessionId) -> Result<File, SessionError> {
        let file = File::open(self.path(id)).map_err(|error| not_found(id, error))?;
        self.lock(&file, id)?;
        Ok(file)
    }

    /// Locks a session that no process holds.
    fn lock(&self, file: &File, id: SessionId) -> Result<(), SessionError> {
        lock(file, id)?;
        if LockFile::is_held(&self.takeover_path(id)) {
            // Release the lock, which was taken only for this check, so that the next claim can get it.
            let _ = file.unlock();
            return Err(SessionError::Busy { id });
        }
        Ok(())
    }

    /// Lists the sessions in directory order, without opening the files.
    fn unsorted_ids(&self) -> Result<Vec<SessionId>, SessionError> {
        self.entries(|_, id| Some(id))
    }

    /// Lists the entries of the directory that are session files.
    fn entries<T>(
        &self,
        read: impl Fn(&fs::DirEntry, SessionId) -> Option<T>,
    ) -> Result<Vec<T>, SessionError> {
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let entry = |entry: fs::DirEntry| read(&entry, id_of(Path::new(&entry.file_name()))?);
        Ok(entries.flatten().filter_map(entry).collect())
    }

    /// Returns the file of a session.
    pub(crate) fn file(&self, id: SessionId) -> PathBuf {
        self.path(id)
    }

    fn path(&self, id: SessionId) -> PathBuf {
        self.root.join(format!("{id}.{SUFFIX}"))
    }

    /// Returns the path of the takeover lock. A fenced holder keeps the lock on the journal until it finds out that it
    /// is fenced. The new holder locks this file, so that other processes see a busy session even if the fenced holder
    /// ends first.
    fn takeover_path(&self, id: SessionId) -> PathBuf {
        self.root.join(format!("{id}.takeover"))
    }
}

impl SessionStore {
    fn list_now(&self, principal: &Principal, page: RunListPage) -> Result<Vec<ListedRun>, SessionError> {
        let opened = |id: SessionId| self.opened(id).ok().map(|opened| (id, opened));
        let all = self.ids()?.into_iter().filter_map(opened);
        let mine = all.filter(|(_, opened)| opened.origin.is_none() && opened.belongs_to(principal));
        let listed = mine.skip(page.skip).take(page.count);
        Ok(listed.map(|(id, opened)| ListedRun::of(id, opened, self.is_busy(id))).collect())
    }

    fn read_now(
        &self,
        id: SessionId,
        from: usize,
        count: usize,
    ) -> Result<Vec<SessionJournalLine>, SessionError> {
        let file = File::open(self.path(id)).map_err(|error| not_found(id, error))?;
        let lines = JournalLines::of(file).skip(from).take(count).collect::<Result<_, _>>();
        lines.map_err(|problem| SessionError::Unreadable { id, problem })
    }
}

impl JournalStore for SessionStore {
    fn create<'a>(
        &'a self,
        key: &'a RunKey,
        opened: SessionStart,
    ) -> BoxFuture<'a, Result<SessionJournal, SessionError>> {
        Box::pin(async move { self.of_tenant(&key.tenant).open(key.run, opened) })
    }

    fn claim<'a>(
        &'a self,
        key: &'a RunKey,
        takeover: Takeover,
    ) -> BoxFuture<'a, Result<ClaimedJournal, SessionError>> {
        Box::pin(async move { self.of_tenant(&key.tenant).resume(key.run, takeover) })
    }

    fn read<'a>(
        &'a self,
        key: &'a RunKey,
        from: usize,
        count: usize,
    ) -> BoxFuture<'a, Result<Vec<SessionJournalLine>, SessionError>> {
        Box::pin(async move { self.of_tenant(&key.tenant).read_now(key.run, from, count) })
    }

    fn list<'a>(
        &'a self,
        principal: &'a Principal,
        page: RunListPage,
    ) -> BoxFuture<'a, Result<Vec<ListedRun>, SessionError>> {
        let (store, principal) = (self.of_tenant(principal.tenant()), principal.clone());
        Box::pin(async move {
            // Use a blocking thread: the list reads the beginning of each journal, which would block other requests of
            // a server.
            let listed = tokio::task::spawn_blocking(move || store.list_now(&principal, page)).await;
            listed.unwrap_or_else(|error| Err(io::Error::other(error).into()))
        })
    }

    fn remove<'a>(&'a self, key: &'a RunKey) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move { self.of_tenant(&key.tenant).remove(key.run) })
    }
}

fn not_found(id: SessionId, error: io::Error) -> SessionError {
    match error.kind() {
        io::ErrorKind::NotFound => SessionError::NotFound { id: id.to_string() },
        _ => SessionError::Io { problem: error },
    }
}

fn id_of(path: &Path) -> Option<SessionId> {
    let name = path.file_stem()?.to_str()?;
    let is_session = path.extension().is_some_and(|suffix| suffix == SUFFIX);
    uuid::Uuid::parse_str(name).ok().filter(|_| is_session).map(|id| SessionId(id.as_u128()))
}

/// Refuses a file that was removed while this process waited for its lock, for example because the principal's data was
/// deleted. Otherwise the run would continue, and no later deletion would find its journal.
fn check_linked(file: &File, id: SessionId) -> Result<(), SessionError> {
    if file.metadata()?.nlink() > 0 { Ok(()) } else { Err(SessionError::NotFound { id: id.to_string() }) }
}

/// Locks the file until it is closed; the kernel releases the lock of a killed process. [`SessionStore::is_busy`] holds
/// the lock for a moment, so this function waits a short time.
fn lock(file: &File, id: SessionId) -> Result<(), SessionError> {
    let is_locked = file_lock::lock_within(file, LOCK_WAIT_MAX).unwrap_or(false);
    if is_locked { Ok(()) } else { Err(SessionError::Busy { id }) }
}

/// Removes a last line that a crash left incomplete, and returns the size of the complete lines. haft took no action
/// for an incomplete line, so it can be removed.
fn truncate_partial_line(file: &mut File) -> io::Result<u64> {
    const STEP: u64 = 64 << 10;
    let bytes = file.seek(SeekFrom::End(0))?;
    let mut end = bytes;
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        let mut piece = Vec::new();
        (&mut *file).take(end - begin).read_to_end(&mut piece)?;
        if let Some(newline) = piece.iter().rposition(|byte| *byte == b'\n') {
            end = begin + newline as u64 + 1;
            break;
        }
        end = begin;
    }
    if end < bytes {
        file.set_len(end)?;
        file.flush()?;
    }
    Ok(end)
}

#[cfg(test)]
mod tests;
