//! Which binary is started as the launcher.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::WorkerFn;
use crate::error::SandboxError;
use crate::system;

/// Set when this binary can be its own launcher.
static INITIALISED: OnceLock<()> = OnceLock::new();

/// To be called at the top of `main`, before any thread is started.
///
/// When this process was started as a launcher, it does a launcher's work and never returns. Otherwise it only notes
/// that this binary can be started again as one. `workers` are the functions that may run confined, by name.
pub fn init(workers: &[(&str, WorkerFn)]) {
    if env::args_os().nth(1).is_some_and(|first| first == system::MAGIC) {
        let probe: (&str, WorkerFn) = (crate::PROBE, drop);
        let all: Vec<(&str, WorkerFn)> = workers.iter().copied().chain([probe]).collect();
        system::main(&all);
    }
    INITIALISED.get_or_init(|| ());
}

/// The binary that is started for every confined command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    path: PathBuf,
}

impl Launcher {
    /// A particular binary: one whose `main` begins with `init`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Ourselves after `init`; else `HAFT_LAUNCHER`, else the `haft` beside us, else the `haft` on PATH.
    pub fn find() -> Result<Self, SandboxError> {
        if INITIALISED.get().is_some() {
            return Ok(Self::at(system::ourselves()));
        }
        let named = env::var_os("HAFT_LAUNCHER").map(PathBuf::from);
        named.or_else(beside_us).or_else(on_path).map(Self::at).ok_or(SandboxError::NoLauncher)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Test binaries lie one directory below the programs they are built with.
fn beside_us() -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let directory = own.parent()?;
    let parent = directory.parent().filter(|_| directory.ends_with("deps"));
    [Some(directory), parent]
        .into_iter()
        .flatten()
        .map(|place| place.join("haft"))
        .find(|path| is_program(path, &own))
}

fn on_path() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .filter(|place| place.is_absolute())
        .map(|place| place.join("haft"))
        .find(|path| path.is_file())
}

fn is_program(path: &Path, own: &Path) -> bool {
    path.is_file() && path != own
}
