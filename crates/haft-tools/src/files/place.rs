//! A place in a directory where a file stands or may stand, and the atomic replacing of what stands there.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fdatasync, fstat, openat, readlinkat,
    renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use super::kind::require_regular;
use super::path::PathFault;
use super::refusal::WriteError;
use super::text_file::READ_FILE_BYTES_MAX;

/// The largest file that `write` and `edit` leave behind: what was written can be read again.
pub const WRITE_FILE_BYTES_MAX: u64 = READ_FILE_BYTES_MAX;

/// As many links as Linux itself follows in one path.
const LINKS_MAX: usize = 40;
const TEMP_NAME_RANDOM_BYTES: usize = 16;
const PERMISSION_BITS: u32 = 0o777;

/// The directory is held open, so that its being renamed or swapped for a link between two steps changes nothing.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    name: OsString,
    existing: Option<Stat>,
}

impl Place {
    /// Opens the place that a path without a link at its end names; see [`follow_links`].
    pub(super) fn open(path: &Path) -> Result<Self, WriteError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(WriteError::Path(PathFault::NamesDirectory));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, parent, flags, Mode::empty())?;
        let existing = existing(&directory, name)?;
        Ok(Self { directory, name: name.to_owned(), existing })
    }

    /// Puts a file with this content there, whole or not at all.
    ///
    /// The new file keeps the permissions of the old one, but not its set-user-ID bits, as with any write, nor its
    /// extended attributes. Another hard link to the old file keeps the old content.
    pub(super) fn replace(&self, content: &[u8]) -> Result<(), WriteError> {
        if content.len() as u64 > WRITE_FILE_BYTES_MAX {
            return Err(WriteError::TooLarge { bytes: content.len(), bytes_max: WRITE_FILE_BYTES_MAX });
        }
        let (temp, mut file) = TempFile::create(&self.directory, self.creation_mode())?;
        if let Some(existing) = &self.existing {
            take_on(&file, existing)?;
        }
        file.write_all(content)?;
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

/// Where a path leads once the links at its end are followed, also when nothing is there yet. Directories before it
/// are left to the kernel, which alone resolves `..` after a link rightly.
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

/// What stands at the place, if the kernel lets us write it. It is asked about this very file, because a rename needs
/// leave for the directory only and would replace a read-only file.
fn existing(directory: &OwnedFd, name: &OsStr) -> Result<Option<Stat>, WriteError> {
    let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    require_regular(&stat)?;
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(directory, name, flags, Mode::empty()) {
        // A program that is running cannot be written but may be replaced.
        Ok(_) | Err(Errno::TXTBSY) => Ok(Some(stat)),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the new file the owner and the permissions of the old one. Only root may give a file away: for everyone
/// else the new file is theirs, as it is with any editor that replaces files.
fn take_on(file: &File, existing: &Stat) -> Result<(), WriteError> {
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

/// A new file beside the place; gone when dropped, unless it was renamed.
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

/// Not to be guessed, so that nobody can wait for it, and not made from the file's name, which may be full length.
fn temp_name() -> Result<String, WriteError> {
    let mut random = [0; TEMP_NAME_RANDOM_BYTES];
    // Requests of up to 256 bytes are never answered in part.
    getrandom(&mut random, GetRandomFlags::empty())?;
    Ok(format!(".haft-{:032x}.tmp", u128::from_ne_bytes(random)))
}
