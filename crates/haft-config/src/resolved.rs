//! The effective configuration: every default filled in, every reference checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use haft_core::name::{GroupName, QueueName};
use haft_core::naming::Scheme;
use haft_core::priority::Priority;
use haft_core::settings::limits::Limits;
use haft_core::settings::mcp::Preference;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::outputs::{Reading, StoreLimits};
use haft_core::settings::sandbox::{Access, GitMetadata};
use haft_core::tool::{Approval, Effects};
use haft_core::validate::Draft;

pub use super::mcp::{Concealed, McpReach, McpServer, Roots};
pub use super::models::{ModelName, ModelSettings, Models, Provider, Template};
pub use super::oauth::McpOauth;
use haft_core::glob::ToolGlob;
use haft_core::settings::sessions::SessionLimits;

pub use super::rest::{Login, Rest, RestTool, Secret, Spec};

/// The effective configuration. Only [`load`](super::load) builds one, so code that has one need not check it again.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub sandbox: Sandbox,
    pub naming: Scheme,
    pub tool_timeout: Duration,
    pub tool_response_bytes_max: usize,
    /// The settings of patterns of tools, the least specific first; [`Resolved::tool`] merges them for one tool.
    pub tools: Vec<(ToolGlob, Tool)>,
    pub tools_allowed: Vec<ToolGlob>,
    /// Wins over `tools_allowed`.
    pub tools_denied: Vec<ToolGlob>,
    /// Groups of tools, with nested groups expanded.
    pub groups: BTreeMap<GroupName, Vec<ToolGlob>>,
    /// `None` shows models all tools, regardless of their groups.
    pub active_groups: Option<Vec<GroupName>>,
    pub catalog: Catalog,
    /// MCP servers, by the operator's names.
    pub mcp_servers: BTreeMap<String, McpServer>,
    pub mcp_init_concurrency: usize,
    pub trace_mcp: bool,
    /// The preference for keeping server tokens in the keyring.
    pub token_store: Preference,
    pub queues: BTreeMap<QueueName, Queue>,
    pub cache: Cache,
    pub policy: Policy,
    pub tool_output: ToolOutput,
    pub sessions: Sessions,
    pub validation: Validation,
    pub telemetry: Telemetry,
    /// Providers, by the operator's names; built-in providers need no entry.
    pub providers: BTreeMap<String, Provider>,
    pub models: Models,
    /// `true` when the fast model decides which model handles a request.
    pub route: bool,
    /// `true` when models see the instructions of tool providers and skills.
    pub instructions: bool,
    pub rest: Rest,
}

/// The settings of the sandbox. Paths are absolute, but may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub mode: SandboxMode,
    /// `None`: the current directory.
    pub workspace: Option<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub readable: Vec<PathBuf>,
    /// `None` leaves it to the mode, which the command line may still change.
    pub network: Option<Access>,
    pub unix_sockets: Option<Access>,
    pub git: GitMetadata,
    pub environment: Vec<String>,
    pub limits: Limits,
}

/// The settings of one tool. A key is `None` when no matching pattern sets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tool {
    pub timeout: Option<Duration>,
    pub output: Option<Oversize>,
    pub bytes_max: Option<usize>,
    pub queue: Option<QueueName>,
    pub priority: Option<Priority>,
    pub cache: Option<CacheFor>,
    pub effects: Option<Effects>,
    pub enabled: Option<bool>,
}

/// The treatment of an output that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oversize {
    Store,
    Truncate,
    Pass,
}

/// The time for which a result may be reused without a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheFor {
    Off,
    Time(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalog {
    pub tools_per_provider_max: usize,
    pub warmup_timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub concurrent: usize,
    pub waiting_max: usize,
    /// `None`: the queue sets no limit of its own.
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    pub entries_max: u64,
    pub bytes_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub default: Approval,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub tool: ToolGlob,
    /// A pattern of commands; only in rules whose `tool` matches `bash`.
    pub command: Option<String>,
    pub decision: Approval,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    pub enabled: bool,
    /// The way a stored output is read when the reader asks for no particular part.
    pub reading: Reading,
    /// The limits of the store.
    pub limits: StoreLimits,
}

/// The settings for recording runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    pub enabled: bool,
    pub limits: SessionLimits,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    pub strict: bool,
    pub draft: Draft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Telemetry {
    pub capture_content: bool,
}

impl Resolved {
    /// Returns the settings of a tool. Of all patterns that match it, the most specific one wins for each key.
    pub fn tool(&self, name: &str) -> Tool {
        let named = self.tools.iter().filter(|(glob, _)| glob.matches(name));
        named.fold(Tool::default(), |below, (_, above)| above.clone().over(below))
    }
}

impl Tool {
    fn over(self, below: Tool) -> Tool {
        Tool {
            timeout: self.timeout.or(below.timeout),
            output: self.output.or(below.output),
            bytes_max: self.bytes_max.or(below.bytes_max),
            queue: self.queue.or(below.queue),
            priority: self.priority.or(below.priority),
            cache: self.cache.or(below.cache),
            effects: self.effects.or(below.effects),
            enabled: self.enabled.or(below.enabled),
        }
    }
}
