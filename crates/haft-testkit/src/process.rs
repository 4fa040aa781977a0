//! Inspects the machine's processes from outside the sandbox.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

/// Finds the processes whose command line contains `marker`. Each test needs its own marker.
pub fn processes_with(marker: &str) -> Vec<i32> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| *name != own);
    pids.filter(|pid| runs(pid, marker)).filter_map(|pid| pid.parse().ok()).collect()
}

/// Returns true if the process is running and has the marker. A zombie has an empty command line, so a process that
/// only waits to be reaped is not included.
fn runs(pid: &str, marker: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(marker)
}

/// Returns a word that is in no other process's command line on this machine.
pub fn unique_marker() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("marker-{}-{}-end", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Sends a signal to a process that the test has started.
pub fn send_signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).unwrap();
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Raises the limit on open files of the test process as far as the system allows, for tests with many connections.
pub fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}
