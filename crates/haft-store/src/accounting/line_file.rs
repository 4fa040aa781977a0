//! One file of accounting lines: appends whole lines while other processes do the same, rotates, and survives a full disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use haft_fs::{file_lock, private_file};

/// A larger file becomes the one old file that is kept.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The longest wait for another process that is writing. It takes microseconds, except when that process was stopped.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// The number of times that one line follows a rotation to the new file.
const ROTATIONS_MAX: usize = 5;

/// The limits of a file. Tests have smaller ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineFileLimits {
    pub(crate) bytes_max: u64,
    pub(crate) lock_wait: Duration,
}

impl Default for LineFileLimits {
    fn default() -> Self {
        Self { bytes_max: FILE_BYTES_MAX, lock_wait: LOCK_WAIT_MAX }
    }
}

/// The file of one tenant, as this process appends to it. Other processes append to the same file.
#[derive(Debug)]
pub(crate) struct LineFile {
    paths: LinePaths,
    limits: LineFileLimits,
    file: Option<File>,
}

/// The file that grows, and the one that it replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinePaths {
    pub(crate) current: PathBuf,
    pub(crate) old: PathBuf,
}

impl LineFile {
    /// Opens nothing yet: a directory that cannot be written now may become writable.
    pub(crate) fn new(paths: LinePaths, limits: LineFileLimits) -> Self {
        Self { paths, limits, file: None }
    }

    /// Appends under a lock, so that no line mixes with one of another process and none goes to a file that another process
    /// has rotated away. After an error the file is closed, which releases the lock.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        for _ in 0..ROTATIONS_MAX {
            let file = self.file.take().map_or_else(|| open(&self.paths.current), Ok)?;
            if !file_lock::lock_within(&file, self.limits.lock_wait)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let bytes = file.metadata()?.len();
            if !self.is_current(&file)? {
                continue;
            }
            if bytes > 0 && bytes.saturating_add(lines.len() as u64) > self.limits.bytes_max {
                fs::rename(&self.paths.current, &self.paths.old)?;
                continue;
            }
            append_whole(&file, lines, bytes)?;
            file.unlock()?;
            self.file = Some(file);
            return Ok(());
        }
        Err(io::Error::other("other processes rotated the accounting again and again"))
    }

    /// Returns false after another process has rotated the file away or removed it.
    fn is_current(&self, file: &File) -> io::Result<bool> {
        let open = file.metadata()?;
        match fs::metadata(&self.paths.current) {
            Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            private_file::create_parent_dir(path)?;
            open()
        }
        opened => opened,
    }
}

/// Appends all bytes or none. A process that was killed may have left half a line; it gets its end first, or the next line
/// would be unreadable as well.
fn append_whole(mut file: &File, lines: &[u8], bytes: u64) -> io::Result<()> {
    let mut last = *b"\n";
    if bytes > 0 {
        file.read_exact_at(&mut last, bytes - 1)?;
    }
    let end: &[u8] = if last == *b"\n" { b"" } else { b"\n" };
    let outcome = file.write_all(&[end, lines].concat());
    if outcome.is_err() {
        let _ = file.set_len(bytes);
    }
    outcome
}

#[cfg(test)]
mod tests;
