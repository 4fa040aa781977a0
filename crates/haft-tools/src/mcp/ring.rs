//! What a server said beside the protocol: the last of it, within bounds.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// How much is kept of one server.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// How much of one line is kept.
const LINE_BYTES_MAX: usize = 2 << 10;

/// The last lines of a stream that may never end.
#[derive(Debug, Default)]
pub struct Ring {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<String>,
    bytes: usize,
    open: Vec<u8>,
}

impl Ring {
    /// Takes bytes of a stream, cut wherever they happen to be.
    pub(super) fn push(&self, bytes: &[u8]) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let room = LINE_BYTES_MAX.saturating_sub(state.open.len());
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            state.open.extend_from_slice(&text[..text.len().min(room)]);
            if piece.ends_with(b"\n") {
                state.finish_line();
            }
        }
    }

    /// Takes a line of our own.
    pub(super) fn note(&self, line: &str) {
        self.push(b"\n");
        self.push(line.replace('\n', " ").as_bytes());
        self.push(b"\n");
    }

    /// The last lines that are not empty, the oldest first.
    pub fn last(&self, count: usize) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let open = String::from_utf8_lossy(&state.open).into_owned();
        let mut lines: Vec<String> =
            state.lines.iter().cloned().chain([open]).filter(|line| !line.trim().is_empty()).collect();
        lines.split_off(lines.len().saturating_sub(count))
    }
}

impl State {
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
    fn the_last_lines_are_kept_and_no_more() {
        let ring = Ring::default();
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
}
