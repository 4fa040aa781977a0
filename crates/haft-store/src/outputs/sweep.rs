//! Removes outputs that are too old or too many, a few files at a time, in the background.
//!
//! A pass goes over all outputs in the order of their names. It removes those that are too old and sums up the rest by age.
//! The sums tell the next pass which outputs to remove for the total. A pass continues where another process left it: `haft
//! call` lives for a few milliseconds, and no such process would ever get to the end of a large store.

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

/// The number of directory entries that one step looks at.
const STEP_ENTRIES: usize = 256;

/// The pause between two steps of one process. It keeps a sweep at a few percent of one core.
const STEP_PAUSE: Duration = Duration::from_millis(20);

/// An empty directory stays for this long: the process that made it is about to create a file there.
const DIRECTORY_KEPT: Duration = Duration::from_mins(1);

/// Sweeps one store.
#[derive(Debug, Clone)]
pub(super) struct Sweeper {
    root: PathBuf,
    limits: StoreLimits,
}

/// Decides whether a sweep waits until its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// It does nothing when any process swept a moment ago.
    Routine,
    /// This process has stored so much that the store may be too large by now.
    Pressing,
}

/// One file of a store.
#[derive(Debug)]
pub(super) struct OutputFile {
    pub(super) bytes: u64,
    pub(super) changed: SystemTime,
}

impl Sweeper {
    pub(super) fn new(root: &Path, limits: StoreLimits) -> Self {
        Self { root: root.to_owned(), limits }
    }

    /// Sweeps unless another process is at it.
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

    /// Ends the pass under way. If its sums exceed the total, a second pass removes the excess. `between_steps` runs after
    /// each step that is not the last one, when its progress is stored.
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
            // A pass that removed an excess is the last one: files that cannot be removed must not keep this loop going.
            if removes_excess || !state.removes_excess() {
                SweepState::remove(&self.root, now());
                return ControlFlow::Continue(());
            }
            state.save(&self.root, now());
            between_steps()?;
        }
    }

    /// Looks at the next entries. Returns true at the end of the pass.
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
        // A run that is still writing a file would lose it, and a model asks about the newest output next.
        let may_make_room =
            !name.ends_with(PART_SUFFIX) && session.as_ref().is_none_or(|session| !session.is_newest(name));
        if is_too_old || may_make_room && state.claims(&file) {
            // A file that cannot be removed now is tried again by the next pass.
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
            // Succeeds only for an empty directory.
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

/// Locks the store against other sweeps. A file system without such locks gets sweeps at the same time: these may remove
/// more than they must, and nothing worse.
fn try_lock(root: &Path) -> Option<File> {
    let directory = File::open(root).ok()?;
    file_lock::try_lock(&directory).unwrap_or(true).then_some(directory)
}

#[cfg(test)]
mod testing {
    use super::*;

    impl Sweeper {
        /// Sweeps in this thread as if it were `now`, after any sweep in the background.
        pub(in super::super) fn run_at(&self, now: SystemTime) -> std::io::Result<()> {
            let lock = File::open(&self.root)?;
            lock.lock()?;
            self.run_locked(Urgency::Pressing, || now, Duration::ZERO);
            Ok(())
        }

        /// Does as much as a process that is killed after its first step. Returns false when there was nothing left.
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
