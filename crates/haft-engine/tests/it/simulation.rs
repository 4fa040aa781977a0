//! Simulations from random seeds. Each seed generates one scenario: the calls and their times, the behaviour of
//! providers, and the cancellations. The clock is virtual and the runtime has one thread, so a seed always gives the
//! same scenario.

mod story;
mod world;

use std::sync::Arc;
use std::time::Duration;

use story::{SimulatedScenario, TTL};
use world::SimulationRecorder;

const SEEDS: u64 = 2_000;

/// The number of threads. Seeds are independent, so they can run in parallel.
const THREADS: u64 = 2;

#[test]
fn invariants_hold_in_every_simulated_scenario() {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || (thread..SEEDS).step_by(usize::try_from(THREADS).unwrap()).for_each(check));
        }
    });
}

fn check(seed: u64) {
    let story = SimulatedScenario::of(seed);
    let broken = play(&story).broken_promises(&story);
    assert!(broken.is_empty(), "seed {seed}: {broken:#?}");
}

#[test]
fn same_seed_replays_the_same_scenario() {
    let told = || play(&SimulatedScenario::of(7)).ends();
    assert_eq!(told(), told());
}

/// Checks that the scenarios reach every kind of outcome; otherwise the invariants would prove little.
#[test]
fn simulated_scenarios_reach_every_kind_of_outcome() {
    let mut told = std::collections::BTreeMap::new();
    for seed in 0..100 {
        for end in play(&SimulatedScenario::of(seed)).ends() {
            *told.entry(end).or_insert(0) += 1;
        }
    }
    let ends = [
        "ok",
        "cut",
        "hit",
        "failed",
        "internal",
        "timeout",
        "timeout unexecuted",
        "cancelled",
        "queue_full",
        "limit_exceeded",
    ];
    for end in ends {
        assert!(told.get(end).is_some_and(|&times| times > 20), "{end}: {told:?}");
    }
}

fn play(story: &SimulatedScenario) -> Arc<SimulationRecorder> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(story.play())
}

impl SimulationRecorder {
    /// Returns the violations of all invariants.
    fn broken_promises(&self, story: &SimulatedScenario) -> Vec<String> {
        let mut broken = self.overheard();
        for call in self.calls() {
            let expected_ends = usize::from(call.arrived.is_some());
            if call.ends != expected_ends {
                broken.push(format!("{call:?} ended {} times", call.ends));
            }
            let longest = story.timeout + Duration::from_millis(250);
            // For a call cancelled before its turn, the latency includes the time before the turn, so the limit does
            // not apply.
            if call.latency > longest && call.end != "cancelled" {
                broken.push(format!("{call:?} took longer than {longest:?}"));
            }
            if let Some(hit) = &call.hit
                && (hit.key != call.key || hit.age > TTL)
            {
                broken.push(format!("{call:?} was answered with another call's output or an expired one"));
            }
        }
        broken.extend(self.passed_unfairly());
        broken
    }
}
