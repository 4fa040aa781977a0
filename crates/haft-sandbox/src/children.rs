//! The end of our own process.

use std::time::{Duration, Instant};

/// How often is looked again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits until every launcher that was let go has ended, and with it all that it started; at most `within`.
///
/// For the end of a program: whoever sees it gone may rely on everything being gone.
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
