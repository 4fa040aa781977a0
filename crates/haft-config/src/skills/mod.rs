//! Skills: a skill is a file `SKILL.md` with instructions for a model, the words that trigger it, and the MCP servers
//! that it needs.
//!
//! Start with [`Skill`] and [`load`]. `front_matter` splits a file, `read` reads its keys from TOML or YAML, and its
//! servers are checked like the servers of `haft.json`. `find` locates skills and leaves out untrusted ones. This
//! module starts no server: the code that prepares a run selects the [`matching`](Skills::matching) skills and adds
//! their servers.

mod error;
mod find;
mod front_matter;
mod read;
mod requires;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use error::SkillError;
pub use find::{Skills, is_foreign_skill, load, project_skill_files};
pub use requires::{MissingRequirement, SkillRequirements};

use crate::ResolvedConfig;
use crate::expand::VariableSource;
use crate::resolved::McpServerSettings;

/// The name of a skill file. Each skill file is in its own directory.
pub const FILE_NAME: &str = "SKILL.md";

/// The maximum size of a skill file, in bytes.
pub const SKILL_BYTES_MAX: usize = 256 << 10;

/// One skill, with all its keys checked and resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    pub name: String,
    pub description: String,
    /// The words that trigger the skill, in lower case.
    pub triggers: Vec<String>,
    pub requires: SkillRequirements,
    /// The servers of the skill, ready to be added to [`ResolvedConfig::mcp_servers`].
    pub servers: BTreeMap<String, McpServerSettings>,
    /// The instructions of the skill for the model.
    pub body: String,
    pub path: PathBuf,
    /// The text of the whole file. A run stores this text, so that the run can continue with the same skill after the
    /// file has changed.
    pub text: String,
    /// Warnings about unknown keys. Skills for other programs have keys of their own.
    pub warnings: Vec<SkillError>,
}

impl Skill {
    /// Reads a skill, or returns every error in it. `variables` is the environment; the servers of the skill see only
    /// the variables that the skill requires.
    pub fn read(
        path: &std::path::Path,
        text: &str,
        variables: VariableSource<'_>,
    ) -> Result<Self, Vec<SkillError>> {
        read::read(path, text, variables)
    }

    /// Returns true if a request contains one of the triggers, ignoring case.
    pub fn is_triggered_by(&self, request: &str) -> bool {
        let request = request.to_lowercase();
        self.triggers.iter().any(|trigger| request.contains(trigger.as_str()))
    }

    /// Returns the requirements that are not met.
    pub fn missing(&self, variables: VariableSource<'_>) -> Vec<MissingRequirement> {
        self.requires.missing(variables)
    }

    /// Describes the skill in one line for a model that may read it: its purpose and its path.
    pub fn prompt_line(&self) -> String {
        format!("- {}: {} (read `{}`)", self.name, self.description, self.path.display())
    }
}

/// Returns the skills that a request triggers, in their order.
pub fn matching<'s>(skills: impl IntoIterator<Item = &'s Skill>, request: &str) -> Vec<&'s Skill> {
    skills.into_iter().filter(|skill| skill.is_triggered_by(request)).collect()
}

/// Adds the servers of skills. A server that the operator configured under the same name is kept; of two skills, the
/// first is used.
pub fn add_servers<'s>(config: &mut ResolvedConfig, skills: impl IntoIterator<Item = &'s Skill>) {
    for (name, server) in skills.into_iter().flat_map(|skill| &skill.servers) {
        config.mcp_servers.entry(name.clone()).or_insert_with(|| server.clone());
    }
}

#[cfg(test)]
mod tests;
