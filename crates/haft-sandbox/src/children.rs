//! Waits for child processes at the end of our own process.

use std::time::{Duration, Instant};

/// The pause between two checks.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits, at most `within`, until every released launcher has ended, and with it everything that it started.
///
/// A program calls this before it exits, so that nothing it started outlives it.
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
