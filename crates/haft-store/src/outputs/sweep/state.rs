//! The progress of a sweep, in a small file. Losing the file is harmless.

use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::OutputFile;
use super::walk::WalkPosition;
use crate::log_slots::slot_of;

/// The name of the state file, which exists only between the steps of a sweep. If it is missing or cannot be parsed, a
/// pass starts from the beginning.
const STATE_FILE: &str = ".sweep";
const NEW_STATE_FILE: &str = ".sweep.new";

/// The minimum time between two sweeps, over all processes.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// The minimum time between two steps of different processes. Without it, each of a hundred short commands in a row
/// would do one step.
const STEP_INTERVAL: Duration = Duration::from_secs(1);

/// The progress of the current pass.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct SweepState {
    /// The last entry that the pass visited.
    position: Option<WalkPosition>,
    /// The time from which the pass computes ages, in milliseconds since 1970.
    reference_ms: u64,
    /// The total size in bytes of the outputs that the pass kept, by age slot.
    left: BTreeMap<u32, u64>,
    /// The outputs that this pass removes to stay below the total limit. The previous pass computed them.
    excess: Option<OutputExcess>,
}

/// The outputs to remove: the oldest ones, until the total size is within the limit. Outputs in one age slot may be
/// removed in any order, because their ages differ by less than one percent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OutputExcess {
    reference_ms: u64,
    /// The age slot at which the removal stops. The pass removes all outputs in older slots.
    slot: u32,
    /// Outputs in `slot` are removed until this many bytes are free.
    bytes: u64,
}

impl SweepState {
    pub(super) fn load(root: &Path, now: SystemTime) -> Self {
        let stored = fs::read(root.join(STATE_FILE)).ok();
        let stored = stored.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        stored.unwrap_or_else(|| Self { reference_ms: millis(now), ..Self::default() })
    }

    /// Returns true if a step or sweep has run recently. The time of the last one is stored as the access time of the
    /// store directory. This needs no file, and if another program lists the directory, the next sweep is only delayed.
    /// A time in the future is ignored, because it comes from a clock that was set back.
    pub(super) fn is_recent(&self, root: &Path, now: SystemTime) -> bool {
        let interval = if self.is_under_way() { STEP_INTERVAL } else { SWEEP_INTERVAL };
        let last = fs::metadata(root).and_then(|meta| meta.accessed());
        last.is_ok_and(|last| now.duration_since(last).is_ok_and(|since| since < interval))
    }

    fn is_under_way(&self) -> bool {
        self.position.is_some() || self.excess.is_some()
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

    /// Returns true if the sweep has to remove the file to stay below the total limit.
    pub(super) fn claims(&mut self, file: &OutputFile) -> bool {
        self.excess.as_mut().is_some_and(|excess| excess.claims(file))
    }

    /// Adds the size of a file that the pass keeps to the totals by age.
    pub(super) fn keep(&mut self, file: &OutputFile) {
        *self.left.entry(age_slot(file, self.reference_ms)).or_default() += file.bytes;
    }

    /// Computes which outputs the next pass removes, from the totals of this pass.
    pub(super) fn end_pass(&mut self, total_bytes_max: u64, now: SystemTime) {
        *self = Self {
            reference_ms: millis(now),
            excess: OutputExcess::of(&self.left, self.reference_ms, total_bytes_max),
            ..Self::default()
        };
    }

    /// Stores the progress of a sweep. After a crash before this call, the step is repeated, and may remove a few more
    /// outputs of the oldest slot than necessary.
    pub(super) fn save(&self, root: &Path, now: SystemTime) {
        self.write(root);
        set_last_sweep(root, now);
    }

    /// Removes the state of a finished sweep. The next sweep computes the totals again, because outputs will have
    /// changed by then.
    pub(super) fn remove(root: &Path, now: SystemTime) {
        let _ = fs::remove_file(root.join(STATE_FILE));
        set_last_sweep(root, now);
    }

    /// Renames a new file over the old one, so that no reader sees a partial file. The file is not synced: after a
    /// power failure, the next pass starts from the beginning.
    fn write(&self, root: &Path) {
        let new = root.join(NEW_STATE_FILE);
        let Ok(bytes) = serde_json::to_vec(self) else { return };
        if fs::write(&new, bytes).is_ok() {
            let _ = fs::rename(new, root.join(STATE_FILE));
        }
    }
}

impl OutputExcess {
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

fn set_last_sweep(root: &Path, now: SystemTime) {
    // Ignore a failure: without the time, each process sweeps, which is only slower.
    let _ = File::open(root).and_then(|root| root.set_times(FileTimes::new().set_accessed(now)));
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
    fn oldest_slots_are_removed_first_to_stay_below_the_limit() {
        let left = BTreeMap::from([(1, 10), (5, 10), (9, 10)]);
        let check = |total: u64, expected: Option<(u32, u64)>| {
            let excess = OutputExcess::of(&left, 7, total);
            assert_eq!(excess.map(|excess| (excess.slot, excess.bytes)), expected, "{total}");
        };
        check(30, None);
        check(29, Some((9, 1)));
        check(20, Some((9, 10)));
        check(15, Some((5, 5)));
        check(0, Some((1, 10)));
    }

    #[test]
    fn sweep_is_recent_only_if_it_was_within_the_past_interval() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let check = |state: &SweepState, last: SystemTime, expected: bool| {
            set_last_sweep(dir.path(), last);
            assert_eq!(state.is_recent(dir.path(), now), expected, "{last:?} {state:?}");
        };
        let ended = SweepState::default();
        let under_way = SweepState {
            position: Some(WalkPosition::End { directory: "x".into() }),
            ..SweepState::default()
        };
        check(&ended, now - Duration::from_secs(59), true);
        check(&ended, now - Duration::from_mins(1), false);
        check(&under_way, now - Duration::from_millis(900), true);
        check(&under_way, now - Duration::from_secs(1), false);
        check(&ended, now + Duration::from_secs(1), false);
    }
}
