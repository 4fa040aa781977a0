//! What a call costs us: time on the wall and time on a core, of this process alone.

use std::time::{Duration, Instant};

use futures_util::StreamExt;

const PAGE_BYTES: usize = 4096;

/// Microseconds a call.
pub(crate) struct Cost {
    pub(crate) wall: f64,
    pub(crate) cpu: f64,
}

impl Cost {
    pub(crate) fn worst() -> Self {
        Self { wall: f64::INFINITY, cpu: f64::INFINITY }
    }

    /// Everything above a minimum is somebody else's load.
    pub(crate) fn best(&mut self, other: &Self) {
        self.wall = self.wall.min(other.wall);
        self.cpu = self.cpu.min(other.cpu);
    }
}

/// What each of so many calls costs when so many are made at once.
pub(crate) async fn measure<F: Future<Output = ()>>(
    calls: usize,
    at_once: usize,
    call: impl Fn() -> F,
) -> Cost {
    let (began, cpu) = (Instant::now(), cpu_time());
    futures_util::stream::iter(0..calls).for_each_concurrent(at_once, |_| call()).await;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / calls as f64;
    Cost { wall: each(began.elapsed()), cpu: each(cpu_time().saturating_sub(cpu)) }
}

/// The servers are processes of their own and do not count. The first number of each thread is its time on a core; none of
/// our threads ends while calls are made.
fn cpu_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let times = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("schedstat")).ok());
    Duration::from_nanos(times.map(|time| time.split(' ').next().unwrap().parse::<u64>().unwrap()).sum())
}

pub(crate) fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE_BYTES
}
