//! The progress of a sweep, stored in a small file that any process may lose or remove.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::OutputFile;
use super::walk::WalkPosition;
use crate::log_slots::slot_of;

/// The state file. It exists only while a store is too large for a single step. It is optional: when it is missing or
/// does not parse, a pass starts over.
const STATE_FILE: &str = ".sweep";
const NEW_STATE_FILE: &str = ".sweep.new";

/// The pause between the end of a pass and the next pass, over all processes.
const PASS_INTERVAL: Duration = Duration::from_mins(1);

/// The pause between two steps of different processes. Without it, a hundred short commands in a row would each do one.
const STEP_INTERVAL: Duration = Duration::from_secs(1);

/// The progress of the current pass.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SweepState {
    /// The last entry that the pass visited.
    position: Option<WalkPosition>,
    /// The moment from which the pass counts ages, in milliseconds since 1970.
    reference_ms: u64,
    /// The bytes of the outputs that the pass left, by the slot of their age.
    left: BTreeMap<u32, u64>,
    /// The outputs that the pass removes for the total, known from the pass before it.
    excess: Option<Excess>,
    /// The steps that ended before the end of the pass.
    steps: u32,
    /// Processes that start before this time skip the sweep.
    not_before_ms: u64,
}

/// The oldest outputs, as many as exceed the total. Slots are narrow, so the order within a slot does not matter: its
/// outputs differ in age by less than one percent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Excess {
    reference_ms: u64,
    /// Outputs in older slots go.
    slot: u32,
    /// Outputs in `slot` go until they have made room for this much.
    bytes: u64,
}

impl SweepState {
    pub(super) fn load(root: &Path, now: SystemTime) -> Self {
        let stored = fs::read(root.join(STATE_FILE)).ok();
        let stored = stored.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        stored.unwrap_or_else(|| Self { reference_ms: millis(now), ..Self::default() })
    }

    /// True shortly after another step or pass. A time that is too far ahead comes from a clock that was set back.
    pub(super) fn is_recent(&self, now: SystemTime) -> bool {
        let wait = self.not_before_ms.saturating_sub(millis(now));
        wait > 0 && Duration::from_millis(wait) <= PASS_INTERVAL
    }

    pub(super) fn position(&self) -> Option<&WalkPosition> {
        self.position.as_ref()
    }

    pub(super) fn advance(&mut self, position: WalkPosition) {
        self.position = Some(position);
    }

    pub(super) fn removes_excess(&self) -> bool {
        self.excess.is_some()
    }

    /// Tests if the file must be removed to make room.
    pub(super) fn claims(&mut self, file: &OutputFile) -> bool {
        self.excess.as_mut().is_some_and(|excess| excess.claims(file))
    }

    /// Counts a file that stays.
    pub(super) fn keep(&mut self, file: &OutputFile) {
        *self.left.entry(age_slot(file, self.reference_ms)).or_default() += file.bytes;
    }

    /// Turns the sums of this pass into the work of the next one.
    pub(super) fn end_pass(&mut self, total_bytes_max: u64, now: SystemTime) {
        *self = Self {
            reference_ms: millis(now),
            excess: Excess::of(&self.left, self.reference_ms, total_bytes_max),
            steps: self.steps,
            ..Self::default()
        };
    }

    /// Stores the end of a step. A crash before this repeats the step, which then may remove a few more outputs of the
    /// oldest slot than it must.
    pub(super) fn save_step(&mut self, root: &Path, now: SystemTime) {
        self.steps += 1;
        self.save(root, now);
    }

    /// Stores an unfinished sweep.
    pub(super) fn save(&mut self, root: &Path, now: SystemTime) {
        self.not_before_ms = millis(now + STEP_INTERVAL);
        self.write(root);
    }

    /// Stores the end of a sweep. A store that a single step covers needs no file: each process may sweep it at its
    /// start. The next sweep computes the sums again, because today's excess says little about tomorrow's files.
    pub(super) fn save_ended(&mut self, root: &Path, now: SystemTime) {
        self.excess = None;
        if self.steps == 0 {
            let _ = fs::remove_file(root.join(STATE_FILE));
            return;
        }
        self.steps = 0;
        self.not_before_ms = millis(now + PASS_INTERVAL);
        self.write(root);
    }

    /// Renames a new file over the old one, so that no reader sees half of it. It is not synced: after a power failure
    /// the next pass starts over.
    fn write(&self, root: &Path) {
        let new = root.join(NEW_STATE_FILE);
        let Ok(bytes) = serde_json::to_vec(self) else { return };
        if fs::write(&new, bytes).is_ok() {
            let _ = fs::rename(new, root.join(STATE_FILE));
        }
    }
}

impl Excess {
    fn of(left: &BTreeMap<u32, u64>, reference_ms: u64, total_bytes_max: u64) -> Option<Self> {
        let total = left.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let mut excess = total.checked_sub(total_bytes_max).filter(|excess| *excess > 0)?;
        for (&slot, &bytes) in left.iter().rev() {
            if excess <= bytes {
                return Some(Self { reference_ms, slot, bytes: excess });
            }
            excess -= bytes;
        }
        None
    }

    fn claims(&mut self, file: &OutputFile) -> bool {
        let slot = age_slot(file, self.reference_ms);
        let is_claimed = slot > self.slot || slot == self.slot && self.bytes > 0;
        if is_claimed && slot == self.slot {
            self.bytes = self.bytes.saturating_sub(file.bytes);
        }
        is_claimed
    }
}

fn age_slot(file: &OutputFile, reference_ms: u64) -> u32 {
    slot_of(reference_ms.saturating_sub(millis(file.changed)))
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excess_is_the_oldest_bytes_beyond_the_total() {
        let left = BTreeMap::from([(1, 10), (5, 10), (9, 10)]);
        let check = |total: u64, expected: Option<(u32, u64)>| {
            let excess = Excess::of(&left, 7, total);
            assert_eq!(excess.map(|excess| (excess.slot, excess.bytes)), expected, "{total}");
        };
        check(30, None);
        check(29, Some((9, 1)));
        check(20, Some((9, 10)));
        check(15, Some((5, 5)));
        check(0, Some((1, 10)));
    }

    #[test]
    fn a_recent_sweep_is_left_alone_unless_the_clock_went_back() {
        let now = UNIX_EPOCH + Duration::from_hours(1_000);
        let recent = |not_before: SystemTime| {
            SweepState { not_before_ms: millis(not_before), ..SweepState::default() }.is_recent(now)
        };
        assert!(recent(now + Duration::from_secs(1)));
        assert!(!recent(now));
        assert!(!recent(now + Duration::from_hours(1)));
    }
}
