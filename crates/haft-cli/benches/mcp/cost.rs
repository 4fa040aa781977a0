//! Measures the cost of one call for this process alone: wall time and CPU time.

use std::time::{Duration, Instant};

use futures_util::StreamExt;

use crate::process_stats::cpu_of;

const PAGE_BYTES: usize = 4096;

/// The cost of a call, in microseconds.
pub(crate) struct McpCallCost {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

impl McpCallCost {
    pub(crate) fn worst() -> Self {
        Self { wall: f64::INFINITY, cpu: f64::INFINITY }
    }

    /// Keeps the minimum, because everything above the minimum is caused by the load of other processes.
    pub(crate) fn best(&mut self, other: &Self) {
        self.wall = self.wall.min(other.wall);
        self.cpu = self.cpu.min(other.cpu);
    }
}

/// Makes `calls` calls, `at_once` of them concurrently, and returns the cost of one.
pub(crate) async fn measure<F: Future<Output = ()>>(
    calls: usize,
    at_once: usize,
    call: impl Fn() -> F,
) -> McpCallCost {
    let (began, cpu) = (Instant::now(), cpu_time());
    futures_util::stream::iter(0..calls).for_each_concurrent(at_once, |_| call()).await;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / calls as f64;
    McpCallCost { wall: each(began.elapsed()), cpu: each(cpu_time().saturating_sub(cpu)) }
}

/// Returns the CPU time of this process, without the servers, which are separate processes. No thread ends while calls
/// are made, so the sum includes all threads.
fn cpu_time() -> Duration {
    cpu_of(std::process::id())
}

pub(crate) fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE_BYTES
}
