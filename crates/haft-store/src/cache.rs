//! Cached outputs of calls, shared between processes as files, or between the runtimes of one process in memory.

mod file;
mod memory;
mod usage;

use std::time::{SystemTime, UNIX_EPOCH};

pub use file::FileCache;
pub use memory::MemoryCache;

/// Reads the wall clock in milliseconds, which all processes share.
fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
