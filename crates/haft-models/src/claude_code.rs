//! Claude Code as a model: the `claude` command in print mode, with a session of its own that is taken up again.
//!
//! The command is an agent itself. A request that offers tools lets it use its own tools and the MCP servers that were handed
//! over; one that offers none gets it without any. It never asks for calls of ours. How a process is started is not
//! known here: [`StartCommand`] is the seam, and who wires haft together fulfils it. Start reading at [`ClaudeCode`];
//! `command.rs`, `prompt.rs`, `lines.rs`, `reader.rs` and `resume.rs` are pure.

mod command;
mod lines;
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
pub use process::{Ended, Order, RunningCommand, StartCommand};
pub use provider::ClaudeCode;

/// The models for simple and for difficult steps, as the command itself names the newest of each.
pub const MODEL_FAST: &str = "sonnet";
pub const MODEL_COMPLEX: &str = "opus";

/// How long a request may take, with everything that the command does for it.
pub const TIMEOUT: Duration = Duration::from_hours(1);

/// How long is waited before the first time; each next wait is twice as long.
pub const RESUME_DELAY: Duration = Duration::from_secs(2);

/// How the command is used.
#[derive(Debug)]
pub struct ClaudeCodeSettings {
    pub name: Arc<str>,
    pub turns_max: u32,
    /// The tools of the command that need no permission; nothing leaves it to the command's own settings, an empty list takes
    /// all tools away.
    pub allowed_tools: Option<Vec<String>>,
    pub servers: Option<HandedOver>,
    pub timeout: Duration,
    pub resumes_max: u32,
    pub resume_delay: Duration,
}

/// MCP servers that the command starts for itself.
#[derive(Debug)]
pub struct HandedOver {
    pub names: Vec<String>,
    /// `{"mcpServers": …}`, as the command reads it. It may hold secrets.
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
