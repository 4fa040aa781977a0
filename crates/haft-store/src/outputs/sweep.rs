//! Removes outputs that are too old, or that exceed the total size, a few files at a time, in the background.
//!
//! A pass visits all outputs in the order of their names. It removes outputs that are too old, and adds up the sizes of
//! the others by age. The next pass uses these totals to remove the oldest outputs, until the rest is below the total
//! limit. A pass continues where another process stopped: `haft call` runs for a few milliseconds, and such a process
//! alone would never finish a pass over a large store.

mod state;
mod walk;

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use haft_core::settings::outputs::StoreLimits;
use haft_fs::file_lock;

use self::state::SweepState;
use self::walk::{StoreWalk, WalkPosition};
use super::PART_SUFFIX;
use super::session::SessionOutputs;

/// The number of directory entries that one step visits.
const STEP_ENTRIES: usize = 256;

/// The pause between two steps of one process. It limits a sweep to a few percent of one core.
const STEP_PAUSE: Duration = Duration::from_millis(20);

/// The time for which an empty directory is kept, because the process that created it may be about to create a file in
/// it.
const DIRECTORY_KEPT: Duration = Duration::from_mins(1);

/// Removes old and excess outputs of one store.
#[derive(Debug, Clone)]
pub(super) struct Sweeper {
    root: PathBuf,
    limits: StoreLimits,
}

/// Selects whether a sweep waits until it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The sweep does nothing if any process has swept recently.
    Routine,
    /// The sweep runs at once, because this process has stored so many bytes that the store may exceed its limit.
    Pressing,
}

/// One output file of a store, with its size and time of change.
#[derive(Debug)]
pub(super) struct OutputFile {
    pub(super) bytes: u64,
    pub(super) changed: SystemTime,
}

impl Sweeper {
    pub(super) fn new(root: &Path, limits: StoreLimits) -> Self {
        Self { root: root.to_owned(), limits }
    }

    /// Sweeps, unless another process is sweeping.
    pub(super) fn run(&self, urgency: Urgency) {
        if let Some(_lock) = try_lock(&self.root) {
            self.run_locked(urgency, SystemTime::now, STEP_PAUSE);
        }
    }

    fn run_locked(&self, urgency: Urgency, now: impl Fn() -> SystemTime, pause: Duration) {
        let mut state = SweepState::load(&self.root, now());
        if urgency == Urgency::Pressing || !state.is_recent(&self.root, now()) {
            let _ = self.continue_sweep(&mut state, now, || {
                std::thread::sleep(pause);
                ControlFlow::Continue(())
            });
        }
    }

    /// Finishes the current pass. If the kept outputs exceed the total limit, a second pass removes the excess.
    /// `between_steps` runs after each step except the last one, when the progress of the step is stored.
    fn continue_sweep(
        &self,
        state: &mut SweepState,
        now: impl Fn() -> SystemTime,
        between_steps: impl Fn() -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        loop {
            let removes_excess = state.removes_excess();
            let mut walk = StoreWalk::after(&self.root, state.position());
            while !self.step(state, &mut walk, now()) {
                state.save(&self.root, now());
                between_steps()?;
            }
            state.end_pass(self.limits.total_bytes_max, now());
            // Stop after a pass that removed an excess. Otherwise files that cannot be removed would keep this loop
            // running.
            if removes_excess || !state.removes_excess() {
                SweepState::remove(&self.root, now());
                return ControlFlow::Continue(());
            }
            state.save(&self.root, now());
            between_steps()?;
        }
    }

    /// Visits the next entries. Returns true at the end of the pass.
    fn step(&self, state: &mut SweepState, walk: &mut StoreWalk, now: SystemTime) -> bool {
        for _ in 0..STEP_ENTRIES {
            let Some(position) = walk.next() else { return true };
            match &position {
                WalkPosition::File { directory, name } => self.visit_file(state, directory, name, now),
                WalkPosition::End { directory } => self.visit_end(directory, now),
            }
            state.advance(position);
        }
        false
    }

    fn visit_file(&self, state: &mut SweepState, directory: &str, name: &str, now: SystemTime) {
        let directory = self.root.join(directory);
        let path = directory.join(name);
        let Some(file) = OutputFile::at(&path) else { return };
        let session = SessionOutputs::find_open(&directory);
        let is_too_old = now.duration_since(file.changed).is_ok_and(|age| age > self.limits.keep);
        // Keep files that a run is still writing, and the newest output, because the model is about to read it.
        let may_make_room =
            !name.ends_with(PART_SUFFIX) && session.as_ref().is_none_or(|session| !session.is_newest(name));
        if is_too_old || may_make_room && state.claims(&file) {
            // Ignore a failure: the next pass tries again.
            let _ = fs::remove_file(&path);
            if let Some(session) = session {
                session.remove(name);
            }
        } else {
            state.keep(&file);
        }
    }

    fn visit_end(&self, directory: &str, now: SystemTime) {
        let directory = self.root.join(directory);
        if let Some(session) = SessionOutputs::find_open(&directory) {
            session.refresh();
        }
        let is_unused =
            |found: OutputFile| now.duration_since(found.changed).is_ok_and(|age| age > DIRECTORY_KEPT);
        if OutputFile::at(&directory).is_some_and(is_unused) {
            // This succeeds only for an empty directory.
            let _ = fs::remove_dir(directory);
        }
    }
}

impl OutputFile {
    pub(super) fn at(path: &Path) -> Option<Self> {
        let meta = fs::symlink_metadata(path).ok()?;
        Some(Self { bytes: meta.len(), changed: meta.modified().ok()? })
    }
}

/// Locks the store against other sweeps. On a file system without locks, several sweeps may run at the same time; they
/// may remove more than necessary, but do no other harm.
fn try_lock(root: &Path) -> Option<File> {
    let directory = File::open(root).ok()?;
    file_lock::try_lock(&directory).unwrap_or(true).then_some(directory)
}

#[cfg(test)]
mod testing {
    use super::*;

    impl Sweeper {
        /// Sweeps in this thread as if the time were `now`, after any background sweep has ended.
        pub(in super::super) fn run_at(&self, now: SystemTime) -> std::io::Result<()> {
            let lock = File::open(&self.root)?;
            lock.lock()?;
            self.run_locked(Urgency::Pressing, || now, Duration::ZERO);
            Ok(())
        }

        /// Does the work of a process that is killed after the first step of its sweep. Returns false if no work was
        /// left.
        pub(in super::super) fn run_one_step(&self, now: SystemTime) -> std::io::Result<bool> {
            let lock = File::open(&self.root)?;
            lock.lock()?;
            let mut state = SweepState::load(&self.root, now);
            Ok(self.continue_sweep(&mut state, || now, || ControlFlow::Break(())).is_break())
        }

        pub(in super::super) fn starts_new_pass(&self, now: SystemTime) -> bool {
            let state = SweepState::load(&self.root, now);
            state.position().is_none() && !state.removes_excess()
        }
    }
}
