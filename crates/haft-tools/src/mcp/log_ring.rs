//! The last log output of a server, up to a size limit.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use haft_fs::private_file;
use tokio::sync::Notify;

use haft_core::redact::SecretRedactor;

/// The maximum number of bytes that are kept per server.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The maximum number of bytes that are kept of one line.
const LINE_BYTES_MAX: usize = 2 << 10;

/// Keeps the last lines of a stream that may never end.
#[derive(Debug, Default)]
pub struct LogRing {
    state: Mutex<LogRingState>,
    withheld: Arc<SecretRedactor>,
    more: Notify,
}

#[derive(Debug, Default)]
struct LogRingState {
    lines: VecDeque<String>,
    bytes: usize,
    open: Vec<u8>,
    /// True when the log has output that was not saved to a file yet.
    fresh: bool,
}

impl LogRing {
    /// Creates a ring that masks these secrets in every line it returns.
    pub(super) fn without(withheld: Arc<SecretRedactor>) -> Self {
        Self { state: Mutex::default(), withheld, more: Notify::new() }
    }

    /// Creates an empty ring that masks the same secrets.
    pub(super) fn sibling(&self) -> Self {
        Self::without(Arc::clone(&self.withheld))
    }

    /// Appends bytes of a stream, which may be split at any position.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.fresh = true;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_BYTES_MAX.saturating_sub(state.open.len());
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            state.open.extend_from_slice(&text[..text.len().min(room)]);
            if piece.ends_with(b"\n") {
                state.finish_line();
            }
        }
        drop(state);
        self.more.notify_one();
    }

    /// Waits until there is output that no earlier call of this function has reported.
    pub(super) async fn wait_for_output(&self) {
        self.more.notified().await;
    }

    /// Appends a line that haft itself writes.
    pub(super) fn note(&self, line: &str) {
        self.push(b"\n");
        self.push(line.replace('\n', " ").as_bytes());
        self.push(b"\n");
    }

    /// Returns the last non-empty lines, the oldest first.
    pub fn last(&self, count: usize) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let open = String::from_utf8_lossy(&state.open).into_owned();
        let mut lines: Vec<String> =
            state.lines.iter().cloned().chain([open]).filter(|line| !line.trim().is_empty()).collect();
        let last = lines.split_off(lines.len().saturating_sub(count));
        last.into_iter().map(|line| self.redact_line(line)).collect()
    }

    /// Masks the secrets of a line. Also masks a secret of which a cut line contains only the beginning.
    fn redact_line(&self, line: String) -> String {
        if line.len() < LINE_BYTES_MAX {
            return self.withheld.redact(line);
        }
        self.withheld.redact_truncated(&line)
    }

    /// Saves the lines atomically to a file that only its owner can read. Does nothing if there is no new output.
    pub(super) fn keep(&self, path: &Path) -> io::Result<()> {
        let fresh = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut state.fresh)
        };
        if !fresh {
            return Ok(());
        }
        private_file::create_parent_dir(path)?;
        private_file::replace_unsynced(path, (self.last(usize::MAX).join("\n") + "\n").as_bytes())
    }
}

/// Reads the saved log of a server; `None` when there is none.
pub fn read_saved_log(path: &Path) -> io::Result<Option<String>> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    // Read no more than this limit, because haft never saves a longer log. A longer file comes from another program.
    file.take(4 * KEPT_BYTES_MAX as u64).read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

impl LogRingState {
    fn finish_line(&mut self) {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.open)).into_owned();
        self.bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.bytes > KEPT_BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.len() + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_ring_keeps_only_the_last_lines() {
        let ring = LogRing::default();
        ring.push(b"one\ntw");
        ring.push(b"o\n\nthree");
        assert_eq!(ring.last(2), ["two", "three"]);
        ring.push(&vec![b'x'; 1 << 20]);
        for number in 0..100_000 {
            ring.push(format!("\nline {number}").as_bytes());
        }
        assert_eq!(ring.last(1), ["line 99999"]);
        let kept: usize = ring.last(usize::MAX).iter().map(String::len).sum();
        assert!(kept <= KEPT_BYTES_MAX, "{kept}");
    }

    #[test]
    fn secret_split_across_writes_is_redacted_in_the_log() {
        let ring = LogRing::without(Arc::new(SecretRedactor::of(["s3cret-of-mine"]))).sibling();
        ring.push(b"it is s3cret");
        ring.push(b"-of-mine\n");
        assert_eq!(ring.last(1), ["it is [redacted]"]);
        let filler = "x".repeat(LINE_BYTES_MAX - 6);
        ring.push(format!("{filler}s3cret-of-mine\n").as_bytes());
        assert_eq!(ring.last(1), [filler], "a partial secret at the end of a truncated line is removed");
    }

    #[test]
    fn log_ring_saves_its_lines_to_a_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("mcp/a.log");
        let ring = LogRing::default();
        ring.keep(&path).unwrap();
        assert_eq!(read_saved_log(&path).unwrap(), None, "an empty log is not saved");
        ring.push(b"one\ntwo");
        ring.keep(&path).unwrap();
        assert_eq!(read_saved_log(&path).unwrap().unwrap(), "one\ntwo\n");
    }
}
