//! Computes percentiles of any number of latencies in bounded memory.

use crate::log_slots::{slot_midpoint, slot_of};

/// The number of latencies up to which percentiles are exact.
const EXACT_COUNT_MAX: usize = 512;

/// The latencies of one tool. The first 512 are stored exactly. Beyond that, only counts per slot are stored: they take
/// at most 60 KB, and a percentile is off by less than 0.4 %.
#[derive(Debug, Clone, Default)]
pub(super) struct Latencies {
    exact: Vec<u64>,
    /// Counts by slot; empty while all latencies are in `exact`.
    slots: Vec<u64>,
    count: u64,
}

impl Latencies {
    pub(super) fn add(&mut self, latency_ms: u64) {
        self.count += 1;
        if self.slots.is_empty() && self.exact.len() < EXACT_COUNT_MAX {
            return self.exact.push(latency_ms);
        }
        for latency_ms in std::mem::take(&mut self.exact) {
            self.add_to_slot(latency_ms);
        }
        self.add_to_slot(latency_ms);
    }

    pub(super) fn merge(&mut self, other: Self) {
        for latency_ms in other.exact {
            self.add(latency_ms);
        }
        if other.slots.is_empty() {
            return;
        }
        self.count += other.slots.iter().sum::<u64>();
        for latency_ms in std::mem::take(&mut self.exact) {
            self.add_to_slot(latency_ms);
        }
        self.slots.resize(self.slots.len().max(other.slots.len()), 0);
        for (own, count) in self.slots.iter_mut().zip(other.slots) {
            *own += count;
        }
    }

    /// Returns the smallest latency that at least `percent` of all latencies do not exceed; zero if there are no
    /// latencies.
    pub(super) fn percentile(&self, percent: u64) -> u64 {
        let rank = self.count.saturating_mul(percent).div_ceil(100).max(1);
        if self.slots.is_empty() {
            let mut sorted = self.exact.clone();
            sorted.sort_unstable();
            return usize::try_from(rank - 1).ok().and_then(|at| sorted.get(at).copied()).unwrap_or(0);
        }
        let mut seen = 0;
        let reaches_rank = |count: &u64| {
            seen += count;
            seen >= rank
        };
        let slot = self.slots.iter().position(reaches_rank).unwrap_or_default();
        u32::try_from(slot).map_or(0, slot_midpoint)
    }

    fn add_to_slot(&mut self, latency_ms: u64) {
        let slot = slot_of(latency_ms) as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, 0);
        }
        self.slots[slot] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(latencies: &[u64], percent: usize) -> u64 {
        let mut sorted = latencies.to_vec();
        sorted.sort_unstable();
        sorted[(sorted.len() * percent).div_ceil(100) - 1]
    }

    /// Returns the same numbers in each run, from one millisecond to about an hour, with more small ones than large
    /// ones.
    fn latencies(count: usize) -> Vec<u64> {
        let mut seed = 7_u64;
        let next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (1 << ((seed >> 40) % 22)) + (seed >> 45) % 1_000
        };
        std::iter::repeat_with(next).take(count).collect()
    }

    #[test]
    fn percentiles_are_exact_up_to_512_latencies_then_approximate() {
        let check = |count: usize, error_divisor: Option<u64>| {
            let given = latencies(count);
            let mut found = Latencies::default();
            for latency in &given {
                found.add(*latency);
            }
            for percent in [50, 95] {
                let (exact, found) = (exact(&given, percent), found.percentile(percent as u64));
                let error_max = error_divisor.map_or(0, |divisor| exact / divisor);
                assert!(exact.abs_diff(found) <= error_max, "p{percent} of {count}: {exact}, got {found}");
            }
        };
        check(1, None);
        check(100, None);
        check(512, None);
        check(513, Some(250));
        check(100_000, Some(250));
    }

    #[test]
    fn memory_does_not_grow_with_the_number_of_latencies() {
        let mut found = Latencies::default();
        for latency in latencies(100_000).into_iter().chain([u64::MAX]) {
            found.add(latency);
        }
        assert!(found.slots.len() < 8_000 && found.exact.capacity() == 0, "{}", found.slots.len());
        assert_eq!(Latencies::default().percentile(50), 0);
    }
}
