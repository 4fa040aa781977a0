//! The output store of one machine: files in a directory that only its owner can access. [`MemoryOutputs`] keeps
//! outputs in memory instead.

mod memory;
mod owned;
mod session;
mod sweep;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haft_core::event_store::RunKey;
use haft_core::home::Home;
use haft_core::output_store::{Handle, OutputStore, OutputStores, Spool, StoreEntry, StoreError};
use haft_core::position::SessionId;
use haft_core::principal::Principal;
pub use haft_core::settings::outputs::StoreLimits;
use haft_fs::private_file;
use uuid::Uuid;

use self::session::SessionOutputs;
use self::sweep::{Sweeper, Urgency};
use crate::tenant::directory_of;

pub use self::memory::MemoryOutputs;

/// The outputs of all runs, in files: `outputs/session-ID/NAME` for the local user, and
/// `outputs/tenant-TENANT/session-ID/NAME` for other tenants. Each tenant has its own limits.
#[derive(Debug, Clone)]
pub struct FileOutputs {
    root: PathBuf,
}

impl FileOutputs {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("outputs") }
    }

    /// Removes all outputs of a run. It is not an error if the run stored none.
    pub fn remove(&self, key: &RunKey) -> io::Result<()> {
        match fs::remove_dir_all(self.directory_of(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the directory of the outputs of a run.
    pub(crate) fn directory_of(&self, key: &RunKey) -> PathBuf {
        self.tenant_root(&key.tenant).join(Handle::directory(&key.run.to_string()))
    }

    /// Returns the directory of a tenant. Its prefix `tenant-` ensures that no tenant has the same directory as a
    /// session.
    fn tenant_root(&self, tenant: &str) -> PathBuf {
        if tenant == Principal::local().tenant() {
            self.root.clone()
        } else {
            self.root.join(format!("tenant-{}", directory_of(tenant)))
        }
    }
}

impl OutputStores for FileOutputs {
    fn open(&self, key: &RunKey, limits: &StoreLimits) -> Result<Arc<dyn OutputStore>, StoreError> {
        let store = FileStore::of_session(&self.tenant_root(&key.tenant), key.run, limits.clone());
        store.map(|store| Arc::new(store) as _).map_err(unavailable)
    }
}

/// The outputs of one session, in files. Other sessions have their files in the same directory, but this store never
/// reads them.
#[derive(Debug, Clone)]
pub struct FileStore {
    root: PathBuf,
    id: SessionId,
    limits: StoreLimits,
    session: Arc<SessionOutputs>,
    /// The number of bytes that this store has stored since it last requested a sweep.
    unswept_bytes: Arc<AtomicU64>,
}

/// The suffix of a file name until the output is complete.
const PART_SUFFIX: &str = ".part";

/// The number of times that `create` creates a directory again after a sweep of another run removed it. A sweep does
/// not remove a new directory, so the second attempt normally succeeds.
const DIRECTORY_TRIES: usize = 5;

/// The minimum time between two sweeps of one process.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);

/// A process that has stored one eighth of the total limit sweeps without waiting for the interval, because a fast tool
/// could otherwise fill the disk.
const UNSWEPT_PARTS: u64 = 8;

impl FileStore {
    /// Opens the store for a new session. Returns an error if the directory cannot be created.
    pub fn open(root: &Path, limits: StoreLimits) -> io::Result<Self> {
        Self::of_session(root, SessionId(Uuid::new_v4().as_u128()), limits)
    }

    /// Opens the store of a session, including the outputs that earlier processes stored for it. The cost does not
    /// depend on the number of stored outputs.
    pub fn of_session(root: &Path, session: SessionId, limits: StoreLimits) -> io::Result<Self> {
        private_file::create_dir_all(root)?;
        let directory = root.join(Handle::directory(&session.to_string()));
        let store = Self {
            root: root.to_path_buf(),
            id: session,
            limits,
            session: SessionOutputs::open(directory),
            unswept_bytes: Arc::default(),
        };
        store.sweep_when_due();
        Ok(store)
    }

    /// Reads an output of any session. This is for the operator and not for tools.
    pub fn read_any(&self, handle: &Handle, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        let path = self.path(handle);
        let mut file = OpenOptions::new().read(true).custom_flags(NO_LINK).open(path).map_err(not_found)?;
        file.seek(SeekFrom::Start(range.start)).map_err(unavailable)?;
        let count = range.end.saturating_sub(range.start).min(self.limits.output_bytes_max);
        let mut bytes = Vec::new();
        file.take(count).read_to_end(&mut bytes).map_err(unavailable)?;
        Ok(bytes)
    }

    fn path(&self, handle: &Handle) -> PathBuf {
        self.root.join(Handle::directory(handle.session())).join(handle.file())
    }

    /// Checks that the handle belongs to this session. The error is the same as for a handle that never existed, so
    /// that a caller cannot find out which handles exist.
    fn check_own(&self, handle: &Handle) -> Result<(), StoreError> {
        if handle.session() == self.id.to_string() { Ok(()) } else { Err(StoreError::NotFound) }
    }

    fn read_own(&self, handle: &Handle, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        self.check_own(handle)?;
        let outcome = self.read_any(handle, range);
        if outcome == Err(StoreError::NotFound) {
            // A sweep of another process has removed the output.
            self.session.remove(handle.file());
        }
        outcome
    }

    fn delete_own(&self, handle: &Handle) -> Result<(), StoreError> {
        self.check_own(handle)?;
        fs::remove_file(self.path(handle)).map_err(not_found)?;
        self.session.remove(handle.file());
        self.session.refresh();
        Ok(())
    }

    /// Starts a sweep in a separate thread if one is due. If the process ends first, the next process continues the
    /// sweep.
    fn sweep_when_due(&self) -> Option<JoinHandle<()>> {
        let urgency = self.due()?;
        let sweeper = Sweeper::new(&self.root, self.limits.clone());
        let sweep = move || sweeper.run(urgency);
        // If no thread can be started, there is no sweep now; a later call tries again.
        thread::Builder::new().name("output-sweep".into()).spawn(sweep).ok()
    }

    fn due(&self) -> Option<Urgency> {
        if self.limits == StoreLimits::untouched() {
            return None;
        }
        if self.unswept_bytes.load(Ordering::Relaxed) > self.limits.total_bytes_max / UNSWEPT_PARTS {
            self.unswept_bytes.store(0, Ordering::Relaxed);
            return Some(Urgency::Pressing);
        }
        crate::sweep::is_due(&self.root, SWEEP_INTERVAL).then_some(Urgency::Routine)
    }

    /// Creates a new file in the directory of the session.
    fn create(&self, name: &str) -> io::Result<(File, PathBuf)> {
        let directory = self.session.directory();
        let part = directory.join(format!("{name}{PART_SUFFIX}"));
        let mut tries = 0..DIRECTORY_TRIES;
        loop {
            let made = private_file::create_dir_all(directory);
            let opened =
                made.and_then(|()| OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part));
            match opened {
                // If the directory is removed at the same time, creating it may fail with an error that says that it
                // exists or is not a directory.
                Err(error) if is_gone(&error) && tries.next().is_some() => {}
                opened => return opened.map(|file| (file, part)),
            }
        }
    }
}

/// The value of `O_NOFOLLOW`: do not open a symbolic link. The store never creates links, so a link comes from another
/// program.
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

impl OutputStore for FileStore {
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError> {
        self.sweep_when_due();
        let name = Uuid::new_v4().to_string();
        let (file, part) = self.create(&name).map_err(unavailable)?;
        Ok(Box::new(FileSpool {
            file,
            whole: part.with_extension(""),
            part: UnfinishedFile(Some(part)),
            handle: Handle::new(&self.id.to_string(), &name).ok_or(StoreError::NotFound)?,
            bytes_max: self.limits.output_bytes_max,
            bytes_before: 0,
            bytes: 0,
            lines: 0,
            last: b'\n',
            complete: true,
            session: Arc::clone(&self.session),
            unswept_bytes: Arc::clone(&self.unswept_bytes),
        }))
    }

    fn reopen(&self, entry: &StoreEntry) -> Result<Box<dyn Spool>, StoreError> {
        self.check_own(&entry.handle)?;
        let whole = self.path(&entry.handle);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(NO_LINK)
            .open(&whole)
            .map_err(not_found)?;
        if file.metadata().map_err(unavailable)?.len() < entry.bytes {
            return Err(StoreError::NotFound);
        }
        file.set_len(entry.bytes).map_err(unavailable)?;
        let last = last_byte(&file, entry.bytes).map_err(unavailable)?;
        file.seek(SeekFrom::End(0)).map_err(unavailable)?;
        Ok(Box::new(FileSpool {
            file,
            whole,
            part: UnfinishedFile(None),
            handle: entry.handle.clone(),
            bytes_max: self.limits.output_bytes_max.max(entry.bytes),
            bytes_before: entry.bytes,
            bytes: entry.bytes,
            // The stored line count includes a last line without a line end, which the following text may continue.
            lines: entry.lines - u64::from(last != b'\n'),
            last,
            complete: entry.complete,
            session: Arc::clone(&self.session),
            unswept_bytes: Arc::clone(&self.unswept_bytes),
        }))
    }

    fn read_range<'a>(
        &'a self,
        handle: &'a Handle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Vec<u8>, StoreError>> {
        Box::pin(async move { self.read_own(handle, range) })
    }

    fn delete<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.delete_own(handle) })
    }

    fn is_empty(&self) -> bool {
        self.session.is_empty()
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

struct FileSpool {
    file: File,
    part: UnfinishedFile,
    whole: PathBuf,
    handle: Handle,
    bytes_max: u64,
    /// The number of bytes that the output had before this spool was opened.
    bytes_before: u64,
    bytes: u64,
    /// The number of line ends so far.
    lines: u64,
    /// The last byte so far.
    last: u8,
    complete: bool,
    session: Arc<SessionOutputs>,
    unswept_bytes: Arc<AtomicU64>,
}

impl Spool for FileSpool {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let room = usize::try_from(self.bytes_max - self.bytes).unwrap_or(usize::MAX);
        let taken = &bytes[..bytes.len().min(room)];
        self.complete &= taken.len() == bytes.len();
        self.file.write_all(taken).map_err(unavailable)?;
        self.bytes += taken.len() as u64;
        self.lines += taken.split(|byte| *byte == b'\n').skip(1).count() as u64;
        self.last = taken.last().copied().unwrap_or(self.last);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<StoreEntry, StoreError> {
        if let Some(part) = &self.part.0 {
            fs::rename(part, &self.whole).map_err(unavailable)?;
        }
        self.part.0 = None;
        self.session.add(self.handle.file());
        self.unswept_bytes.fetch_add(self.bytes - self.bytes_before, Ordering::Relaxed);
        let Self { handle, bytes, lines, complete, last, .. } = *self;
        // Count a last line without a line end too, as readers of the output do.
        let lines = lines + u64::from(bytes > 0 && last != b'\n');
        Ok(StoreEntry { handle, bytes, lines, complete })
    }
}

/// Returns the last byte of a file that has `bytes` bytes. Returns a line end for an empty file, because an empty file
/// has no incomplete line.
fn last_byte(file: &File, bytes: u64) -> io::Result<u8> {
    let mut last = [b'\n'];
    if let Some(at) = bytes.checked_sub(1) {
        file.read_exact_at(&mut last, at)?;
    }
    Ok(last[0])
}

/// The file of an output that is not complete yet. Dropping this value removes the file.
struct UnfinishedFile(Option<PathBuf>);

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
fn unavailable(error: io::Error) -> StoreError {
    StoreError::Unavailable { reason: error.to_string() }
}

fn not_found(error: io::Error) -> StoreError {
    if error.kind() == io::ErrorKind::NotFound { StoreError::NotFound } else { unavailable(error) }
}

#[cfg(test)]
mod store_tests;
#[cfg(test)]
mod tests;
