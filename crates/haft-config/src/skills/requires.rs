//! What a skill needs of the machine, and what of that is not there.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::expand::Lookup;

/// Programs and variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requires {
    /// To be found in the directories of `PATH`.
    pub programs: Vec<String>,
    /// To be set, and the only ones that its servers may be given.
    pub variables: Vec<String>,
}

/// Something that is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    Program(String),
    Variable(String),
}

impl Requires {
    pub(super) fn missing(&self, variables: Lookup<'_>) -> Vec<Missing> {
        let path = variables("PATH").unwrap_or_default();
        let programs = self.programs.iter().filter(|program| !is_on(&path, program));
        let unset = self.variables.iter().filter(|name| variables(name).is_none_or(|value| value.is_empty()));
        programs.cloned().map(Missing::Program).chain(unset.cloned().map(Missing::Variable)).collect()
    }
}

/// Whether a program can be run by its name.
fn is_on(path: &str, program: &str) -> bool {
    let runs = |directory: &str| {
        let found = Path::new(directory).join(program).metadata();
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    !program.contains('/') && path.split(':').filter(|directory| !directory.is_empty()).any(runs)
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(name) => write!(f, "program `{name}` is not on PATH"),
            Self::Variable(name) => write!(f, "variable `{name}` is not set"),
        }
    }
}
