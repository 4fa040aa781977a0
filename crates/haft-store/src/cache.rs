//! Cached outputs of calls, shared between processes through files, or between the runtimes of one process in memory.

mod file;
mod memory;
mod usage;

use std::time::{SystemTime, UNIX_EPOCH};

pub use file::FileCache;
pub use memory::MemoryCache;

/// Returns the wall clock time in milliseconds, which is the same for all processes.
fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
