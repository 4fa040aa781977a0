//! A directory entry, existing or not, and the atomic replacement of its file.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fdatasync, fstat, openat, readlinkat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::kind::require_regular;
use super::path::PathFault;
use super::refusal::WriteError;
use super::text_file::READ_FILE_BYTES_MAX;

/// The maximum size of a file that `write` and `edit` create, in bytes. This limit equals the read limit, so that
/// `read` can read every file that `write` created.
pub const WRITE_FILE_BYTES_MAX: u64 = READ_FILE_BYTES_MAX;

/// The maximum number of symbolic links to follow in one path, as in Linux.
const LINKS_MAX: usize = 40;
const TEMP_NAME_RANDOM_BYTES: usize = 16;
const PERMISSION_BITS: u32 = 0o777;

/// A file name in an open directory. Holding the directory open prevents races: if another process renames it, or
/// replaces it by a link, between two steps, the write still goes to the same directory.
#[derive(Debug)]
pub(super) struct OpenDirectoryEntry {
    directory: OwnedFd,
    name: OsString,
    existing: Option<Stat>,
}

impl OpenDirectoryEntry {
    /// Opens the directory of a path that does not end in a link; see [`follow_links`].
    pub(super) fn open(path: &Path) -> Result<Self, WriteError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(WriteError::Path(PathFault::NamesDirectory));
        };
        // `O_PATH` needs no permission to read the directory.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, parent, flags, Mode::empty())?;
        let existing = existing(&directory, name)?;
        Ok(Self { directory, name: name.to_owned(), existing })
    }

    /// Replaces or creates the file atomically.
    ///
    /// The new file keeps the permissions of the old one, but not its set-user-ID bits (as with any write) or its
    /// extended attributes. Another hard link to the old file keeps the old content.
    pub(super) fn replace(&self, content: &[u8]) -> Result<(), WriteError> {
        if content.len() as u64 > WRITE_FILE_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes: content.len(), bytes_max: WRITE_FILE_BYTES_MAX });
        }
        remove_forgotten(&self.directory, SystemTime::now());
        let (temp, mut file) = TempFile::create(&self.directory, self.creation_mode())?;
        if let Some(existing) = &self.existing {
            copy_owner_and_mode(&file, existing)?;
        }
        file.write_all(content)?;
        // Without the sync, a power cut after the rename could leave an empty file.
        fdatasync(&file)?;
        temp.rename_to(&self.name)
    }

    fn creation_mode(&self) -> Mode {
        match &self.existing {
            None => Mode::from_raw_mode(0o666),
            Some(existing) => permissions(existing),
        }
    }
}

/// Follows the symbolic links at the end of a path, even to a target that does not exist yet. The kernel follows the
/// links in the directories of the path, because only the kernel resolves `..` after a link correctly.
pub(super) fn follow_links(path: &Path) -> Result<PathBuf, WriteError> {
    let mut place = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match readlinkat(CWD, &place, Vec::new()) {
            Ok(link) => place = beside(&place, OsString::from_vec(link.into_bytes())),
            Err(Errno::INVAL | Errno::NOENT) => return Ok(place),
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::LOOP.into())
}

fn beside(path: &Path, link: OsString) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).join(link)
}

/// Returns the metadata of the existing file, if haft may write to the file. The check opens the file, because a rename
/// needs write permission only for the directory: a rename alone would also replace a read-only file.
fn existing(directory: &OwnedFd, name: &OsStr) -> Result<Option<Stat>, WriteError> {
    let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    require_regular(&stat)?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(directory, name, flags, Mode::empty()) {
        // The kernel does not open a running program for writing, but a rename may replace the program.
        Ok(_) | Err(Errno::TXTBSY) => Ok(Some(stat)),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the new file the owner and permissions of the old one. Only root may change the owner. For other users the new
/// file belongs to the current user, as after a save in any editor that replaces files.
fn copy_owner_and_mode(file: &File, existing: &Stat) -> Result<(), WriteError> {
    let ours = fstat(file)?;
    if (ours.st_uid, ours.st_gid) != (existing.st_uid, existing.st_gid) {
        let _ = fchown(file, Some(Uid::from_raw(existing.st_uid)), Some(Gid::from_raw(existing.st_gid)));
    }
    if permissions(&ours) != permissions(existing) {
        fchmod(file, permissions(existing))?;
    }
    Ok(())
}

fn permissions(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & PERMISSION_BITS)
}

/// A new temporary file in the same directory, removed on drop unless it was renamed.
struct TempFile<'a> {
    directory: &'a OwnedFd,
    name: String,
    renamed: bool,
}

impl<'a> TempFile<'a> {
    fn create(directory: &'a OwnedFd, mode: Mode) -> Result<(Self, File), WriteError> {
        let name = temp_name()?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(directory, &name, flags, mode)?;
        Ok((Self { directory, name, renamed: false }, File::from(file)))
    }

    fn rename_to(mut self, name: &OsStr) -> Result<(), WriteError> {
        renameat(self.directory, &self.name, self.directory, name)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for TempFile<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            let _ = unlinkat(self.directory, &self.name, AtFlags::empty());
        }
    }
}

/// The age above which a temporary file cannot belong to a write in progress.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);

/// The maximum number of directory entries to examine. In a larger directory, a forgotten file may stay.
const ENTRIES_MAX: usize = 1000;

/// Removes the temporary files of workers that were killed in the middle of a write.
fn remove_forgotten(directory: &OwnedFd, now: SystemTime) {
    let readable =
        openat(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let Ok(entries) = readable.and_then(Dir::new) else { return };
    let seconds =
        now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(FORGOTTEN_AFTER);
    for entry in entries.take(ENTRIES_MAX).flatten() {
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if is_temp_name(name)
            && statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|about| u64::try_from(about.st_mtime).unwrap_or(0) < seconds.as_secs())
        {
            let _ = unlinkat(directory, name, AtFlags::empty());
        }
    }
}

fn is_temp_name(name: &OsStr) -> bool {
    let random = name.to_str().and_then(|name| name.strip_prefix(".haft-")?.strip_suffix(".tmp"));
    random.is_some_and(|random| {
        random.len() == 2 * TEMP_NAME_RANDOM_BYTES && random.bytes().all(|c| c.is_ascii_hexdigit())
    })
}

/// Returns a random name, so that no other process can predict it. The random name does not contain the name of the
/// file, which may already have the maximum length.
fn temp_name() -> Result<String, WriteError> {
    let mut random = [0; TEMP_NAME_RANDOM_BYTES];
    // `getrandom` never returns fewer bytes for requests of up to 256 bytes.
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!(".haft-{:032x}.tmp", u128::from_ne_bytes(random)))
}
