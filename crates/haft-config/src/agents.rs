//! Agents: Markdown files with YAML before it, read, checked and resolved into what holds.
//!
//! Start with [`Agent::read`]. A file is split (`front_matter`), its keys are read as they are written (`written`), checked
//! and given their defaults (`resolved`), and its text gets its variables and includes (`body`). Nothing here opens a file:
//! whoever reads an agent passes in how. [`cycle`] looks at many agents together.

mod body;
pub mod crew;
pub mod cycle;
mod error;
mod front_matter;
mod overrides;
mod resolved;
pub mod shelf;
mod value;
mod written;

pub use error::AgentError;
pub use overrides::{Override, Overrides};
pub use resolved::{Agent, Input, InputFormat, Reach, ReportBy, ToolOutput};
pub use written::KEYS;

/// How an agent's file reaches beyond itself. Passed in, so that reading knows no disk and no environment.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The text of a file, named as in the agent's file; the error is a sentence for a person.
    pub read: &'a dyn Fn(&str) -> Result<String, String>,
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl std::fmt::Debug for Around<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Around").finish_non_exhaustive()
    }
}

/// The longest file that is read, and the longest text that becomes of one.
pub const AGENT_BYTES_MAX: usize = 1024 * 1024;

impl Agent {
    /// Reads an agent. `file` is its name in errors, and the agent's own name without folder and ending.
    pub fn read(file: &str, text: &str, around: Around<'_>) -> Result<Self, AgentError> {
        if text.len() > AGENT_BYTES_MAX {
            let message = format!("the file has {} bytes, at most {AGENT_BYTES_MAX} are read", text.len());
            return Err(AgentError::new(file, 1, message));
        }
        let parts = front_matter::split(file, text)?;
        let written = written::read(file, &parts)?;
        let body = body::expand(file, parts.body, parts.body_line, around)?;
        // What is resolved knows the lines of the YAML only.
        resolved::resolve(file, written, body, around)
            .map_err(|error| AgentError { line: error.line + parts.yaml_line - 1, ..error })
    }

    /// As [`Agent::read`], with some keys said anew by whoever runs it.
    pub fn read_with(
        file: &str,
        text: &str,
        overrides: &Overrides,
        around: Around<'_>,
    ) -> Result<Self, AgentError> {
        let agent = Self::read(file, text, around)?;
        if overrides.0.is_empty() {
            return Ok(agent);
        }
        let yaml = overrides.over(front_matter::split(file, text)?.yaml)?;
        let parts = front_matter::Parts { yaml: &yaml, yaml_line: 1, body: "", body_line: 1 };
        let wrong = |error: AgentError| overrides.blame(&error);
        let written = written::read(file, &parts).map_err(wrong)?;
        resolved::resolve(file, written, agent.body, around).map_err(wrong)
    }
}

#[cfg(test)]
mod tests;
