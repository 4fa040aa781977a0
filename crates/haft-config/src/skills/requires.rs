//! The programs and variables that a skill requires, and the missing ones.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::expand::VariableSource;

/// The programs and variables that a skill requires.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SkillRequirements {
    /// Programs that must be in a directory of `PATH`.
    pub programs: Vec<String>,
    /// Variables that must be set. The skill's servers get no other variables.
    pub variables: Vec<String>,
}

/// A requirement of a skill that is not met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingRequirement {
    #[error("program `{0}` is not on PATH")]
    Program(String),
    #[error("variable `{0}` is not set")]
    Variable(String),
}

impl SkillRequirements {
    pub(super) fn missing(&self, variables: VariableSource<'_>) -> Vec<MissingRequirement> {
        let path = variables("PATH").unwrap_or_default();
        let programs = self.programs.iter().filter(|program| !is_on(&path, program));
        let unset = self.variables.iter().filter(|name| variables(name).is_none_or(|value| value.is_empty()));
        programs
            .cloned()
            .map(MissingRequirement::Program)
            .chain(unset.cloned().map(MissingRequirement::Variable))
            .collect()
    }
}

/// Returns true if a program can be run by its name.
fn is_on(path: &str, program: &str) -> bool {
    let runs = |directory: &str| {
        let found = Path::new(directory).join(program).metadata();
        found.is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    !program.contains('/') && path.split(':').filter(|directory| !directory.is_empty()).any(runs)
}
