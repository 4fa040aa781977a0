//! Reads, checks and resolves agent files: Markdown files with YAML front matter.
//!
//! Start with [`AgentDefinition::read`]. `front_matter` splits an agent file into keys and text. `written` reads the
//! keys, `resolved` checks them and fills in defaults, and `body` expands the variables and includes in the text. None
//! of these modules opens a file: the caller, such as `loader`, passes in the functions that read files and variables.
//! If an agent file belongs to another program, `foreign` translates it first. [`cycle`] finds agents that would call
//! each other forever.

mod body;
pub mod cycle;
mod error;
mod foreign;
mod front_matter;
pub mod graph;
pub mod loader;
mod overrides;
mod resolved;
mod value;
mod written;

pub use error::AgentError;
pub use foreign::BUILTINS as TRANSLATED_BUILTINS;
pub use overrides::{AgentOverride, AgentOverrides};
pub use resolved::{
    AgentAccess, AgentDefinition, AgentInput, AgentToolOutput, DefaultText, InputFormat, ModelParameters,
    ReportDelivery, UnpricedModels,
};
pub use written::KEYS;

/// Access to files and variables while an agent is read. The caller passes it in, so that reading an agent needs
/// neither the disk nor the environment.
#[derive(Clone, Copy)]
pub struct AgentReadContext<'a> {
    /// Returns the text of a file, by the name that the agent file uses for it. The error is a sentence for the user.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for AgentReadContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentReadContext").finish_non_exhaustive()
    }
}

/// The maximum size of an agent file, and of its text after expansion, in bytes.
pub const AGENT_BYTES_MAX: usize = 1024 * 1024;

impl AgentDefinition {
    /// Reads an agent. `file` is the file name for errors; without folder and extension, it is also the agent name.
    pub fn read(file: &str, text: &str, around: AgentReadContext<'_>) -> Result<Self, AgentError> {
        if text.len() > AGENT_BYTES_MAX {
            let message = format!("the agent file has {} bytes; the limit is {AGENT_BYTES_MAX}", text.len());
            return Err(AgentError::new(file, 1, message));
        }
        let parts = front_matter::split(file, text)?;
        let written = written::read(file, &parts)?;
        let body = body::expand(file, parts.body, parts.body_line, around)?;
        // Line numbers from `resolve` are relative to the YAML block; add its offset.
        resolved::resolve(file, written, body, around)
            .map_err(|error| AgentError { line: error.line + parts.yaml_line - 1, ..error })
    }

    /// Reads an agent as [`AgentDefinition::read`] does, with some keys overridden by the caller.
    pub fn read_with_overrides(
        file: &str,
        text: &str,
        overrides: &AgentOverrides,
        around: AgentReadContext<'_>,
    ) -> Result<Self, AgentError> {
        // Read the file without overrides first, so that an error in the file itself is reported with its line.
        let agent = Self::read(file, text, around)?;
        if overrides.0.is_empty() {
            return Ok(agent);
        }
        let yaml = overrides.over(front_matter::split(file, text)?.yaml)?;
        let parts = front_matter::AgentFileParts { yaml: &yaml, yaml_line: 1, body: "", body_line: 1 };
        let wrong = |error: AgentError| overrides.attribute_error(&error);
        let written = written::read(file, &parts).map_err(wrong)?;
        resolved::resolve(file, written, agent.body, around).map_err(wrong)
    }
}

#[cfg(test)]
mod tests;
