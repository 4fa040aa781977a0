//! One file of usage records: appends whole lines while other processes do the same, rotates the file, and survives a
//! full disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haft_fs::{file_lock, private_file};

/// The maximum size of a file, in bytes. A larger file becomes the old file; haft keeps only one old file.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The maximum wait for another process that is writing. A write takes microseconds, unless that process was stopped.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// The interval at which an append checks that the open file still has its name. If another process has rotated the
/// file, lines are appended to the rotated file until the check. Readers read that file too.
const NAME_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum number of times that an append moves to the new file after a rotation.
const ROTATIONS_MAX: usize = 5;

/// The limits of a file with usage records. Tests use smaller limits.
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

/// The file of one tenant, to which this process appends. Other processes append to the same file.
#[derive(Debug)]
pub(crate) struct LineFile {
    paths: LinePaths,
    limits: LineFileLimits,
    open: Option<OpenLineFile>,
}

#[derive(Debug)]
struct OpenLineFile {
    file: File,
    /// The length of the file after the last append of this process. The file ended with a whole line then.
    whole_bytes: u64,
    /// The time of the last check that the file still has its name.
    name_checked: Option<Instant>,
}

/// The current file, and the old file that it replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinePaths {
    pub(crate) current: PathBuf,
    pub(crate) old: PathBuf,
}

impl LinePaths {
    /// Returns `NAME.jsonl` and, for the old file, `NAME.1.jsonl` in a directory.
    pub(crate) fn rotated(directory: &Path, name: &str) -> Self {
        let file = |extension: &str| directory.join(format!("{name}.{extension}"));
        Self { current: file("jsonl"), old: file("1.jsonl") }
    }
}

/// Changes the lines of both files while no process appends. Processes that have the file open then open the new one.
pub(crate) fn rewrite(paths: &LinePaths, change: impl Fn(&str) -> String) -> io::Result<()> {
    let line_file = LineFile::new(paths.clone(), LineFileLimits::default());
    for _ in 0..ROTATIONS_MAX {
        // Closing `file` at the end of this scope releases the lock.
        let file = match File::open(&paths.current) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(file?),
        };
        if let Some(file) = &file {
            if !file_lock::lock_within(file, LOCK_WAIT_MAX)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if !line_file.is_current(&file.metadata()?)? {
                continue;
            }
        }
        return [&paths.old, &paths.current].into_iter().try_for_each(|path| rewrite_one(path, &change));
    }
    Err(io::Error::other(
        "haft could not change the log file, because other processes kept rotating the file",
    ))
}

fn rewrite_one(path: &Path, change: impl Fn(&str) -> String) -> io::Result<()> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        bytes => bytes?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let changed = change(&text);
    if changed == text { Ok(()) } else { private_file::replace(path, changed.as_bytes()) }
}

impl LineFile {
    /// Creates the value without opening the file, because a directory that is not writable now may become writable
    /// later.
    pub(crate) fn new(paths: LinePaths, limits: LineFileLimits) -> Self {
        Self { paths, limits, open: None }
    }

    /// Appends under a lock, so that no line is mixed with a line of another process, and none is written to a file
    /// that was removed. After an error the file is closed, which releases the lock.
    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        for _ in 0..ROTATIONS_MAX {
            let mut open = self.open.take().map_or_else(|| open(&self.paths.current), Ok)?;
            if !file_lock::lock_within(&open.file, self.limits.lock_wait)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let meta = open.file.metadata()?;
            let bytes = meta.len();
            let is_full = bytes > 0 && bytes.saturating_add(lines.len() as u64) > self.limits.bytes_max;
            if (is_full || open.needs_name_check()) && !self.is_current(&meta)? || meta.nlink() == 0 {
                continue;
            }
            if is_full {
                fs::rename(&self.paths.current, &self.paths.old)?;
                continue;
            }
            open.append_whole(lines, bytes)?;
            open.file.unlock()?;
            self.open = Some(open);
            return Ok(());
        }
        Err(io::Error::other(
            "haft could not append to the log file, because other processes kept rotating the file",
        ))
    }

    /// Returns the open file, to sync it without a lock; `None` if nothing was appended.
    pub(crate) fn to_sync(&self) -> Option<File> {
        self.open.as_ref()?.file.try_clone().ok()
    }

    /// Returns false if another process has rotated or removed the file.
    fn is_current(&self, open: &fs::Metadata) -> io::Result<bool> {
        match fs::metadata(&self.paths.current) {
            Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl OpenLineFile {
    /// Returns true at most once per interval, when the name of the open file must be checked again.
    fn needs_name_check(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.name_checked.is_none_or(|at| now.duration_since(at) >= NAME_CHECK_INTERVAL);
        if is_due {
            self.name_checked = Some(now);
        }
        is_due
    }

    /// Appends all bytes or none to a file of this length. If a killed process left an incomplete line, first ends that
    /// line; otherwise the next line would be unreadable too.
    fn append_whole(&mut self, lines: &[u8], bytes: u64) -> io::Result<()> {
        let is_whole = bytes == 0 || bytes == self.whole_bytes || self.byte_at(bytes - 1)? == b'\n';
        let end: &[u8] = if is_whole { b"" } else { b"\n" };
        let text = [end, lines].concat();
        if let Err(error) = self.file.write_all(&text) {
            let _ = self.file.set_len(bytes);
            return Err(error);
        }
        self.whole_bytes = bytes + text.len() as u64;
        Ok(())
    }

    fn byte_at(&self, offset: u64) -> io::Result<u8> {
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, offset)?;
        Ok(byte[0])
    }
}

fn open(path: &Path) -> io::Result<OpenLineFile> {
    let open = || OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            private_file::create_parent_dir(path)?;
            open()
        }
        opened => opened,
    }?;
    Ok(OpenLineFile { file, whole_bytes: 0, name_checked: None })
}

#[cfg(test)]
mod tests;
