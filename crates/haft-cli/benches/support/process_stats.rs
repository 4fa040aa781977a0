//! Measures the CPU time of a process, without its child processes.

use std::time::Duration;

/// Returns the CPU time of all live threads of a process, with nanosecond resolution. The first number of a thread's
/// `schedstat` is its time on a core.
pub(crate) fn cpu_of(process: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
    let times = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    Duration::from_nanos(times.map(|time| time.split(' ').next().unwrap().parse::<u64>().unwrap()).sum())
}
