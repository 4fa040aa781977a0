//! The skills of a run: those that the request calls for, and those that could be read.

use haft_config::expand::Lookup;
use haft_config::skills::{Skill, Skills};

/// How many skills a model is told of.
const LINES_MAX: usize = 100;

/// What a model is told of skills.
#[derive(Debug, Clone, Default)]
pub struct AvailableSkills {
    /// A line for each that lacks nothing and is not active.
    pub lines: Vec<String>,
    /// The names and texts of those that the request calls for.
    pub active: Vec<(String, String)>,
}

impl Default for &AvailableSkills {
    fn default() -> Self {
        static NONE: AvailableSkills = AvailableSkills { lines: Vec::new(), active: Vec::new() };
        &NONE
    }
}

impl AvailableSkills {
    /// The active skills with their texts, and one line for every other skill whose requirements are met.
    pub fn of(found: &Skills, active: &[Skill], variables: Lookup<'_>) -> Self {
        let is_active = |skill: &&Skill| active.iter().any(|other| other.name == skill.name);
        let others =
            found.skills.iter().filter(|skill| !is_active(skill) && skill.missing(variables).is_empty());
        Self {
            lines: others.map(Skill::told).take(LINES_MAX).collect(),
            active: active.iter().map(|skill| (skill.name.clone(), skill.body.clone())).collect(),
        }
    }
}
