//! Claims journals in files.
//!
//! A holder keeps a lock on the file, so that other processes see a busy session. The kernel releases the lock if the
//! holder is killed. The lock alone cannot stop a holder that hangs and continues later. So every claim writes a line
//! with a higher epoch, and every append then checks the length of the file: if another process has written to the
//! file, and one of its lines is a newer claim, the holder is fenced.
//!
//! An append needs no lock. The holder writes, and then checks; a claimant writes its claim, and then reads. So either
//! the holder sees the claim, or the claimant sees the line.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use haft_core::position::SessionId;
use haft_core::run::journal::{Epoch, JournalError};

use super::line::SessionJournalLine;
use super::read::{JournalLines, epoch_of};
use super::sync_batch::{SyncBatch, sync_directory};
use super::{SessionError, SessionHistory, truncate_partial_line};
use crate::accounting::now_ms;
use crate::journals::{HolderBefore, JournalClaim};
use crate::lock_file::LockFile;

/// The claim of this process to one file.
#[derive(Debug)]
pub(super) struct FileClaim {
    file: Arc<File>,
    path: PathBuf,
    epoch: Epoch,
    bytes_max: u64,
    state: Mutex<ClaimState>,
    /// False while the directory is not synced, and a crash of the machine may remove the file.
    is_linked: AtomicBool,
    /// The batch that delays the sync at the end of the run; `None` if that sync runs at once.
    batch: Option<SyncBatch>,
    /// The lock of a claim that took over the session.
    _lock: Option<LockFile>,
}

/// An open session file.
#[derive(Debug)]
pub(super) struct ClaimedFile {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) batch: Option<SyncBatch>,
}

#[derive(Debug)]
struct ClaimState {
    /// The length of the file after the last append.
    bytes: u64,
    /// True if this claim holds the lock on the file; false after a takeover, while the fenced holder still has the
    /// lock.
    is_locked: bool,
}

impl FileClaim {
    /// Claims a new file, which is locked.
    pub(super) fn first(file: ClaimedFile, bytes_max: u64) -> Self {
        Self::new(file, Epoch::FIRST, 0, HolderBefore::Gone, bytes_max)
    }

    /// Claims an existing file. `before` is `Gone` if the caller holds the lock.
    pub(super) fn of(
        id: SessionId,
        mut file: ClaimedFile,
        before: HolderBefore,
        bytes_max: u64,
    ) -> Result<(SessionHistory, Self), SessionError> {
        // Remove an incomplete last line only if there is no other holder, because another holder may be writing this
        // line.
        if before == HolderBefore::Gone {
            truncate_partial_line(&mut file.file)?;
        }
        let (past, epoch, bytes) = read(id, &file.file, None)?;
        let (epoch, nonce) = (epoch.next(), random());
        let claim = Self::new(file, epoch, bytes, before, bytes_max);
        let written = claim.write_claim(nonce).map_err(SessionError::from)?;
        if claim.length()? == bytes + written {
            claim.set_bytes(bytes + written);
            return Ok((past, claim));
        }
        // Another process has written to the file since this process read it. The lines before this claim are a part of
        // the history.
        let (past, newest, bytes) = read(id, &claim.file, Some(nonce))?;
        if newest != epoch {
            return Err(SessionError::Busy { id });
        }
        claim.set_bytes(bytes);
        Ok((past, claim))
    }

    fn new(file: ClaimedFile, epoch: Epoch, bytes: u64, before: HolderBefore, bytes_max: u64) -> Self {
        let is_locked = before == HolderBefore::Gone;
        let state = Mutex::new(ClaimState { bytes, is_locked });
        // Do not assume that the directory entry of the file is durable: the process that created the file may have
        // ended before its first sync.
        let (ClaimedFile { file, path, batch }, is_linked) = (file, AtomicBool::new(false));
        Self { file: Arc::new(file), path, epoch, bytes_max, state, is_linked, batch, _lock: None }
    }

    /// Keeps a lock while the claim exists.
    pub(super) fn with_lock(self, lock: LockFile) -> Self {
        Self { _lock: Some(lock), ..self }
    }

    /// Writes the claim and returns its length. After a takeover, the claim starts with a line end, because the fenced
    /// holder may have left an incomplete line.
    fn write_claim(&self, nonce: u64) -> io::Result<u64> {
        let mut bytes =
            self.bytes_of(&[SessionJournalLine::Resumed { at_ms: now_ms(), claim: Some(nonce) }])?;
        if !self.state().is_locked {
            bytes.insert(0, b'\n');
        }
        (&*self.file).write_all(&bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Returns the bytes of the lines. The epoch is the last field of each.
    fn bytes_of(&self, lines: &[SessionJournalLine]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, line)?;
            if self.epoch > Epoch::FIRST {
                bytes.pop();
                write!(bytes, r#","epoch":{}}}"#, self.epoch.0)?;
            }
            bytes.push(b'\n');
        }
        Ok(bytes)
    }

    fn append_now(&self, lines: &[SessionJournalLine]) -> Result<(), JournalError> {
        let bytes = self.bytes_of(lines).map_err(JournalError::unavailable)?;
        let mut state = self.state();
        if state.bytes.saturating_add(bytes.len() as u64) > self.bytes_max {
            let max = self.bytes_max;
            let problem =
                format!("the session would exceed the limit of {max} bytes; raise `sessions.maxBytes`");
            return Err(JournalError::unavailable(problem));
        }
        if !state.is_locked {
            state.is_locked = self.file.try_lock().is_ok();
        }
        (&*self.file).write_all(&bytes).map_err(|error| {
            // The file may end with an incomplete line now. This holder must not remove it, because a newer holder may
            // have written after it. Release the lock, so that the next claim can remove the line.
            let _ = self.file.unlock();
            JournalError::unavailable(error)
        })?;
        let begin = state.bytes;
        let written = begin + bytes.len() as u64;
        let meta = self.file.metadata().map_err(JournalError::unavailable)?;
        if meta.nlink() == 0 {
            return Err(JournalError::unavailable("the session file was removed"));
        }
        if meta.len() != written {
            self.check_fence(begin)?;
        }
        state.bytes = meta.len();
        Ok(())
    }

    /// Looks for a newer claim in the lines after this offset. Lines of an older holder are harmless, because readers
    /// skip them.
    fn check_fence(&self, begin: u64) -> Result<(), JournalError> {
        let mut tail = Vec::new();
        let mut file = &*self.file;
        file.seek(SeekFrom::Start(begin)).map_err(JournalError::unavailable)?;
        file.read_to_end(&mut tail).map_err(JournalError::unavailable)?;
        let claims = tail.split(|byte| *byte == b'\n').map(epoch_of).filter(|(_, is_claim)| *is_claim);
        match claims.map(|(epoch, _)| epoch).max() {
            Some(by) if by > self.epoch => {
                // Release the lock, so that the newer holder gets it with its next append.
                let _ = self.file.unlock();
                Err(JournalError::Fenced { epoch: self.epoch, by })
            }
            _ if tail.is_empty() => {
                Err(JournalError::unavailable("another program shortened the session file"))
            }
            _ => Ok(()),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn set_bytes(&self, bytes: u64) {
        self.state().bytes = bytes;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ClaimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a session. Returns its history, the newest epoch, and the size of the lines that were read. With a nonce,
/// stops at the claim with this nonce, which is not part of the history. If the session has no valid claim with this
/// nonce, another process has claimed it, so this function returns a newer epoch.
fn read(
    id: SessionId,
    mut file: &File,
    nonce: Option<u64>,
) -> Result<(SessionHistory, Epoch, u64), SessionError> {
    file.seek(SeekFrom::Start(0))?;
    let mut lines = JournalLines::of(file);
    let is_own = |line: &SessionJournalLine| matches!(line, SessionJournalLine::Resumed { claim: Some(claim), .. } if Some(*claim) == nonce);
    let mut found = false;
    let before = std::iter::from_fn(|| match lines.next()? {
        Ok(line) if is_own(&line) => {
            found = true;
            None
        }
        line => Some(line),
    });
    let past = SessionHistory::of(before).map_err(|problem| SessionError::Unreadable { id, problem })?;
    let epoch = if nonce.is_some() && !found { lines.epoch().next() } else { lines.epoch() };
    Ok((past, epoch, lines.bytes()))
}

fn random() -> u64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    high
}

impl JournalClaim for FileClaim {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn append(&self, lines: &[SessionJournalLine]) -> Result<(), JournalError> {
        self.append_now(lines)
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        let file = Arc::clone(&self.file);
        // Do not sync the directory again after a failure, because a failed sync ends the run.
        let is_linked = self.is_linked.swap(true, Ordering::AcqRel);
        let directory = self.path.parent().filter(|_| !is_linked).map(Path::to_owned);
        Box::pin(async move {
            let synced = tokio::task::spawn_blocking(move || {
                file.sync_data()?;
                directory.as_deref().map_or(Ok(()), sync_directory)
            });
            match synced.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(JournalError::unavailable(error)),
                Err(error) => Err(JournalError::unavailable(error)),
            }
        })
    }

    fn sync_soon(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        match &self.batch {
            Some(batch) => {
                batch.add(self.path.clone());
                Box::pin(async { Ok(()) })
            }
            None => self.sync(),
        }
    }
}
