//! The file of the journal: appends whole lines while other processes do the same, rotates, and survives a full disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haft_core::home::Home;
use haft_fs::file_lock;

use super::journal::now_ms;
use super::record::{AccountingLine, LostRecord};

/// A larger journal becomes the one old journal that is kept.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;

/// The pause after a failed write. A full disk must not cost each call an attempt.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The longest wait for another process that is writing. It takes microseconds, except when that process was stopped.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// The number of times that one line follows a rotation to the new file.
const ROTATIONS_MAX: usize = 5;

/// The limits of a journal file. Tests have smaller ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct JournalFileLimits {
    pub(super) bytes_max: u64,
    pub(super) retry_pause: Duration,
    pub(super) lock_wait: Duration,
}

impl Default for JournalFileLimits {
    fn default() -> Self {
        Self { bytes_max: JOURNAL_BYTES_MAX, retry_pause: RETRY_PAUSE, lock_wait: LOCK_WAIT_MAX }
    }
}

/// The journal of this process. Others append to the same file.
#[derive(Debug)]
pub(super) struct JournalFile {
    path: PathBuf,
    old_path: PathBuf,
    limits: JournalFileLimits,
    file: Option<File>,
    failed_at: Option<Instant>,
    lost_lines: u64,
}

impl JournalFile {
    /// Fails when the file cannot be opened now.
    pub(super) fn open(home: &Home, limits: JournalFileLimits) -> io::Result<Self> {
        let (path, old_path) = (path_in(home), old_path_in(home));
        let file = Some(open(&path)?);
        Ok(Self { path, old_path, limits, file, failed_at: None, lost_lines: 0 })
    }

    /// Appends a line. After a failure it counts lines as lost until the pause is over, and then tries again: the disk may
    /// have room by then. The number of lost lines is written before the next line.
    pub(super) fn append(&mut self, line: &AccountingLine) {
        let is_paused = self.failed_at.is_some_and(|at| at.elapsed() < self.limits.retry_pause);
        if is_paused || self.try_append(&[self.lost().as_ref(), Some(line)]).is_err() {
            self.lost_lines += 1;
        }
    }

    /// Writes the number of lost lines, if there are any.
    fn append_lost(&mut self) {
        if self.lost_lines > 0 {
            // The process ends, so that there is no later attempt.
            let _ = self.try_append(&[self.lost().as_ref()]);
        }
    }

    fn lost(&self) -> Option<AccountingLine> {
        let lost = LostRecord { timestamp_ms: now_ms(), lost_lines: self.lost_lines };
        (self.lost_lines > 0).then_some(AccountingLine::Lost(lost))
    }

    fn try_append(&mut self, lines: &[Option<&AccountingLine>]) -> io::Result<()> {
        let outcome = to_bytes(lines).and_then(|bytes| self.append_bytes(&bytes));
        match &outcome {
            Ok(()) => (self.failed_at, self.lost_lines) = (None, 0),
            Err(_) => self.failed_at = Some(Instant::now()),
        }
        outcome
    }

    /// Appends under a lock, so that no line mixes with one of another process and none goes to a file that another process
    /// has rotated away. After an error the file is closed, which releases the lock.
    fn append_bytes(&mut self, lines: &[u8]) -> io::Result<()> {
        for _ in 0..ROTATIONS_MAX {
            let file = self.file.take().map_or_else(|| open(&self.path), Ok)?;
            if !file_lock::lock_within(&file, self.limits.lock_wait)? {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let bytes = file.metadata()?.len();
            if !self.is_current(&file)? {
                continue;
            }
            if bytes > 0 && bytes.saturating_add(lines.len() as u64) > self.limits.bytes_max {
                fs::rename(&self.path, &self.old_path)?;
                continue;
            }
            append_whole(&file, lines, bytes)?;
            file.unlock()?;
            self.file = Some(file);
            return Ok(());
        }
        Err(io::Error::other("other processes rotated the journal again and again"))
    }

    /// Returns false after another process has rotated the file away or removed it.
    fn is_current(&self, file: &File) -> io::Result<bool> {
        let open = file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        self.append_lost();
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
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

fn to_bytes(lines: &[Option<&AccountingLine>]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for line in lines.iter().flatten() {
        serde_json::to_writer(&mut bytes, line)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

pub(super) fn path_in(home: &Home) -> PathBuf {
    home.data().join("accounting.jsonl")
}

pub(super) fn old_path_in(home: &Home) -> PathBuf {
    home.data().join("accounting.1.jsonl")
}

#[cfg(test)]
mod tests;
