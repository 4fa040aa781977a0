//! Claude Code as a model: runs the `claude` command in print mode and resumes its session for each turn.
//!
//! The command is an agent itself. When a request offers tools, the command may use its own tools and the MCP servers
//! that it was given; otherwise it runs without tools. It never calls the tools in the request. This module does not
//! start processes: the embedding program implements [`StartCommand`]. Start reading at [`ClaudeCode`]; `command.rs`,
//! `prompt.rs`, `lines.rs`, `reader.rs` and `resume.rs` are pure.

mod command;
mod process;
mod prompt;
mod provider;
mod reader;
mod resume;
mod session;

use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

pub use haft_core::settings::models::{
    CLAUDE_CODE as NAME, CLAUDE_CODE_COMMAND as COMMAND, CLAUDE_CODE_RESUMES_MAX as RESUMES_MAX,
    CLAUDE_CODE_TURNS_MAX as TURNS_MAX,
};
pub use process::{ClaudeCommand, ClaudeExit, RunningCommand, StartCommand};
pub use provider::ClaudeCode;

/// The model names for simple and for difficult steps. They are the command's own aliases for the newest model of each
/// kind.
pub const MODEL_FAST: &str = "sonnet";
pub const MODEL_COMPLEX: &str = "opus";

/// The time limit for a request, including all work that the command does for it.
pub const TIMEOUT: Duration = Duration::from_hours(1);

/// The delay before the first resume. Each further delay is twice as long.
pub const RESUME_DELAY: Duration = Duration::from_secs(2);

/// The settings of the `claude` command.
#[derive(Debug)]
pub struct ClaudeCodeSettings {
    pub name: Arc<str>,
    pub turns_max: u32,
    /// The tools that the command may use without asking for permission. With `None`, the command's own settings apply;
    /// an empty list disables all tools.
    pub allowed_tools: Option<Vec<String>>,
    pub servers: Option<ClaudeMcpServers>,
    pub timeout: Duration,
    pub resumes_max: u32,
    pub resume_delay: Duration,
}

/// The MCP servers that the command itself starts.
#[derive(Debug)]
pub struct ClaudeMcpServers {
    pub names: Vec<String>,
    /// The content of the `{"mcpServers": …}` file that the command reads. It may contain secrets.
    pub config: SecretString,
}

impl Default for ClaudeCodeSettings {
    fn default() -> Self {
        Self {
            name: NAME.into(),
            turns_max: TURNS_MAX,
            allowed_tools: None,
            servers: None,
            timeout: TIMEOUT,
            resumes_max: RESUMES_MAX,
            resume_delay: RESUME_DELAY,
        }
    }
}

#[cfg(test)]
mod tests;
