//! The skills of a run: those that the request calls for, and those that could be read.

use haft_config::Resolved;
use haft_config::expand::Lookup;
use haft_config::skills::{self, Skill, Skills};

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

/// Adds the servers of the skills that a request calls for, for this run only.
pub fn call_in(
    found: &Skills,
    request: &str,
    config: &mut Resolved,
    variables: Lookup<'_>,
) -> AvailableSkills {
    let active = found.matching(request, variables);
    skills::add_servers(config, active.iter().copied());
    let is_active = |skill: &&Skill| active.iter().any(|other| other.name == skill.name);
    let others = found.skills.iter().filter(|skill| !is_active(skill) && skill.missing(variables).is_empty());
    AvailableSkills {
        lines: others.map(Skill::told).take(LINES_MAX).collect(),
        active: active.iter().map(|skill| (skill.name.clone(), skill.body.clone())).collect(),
    }
}
