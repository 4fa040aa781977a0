//! Claude Code as a model: runs the `claude` command in print mode and resumes its session for each turn.
//!
//! The command is an agent itself. When a request offers tools, haft acts as an MCP server for the command, over its
//! standard streams. A call ends the reply, and the next request passes the result to the same process. Each use of one
//! of the command's own tools becomes such a call too, because a hook asks haft first. This module does not start
//! processes: the embedding program implements [`StartCommand`]. Start reading at [`ClaudeCode`]; `command.rs`,
//! `control.rs`, `prompt.rs`, `reader.rs`, `resume.rs` and `tool_uses.rs` are pure.

mod allowed;
mod command;
mod control;
mod process;
mod prompt;
mod provider;
mod reader;
mod resume;
mod session;
mod tool_uses;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

pub use haft_core::settings::models::{
    CLAUDE_CODE as NAME, CLAUDE_CODE_COMMAND as COMMAND, CLAUDE_CODE_RESUMES_MAX as RESUMES_MAX,
    CLAUDE_CODE_TURNS_MAX as TURNS_MAX,
};
pub use process::{ClaudeCommand, ClaudeExit, CommandInput, RunningCommand, StartCommand};
pub use provider::ClaudeCode;

/// The model names for simple and for difficult steps. Both are aliases of Claude Code for its newest model of each
/// kind.
pub const MODEL_FAST: &str = "sonnet";
pub const MODEL_COMPLEX: &str = "opus";

/// The time limit for a request, including all work that Claude Code does for it.
pub const TIMEOUT: Duration = Duration::from_hours(1);

/// The delay before a session is resumed for the first time. Each further delay is twice as long.
pub const RESUME_DELAY: Duration = Duration::from_secs(2);

/// The maximum time that the `claude` process waits for the results of its calls. After this time haft ends the
/// process, and the resumed session gets the results.
pub const CALL_WAIT_MAX: Duration = Duration::from_mins(10);

/// The time limit that Claude Code gets for an answer of haft's hook. It is longer than `CALL_WAIT_MAX`, because after
/// the time limit Claude Code would decide itself.
const PERMISSION_HOOK_TIMEOUT: Duration = Duration::from_hours(24);

/// The namespace of calls that request permissions: `claude_code__Bash` requests permission for the command's own tool
/// `Bash`.
pub const PERMISSIONS: &str = "claude_code";

/// The settings of the `claude` command.
#[derive(Debug)]
pub struct ClaudeCodeSettings {
    pub name: Arc<str>,
    pub turns_max: u32,
    /// The tools of Claude Code itself. A tool that is listed by its name, such as `Read`, needs no permission. With a
    /// pattern, such as `Bash(git *)`, only matching calls need no permission.
    pub own_tools: Vec<String>,
    pub timeout: Duration,
    pub resumes_max: u32,
    pub resume_delay: Duration,
}

impl ClaudeCodeSettings {
    /// Returns the names of Claude Code's own tools: `Bash(git *)` becomes `Bash`.
    fn own_tool_names(&self) -> Vec<&str> {
        own_tool_names(&self.own_tools)
    }
}

/// Returns the names of tools, without patterns and without duplicates.
pub fn own_tool_names(own_tools: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> =
        own_tools.iter().map(|tool| tool.split_once('(').map_or(tool.as_str(), |(name, _)| name)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

impl Default for ClaudeCodeSettings {
    fn default() -> Self {
        Self {
            name: NAME.into(),
            turns_max: TURNS_MAX,
            own_tools: Vec::new(),
            timeout: TIMEOUT,
            resumes_max: RESUMES_MAX,
            resume_delay: RESUME_DELAY,
        }
    }
}

#[cfg(test)]
mod tests;
