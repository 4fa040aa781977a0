//! Finds the binary to start as the launcher.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::WorkerFn;
use crate::error::SandboxError;
use crate::system;

/// True after `init`: this binary can be its own launcher.
static INITIALISED: OnceLock<()> = OnceLock::new();

/// Makes this binary usable as a launcher. Call it at the top of `main`, before any thread starts.
///
/// In a process that was started as a launcher, this does the launcher's work and never returns. Otherwise it only
/// records that this binary can be started again as a launcher. `workers` are the functions that may run in the
/// sandbox, by name.
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
    /// Uses this binary as the launcher. Its `main` must start with `init`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Finds the launcher: haft's own binary after `init`, else `HAFT_LAUNCHER`, else `haft` next to this program's own
    /// binary, else `haft` in PATH.
    pub fn find() -> Result<Self, SandboxError> {
        if INITIALISED.get().is_some() {
            return Ok(Self::at(system::ourselves()));
        }
        let named = env::var_os("HAFT_LAUNCHER").map(PathBuf::from);
        named.or_else(beside_own_binary).or_else(on_path).map(Self::at).ok_or(SandboxError::NoLauncher)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Looks for `haft` next to this program's own binary. If the binary is in `deps`, also looks one directory up, because
/// cargo puts test binaries into `deps`, which is below the directory of the programs.
fn beside_own_binary() -> Option<PathBuf> {
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
        // Skip a relative entry of PATH, because it would refer to a different binary in every working directory.
        .filter(|place| place.is_absolute())
        .map(|place| place.join("haft"))
        .find(|path| path.is_file())
}

fn is_program(path: &Path, own: &Path) -> bool {
    path.is_file() && path != own
}
