//! The output store of one machine: files below a directory that only its owner can enter.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

pub use haft_core::settings::outputs::StoreLimits;
use haft_core::store::{Handle, OutputStore, Spool, StoreError, Stored};
use uuid::Uuid;

/// Outputs of one session, beside those of others that are kept but not given out.
#[derive(Debug, Clone)]
pub struct FileStore {
    root: PathBuf,
    session: String,
    limits: StoreLimits,
    /// The outputs of this session that are there.
    mine: Arc<Mutex<HashSet<PathBuf>>>,
}

/// What an output on its way is called until it is whole.
const PART_SUFFIX: &str = ".part";

/// How long an empty directory is left alone: whoever made it is about to put something there.
const DIRECTORY_KEPT: Duration = Duration::from_mins(1);

/// How often a directory is made anew that another run found empty and took away. One that was just made is left alone, so it
/// is not the same again.
const DIRECTORY_TRIES: usize = 5;

impl FileStore {
    /// Opens the store for a new session, and sweeps out what is too old. Fails when the directory cannot be made.
    pub fn open(root: &Path, limits: StoreLimits) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let session = Uuid::new_v4().to_string();
        let store = Self { root: root.to_path_buf(), session, limits, mine: Arc::default() };
        store.sweep(SystemTime::now(), 0);
        Ok(store)
    }

    /// Reads an output of any session: for the operator, not for tools.
    pub fn read_any(&self, handle: &Handle) -> Result<Vec<u8>, StoreError> {
        let path = self.root.join(Handle::directory(handle.session())).join(handle.file());
        let file = OpenOptions::new().read(true).custom_flags(NO_LINK).open(path).map_err(not_found)?;
        let mut bytes = Vec::new();
        file.take(self.limits.output_bytes_max).read_to_end(&mut bytes).map_err(unavailable)?;
        Ok(bytes)
    }

    /// Removes what is older than it may be, and then the oldest until the rest leaves `room` bytes. Outputs that another
    /// run is still writing are left to it.
    fn sweep(&self, now: SystemTime, room: u64) {
        let mut files = self.files();
        files.sort_by_key(|file| file.changed);
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            let too_old = now.duration_since(file.changed).is_ok_and(|age| age > self.limits.keep);
            let in_the_way = total.saturating_add(room) > self.limits.total_bytes_max && !file.is_part();
            if too_old || in_the_way {
                // What cannot be removed now is tried again at the next start.
                let _ = fs::remove_file(&file.path);
                self.mine().remove(&file.path);
                total = total.saturating_sub(file.bytes);
            }
        }
        let unused = |directory: &PathBuf| {
            let changed = Kept::look_at(directory.clone()).map(|kept| kept.changed);
            changed.is_some_and(|changed| now.duration_since(changed).is_ok_and(|age| age > DIRECTORY_KEPT))
        };
        for directory in entries(&self.root).into_iter().filter(unused) {
            // Succeeds only for those that are empty.
            let _ = fs::remove_dir(directory);
        }
    }

    /// A file that nobody else has, in the directory of the session.
    fn create(&self, name: &str) -> io::Result<(File, PathBuf)> {
        let directory = self.root.join(Handle::directory(&self.session));
        let part = directory.join(format!("{name}{PART_SUFFIX}"));
        let mut tries = 0..DIRECTORY_TRIES;
        loop {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
            let opened =
                made.and_then(|()| OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part));
            match opened {
                // A directory that goes while it is looked at is said to be there already and no directory.
                Err(error) if is_gone(&error) && tries.next().is_some() => {}
                opened => return opened.map(|file| (file, part)),
            }
        }
    }

    fn mine(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.mine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn files(&self) -> Vec<Kept> {
        entries(&self.root).iter().flat_map(|session| entries(session)).filter_map(Kept::look_at).collect()
    }
}

/// `O_NOFOLLOW`: nothing in the store is a link.
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

impl OutputStore for FileStore {
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError> {
        self.sweep(SystemTime::now(), self.limits.output_bytes_max);
        let name = Uuid::new_v4().to_string();
        let (file, part) = self.create(&name).map_err(unavailable)?;
        Ok(Box::new(FileSpool {
            file,
            whole: part.with_extension(""),
            part: Part(Some(part)),
            handle: Handle::new(&self.session, &name).ok_or(StoreError::NotFound)?,
            bytes_max: self.limits.output_bytes_max,
            bytes: 0,
            lines: 0,
            complete: true,
            mine: Arc::clone(&self.mine),
        }))
    }

    /// Another session's handle is answered as one that never was.
    fn read(&self, handle: &Handle) -> Result<Vec<u8>, StoreError> {
        if handle.session() == self.session { self.read_any(handle) } else { Err(StoreError::NotFound) }
    }

    fn is_empty(&self) -> bool {
        self.mine().is_empty()
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists)
}

struct FileSpool {
    file: File,
    part: Part,
    whole: PathBuf,
    handle: Handle,
    bytes_max: u64,
    bytes: u64,
    lines: u64,
    complete: bool,
    mine: Arc<Mutex<HashSet<PathBuf>>>,
}

impl Spool for FileSpool {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let room = usize::try_from(self.bytes_max - self.bytes).unwrap_or(usize::MAX);
        let taken = &bytes[..bytes.len().min(room)];
        self.complete &= taken.len() == bytes.len();
        self.file.write_all(taken).map_err(unavailable)?;
        self.bytes += taken.len() as u64;
        self.lines += taken.split(|byte| *byte == b'\n').skip(1).count() as u64;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Stored, StoreError> {
        if let Some(part) = self.part.0.take() {
            fs::rename(part, &self.whole).map_err(unavailable)?;
        }
        let Self { handle, bytes, lines, complete, whole, mine, .. } = *self;
        mine.lock().unwrap_or_else(PoisonError::into_inner).insert(whole);
        Ok(Stored { handle, bytes, lines, complete })
    }
}

/// A file that is not whole yet; dropped, it is gone.
struct Part(Option<PathBuf>);

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path);
        }
    }
}

struct Kept {
    path: PathBuf,
    bytes: u64,
    changed: SystemTime,
}

impl Kept {
    fn look_at(path: PathBuf) -> Option<Self> {
        let meta = fs::symlink_metadata(&path).ok()?;
        Some(Self { bytes: meta.len(), changed: meta.modified().ok()?, path })
    }

    fn is_part(&self) -> bool {
        self.path.to_string_lossy().ends_with(PART_SUFFIX)
    }
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory)
        .map(|found| found.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

#[allow(clippy::needless_pass_by_value, reason = "made for `map_err`")]
fn unavailable(error: io::Error) -> StoreError {
    StoreError::Unavailable { reason: error.to_string() }
}

fn not_found(error: io::Error) -> StoreError {
    if error.kind() == io::ErrorKind::NotFound { StoreError::NotFound } else { unavailable(error) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn limits(output: u64, total: u64) -> StoreLimits {
        StoreLimits { output_bytes_max: output, total_bytes_max: total, keep: Duration::from_mins(1) }
    }

    fn put(store: &FileStore, text: &str) -> Stored {
        let mut spool = store.begin().unwrap();
        spool.write(text.as_bytes()).unwrap();
        spool.finish().unwrap()
    }

    #[test]
    fn what_is_put_can_be_read_by_its_own_session_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(&dir.path().join("outputs"), StoreLimits::default()).unwrap();
        let stored = put(&store, "one\ntwo\n");
        assert_eq!((stored.bytes, stored.lines, stored.complete), (8, 2, true));
        assert_eq!(store.read(&stored.handle).unwrap(), b"one\ntwo\n");
        let other = FileStore::open(&dir.path().join("outputs"), StoreLimits::default()).unwrap();
        assert_eq!(other.read(&stored.handle), Err(StoreError::NotFound));
        assert_eq!(other.read_any(&stored.handle).unwrap(), b"one\ntwo\n");
        let mode = fs::metadata(dir.path().join("outputs")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn an_output_is_cut_at_its_limit_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), limits(5, 100)).unwrap();
        let stored = put(&store, "1234567");
        assert_eq!((stored.bytes, stored.complete), (5, false));
        assert_eq!(store.read(&stored.handle).unwrap(), b"12345");
    }

    #[test]
    fn the_oldest_make_room_and_what_is_too_old_goes() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), limits(10, 25)).unwrap();
        let handles: Vec<Handle> = (0..4).map(|_| put(&store, "0123456789").handle).collect();
        let left = handles.iter().filter(|handle| store.read(handle).is_ok()).count();
        assert!((1..=2).contains(&left), "{left}");
        store.sweep(SystemTime::now() + Duration::from_hours(1), 0);
        assert!(handles.iter().all(|handle| store.read(handle) == Err(StoreError::NotFound)));
    }

    #[test]
    fn a_session_knows_whether_it_has_anything() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), limits(10, 100)).unwrap();
        assert!(store.is_empty());
        let spool = store.begin().unwrap();
        assert!(store.is_empty(), "what is not whole cannot be asked about");
        spool.finish().unwrap();
        assert!(!store.is_empty());
        assert!(
            FileStore::open(dir.path(), limits(10, 100)).unwrap().is_empty(),
            "another session has its own"
        );
        store.sweep(SystemTime::now() + Duration::from_hours(1), 0);
        assert!(store.is_empty());
    }

    /// Ten runs at once over a store in which there is always too much and always an empty directory to take away.
    #[test]
    fn runs_at_the_same_time_do_not_take_what_others_are_writing() {
        let dir = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..10 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let store = FileStore::open(dir.path(), limits(10, 50)).unwrap();
                        let mut spool = store.begin().unwrap();
                        spool.write(b"01234").unwrap();
                        spool.write(b"56789").unwrap();
                        assert_eq!(spool.finish().unwrap().bytes, 10);
                    }
                });
            }
        });
        let last = FileStore::open(dir.path(), limits(10, 50)).unwrap();
        last.sweep(SystemTime::now(), 0);
        assert!(last.files().iter().map(|file| file.bytes).sum::<u64>() <= 50);
    }

    #[test]
    fn an_empty_directory_goes_once_nobody_can_be_about_to_use_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), limits(10, 100)).unwrap();
        drop(store.begin().unwrap());
        store.sweep(SystemTime::now(), 0);
        assert_eq!(entries(dir.path()).len(), 1, "it was just made");
        store.sweep(SystemTime::now() + Duration::from_hours(1), 0);
        assert!(entries(dir.path()).is_empty());
    }

    #[test]
    fn an_output_that_was_never_finished_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), StoreLimits::default()).unwrap();
        let mut spool = store.begin().unwrap();
        spool.write(b"half").unwrap();
        drop(spool);
        assert!(store.files().is_empty());
    }

    #[test]
    fn a_root_that_cannot_be_made_is_an_error_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        assert!(FileStore::open(&dir.path().join("file/outputs"), StoreLimits::default()).is_err());
    }

    #[test]
    fn a_link_in_the_store_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), StoreLimits::default()).unwrap();
        let stored = put(&store, "x");
        let path = dir.path().join(Handle::directory(&store.session)).join(stored.handle.file());
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(store.read(&stored.handle).is_err());
    }
}
