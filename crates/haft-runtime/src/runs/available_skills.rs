//! The skills of a run: the skills that the request activates, and the skills that the model can read.

use haft_config::expand::VariableSource;
use haft_config::skills::{Skill, Skills};

/// The maximum number of skills that the system text lists.
const LINES_MAX: usize = 100;

/// The skills that the system text describes.
#[derive(Debug, Clone, Default)]
pub struct AvailableSkills {
    /// One line for each inactive skill whose requirements are met.
    pub lines: Vec<String>,
    /// The names and bodies of the skills that the request activates.
    pub active: Vec<(String, String)>,
}

impl Default for &AvailableSkills {
    fn default() -> Self {
        static NONE: AvailableSkills = AvailableSkills { lines: Vec::new(), active: Vec::new() };
        &NONE
    }
}

impl AvailableSkills {
    /// Collects the active skills with their bodies, and one line for every other skill whose requirements are met.
    pub fn of(found: &Skills, active: &[Skill], variables: VariableSource<'_>) -> Self {
        let is_active = |skill: &&Skill| active.iter().any(|other| other.name == skill.name);
        let others =
            found.skills.iter().filter(|skill| !is_active(skill) && skill.missing(variables).is_empty());
        Self {
            lines: others.map(Skill::prompt_line).take(LINES_MAX).collect(),
            active: active.iter().map(|skill| (skill.name.clone(), skill.body.clone())).collect(),
        }
    }
}
