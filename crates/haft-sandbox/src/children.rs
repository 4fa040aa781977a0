//! Waits for child processes when haft exits.

use std::time::{Duration, Instant};

/// The delay between two checks whether a process has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits until every released launcher, and everything that it started, has ended. Waits at most `within`.
///
/// A program should call this before it exits, so that no process that it started outlives it.
pub fn wait_until_gone(within: Duration) {
    let began = Instant::now();
    while has_children() && began.elapsed() < within {
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn has_children() -> bool {
    use rustix::process::{WaitOptions, wait};
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}
