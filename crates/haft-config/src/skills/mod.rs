//! Skills: a `SKILL.md` that teaches a model something, says when it is wanted, and brings the MCP servers it needs.
//!
//! Start with [`Skill`] and [`load`]. A file is split (`front_matter`), its keys are read from TOML or YAML alike (`read`),
//! and its servers are checked as those of `haft.json` are. `find` knows where skills lie and which of them count. Nothing
//! here starts a server: whoever makes a run picks what is [`matching`](Skills::matching) and adds the servers.

mod error;
mod find;
mod front_matter;
mod read;
mod requires;

use std::collections::BTreeMap;
use std::path::PathBuf;

pub use error::SkillError;
pub use find::{Skills, load, project_skill_files};
pub use requires::{Missing, Requires};

use crate::Resolved;
use crate::expand::Lookup;
use crate::resolved::McpServer;

/// The name of the file, in a directory of its own.
pub const FILE_NAME: &str = "SKILL.md";

/// The longest file that is read.
pub const SKILL_BYTES_MAX: usize = 256 << 10;

/// One skill, as it is meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    pub name: String,
    pub description: String,
    /// Words that call for it, in lower case.
    pub triggers: Vec<String>,
    pub requires: Requires,
    /// What it brings, ready to stand among [`Resolved::mcp_servers`].
    pub servers: BTreeMap<String, McpServer>,
    /// What the model is to read.
    pub body: String,
    pub path: PathBuf,
}

impl Skill {
    /// Reads a skill, or tells everything that is wrong with it. `variables` are the environment; its servers see only
    /// those that it says it requires.
    pub fn read(path: &std::path::Path, text: &str, variables: Lookup<'_>) -> Result<Self, Vec<SkillError>> {
        read::read(path, text, variables)
    }

    /// Whether a request asks for it: one of its triggers stands in it, in whatever case.
    pub fn is_wanted(&self, request: &str) -> bool {
        let request = request.to_lowercase();
        self.triggers.iter().any(|trigger| request.contains(trigger.as_str()))
    }

    /// What it requires and is not there.
    pub fn missing(&self, variables: Lookup<'_>) -> Vec<Missing> {
        self.requires.missing(variables)
    }

    /// One line for a model that may read it: what it is for and where it lies.
    pub fn told(&self) -> String {
        format!("- {}: {} (read `{}`)", self.name, self.description, self.path.display())
    }
}

/// The skills that a request asks for, in their order.
pub fn matching<'s>(skills: impl IntoIterator<Item = &'s Skill>, request: &str) -> Vec<&'s Skill> {
    skills.into_iter().filter(|skill| skill.is_wanted(request)).collect()
}

/// Adds the servers of skills. What the operator configured under a name stays, and of two skills the first has it.
pub fn add_servers<'s>(config: &mut Resolved, skills: impl IntoIterator<Item = &'s Skill>) {
    for (name, server) in skills.into_iter().flat_map(|skill| &skill.servers) {
        config.mcp_servers.entry(name.clone()).or_insert_with(|| server.clone());
    }
}

#[cfg(test)]
mod tests;
