//! The effective configuration: every default filled in, every reference checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haft_core::name::{GroupName, QueueName};
use haft_core::naming::NamingScheme;
use haft_core::priority::Priority;
use haft_core::settings::limits::CommandLimits;
use haft_core::settings::mcp::KeyringPreference;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::outputs::{OutputReadSettings, StoreLimits};
use haft_core::settings::sandbox::{GitMetadata, ResourceAccess};
use haft_core::settings::tool_search::ToolSearchSettings;
use haft_core::tool::{ApprovalPolicy, Effects};
use haft_core::tool_lock::ToolLock;
use haft_core::validate::SchemaDraft;

pub use super::compaction::{AgentCompaction, CompactionSettings, CompactionStart};
pub use super::mcp::{ExpandedSecret, McpEndpoint, McpRootsReply, McpServerSettings};
pub use super::models::{ModelName, ModelSelection, ModelSettings, ProviderSettings, SecretTemplate};
pub use super::oauth::McpOauthSettings;
use haft_core::glob::ToolGlob;
use haft_core::settings::sessions::SessionLimits;

pub use super::rest::{OpenapiSettings, RestCredentials, RestSettings, RestToolSettings, Secret};

/// The effective configuration. Only [`load`](super::load) builds one, so code that has one need not check it again.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a key of haft.json")]
pub struct ResolvedConfig {
    pub sandbox: SandboxSettings,
    pub naming: NamingScheme,
    pub tool_timeout: Duration,
    pub tool_response_bytes_max: usize,
    /// The settings of patterns of tools, the least specific first; [`ResolvedConfig::tool`] merges them for one tool.
    pub tools: Vec<(ToolGlob, PerToolSettings)>,
    pub tools_allowed: Vec<ToolGlob>,
    /// Wins over `tools_allowed`.
    pub tools_denied: Vec<ToolGlob>,
    /// Groups of tools, with nested groups expanded.
    pub groups: BTreeMap<GroupName, Vec<ToolGlob>>,
    /// `None` shows models all tools, regardless of their groups.
    pub active_groups: Option<Vec<GroupName>>,
    /// The tools that a model sees, and its way to the others.
    pub tool_search: ToolSearchSettings,
    pub catalog: CatalogSettings,
    /// MCP servers, by the operator's names.
    pub mcp_servers: BTreeMap<String, McpServerSettings>,
    pub mcp_starts_max: usize,
    /// The longest time that a run waits for servers whose tools are not known yet.
    pub mcp_ready_wait: Duration,
    pub trace_mcp: bool,
    /// The preference for keeping server tokens in the keyring.
    pub token_store: KeyringPreference,
    pub queues: BTreeMap<QueueName, QueueSettings>,
    pub cache: CacheSettings,
    pub policy: PolicySettings,
    pub tool_output: ToolOutputSettings,
    /// The rules for making a long conversation smaller; an agent may change them.
    pub compaction: CompactionSettings,
    pub sessions: SessionSettings,
    pub validation: ValidationSettings,
    pub telemetry: TelemetrySettings,
    /// Providers, by the operator's names; built-in providers need no entry.
    pub providers: BTreeMap<String, ProviderSettings>,
    pub models: ModelSelection,
    /// `true` when the fast model decides which model handles a request.
    pub route: bool,
    /// `true` when models see the instructions of tool providers and skills.
    pub instructions: bool,
    /// `true` when models see the trusted `AGENTS.md` and `CLAUDE.md` of the project.
    pub project_instructions: bool,
    pub rest: RestSettings,
    /// The definitions of tools that a person has agreed to; `None` if there is no lock file.
    pub tool_lock: Option<Arc<ToolLock>>,
}

/// The settings of the sandbox. Paths are absolute, but may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    pub mode: SandboxMode,
    /// `None`: the current directory.
    pub workspace: Option<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub readable: Vec<PathBuf>,
    /// Paths to hide in addition to the built-in list.
    pub secrets: Vec<PathBuf>,
    /// `None` leaves it to the mode, which the command line may still change.
    pub network: Option<ResourceAccess>,
    pub unix_sockets: Option<ResourceAccess>,
    pub git: GitMetadata,
    pub environment: Vec<String>,
    pub limits: CommandLimits,
}

/// The settings of one tool. A key is `None` when no matching pattern sets it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerToolSettings {
    pub timeout: Option<Duration>,
    pub idle_timeout: Option<Duration>,
    pub output: Option<OversizeAction>,
    pub bytes_max: Option<usize>,
    pub queue: Option<QueueName>,
    pub priority: Option<Priority>,
    pub cache: Option<CacheTtl>,
    pub effects: Option<Effects>,
    pub enabled: Option<bool>,
}

/// The treatment of an output that is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OversizeAction {
    Store,
    Truncate,
    Pass,
}

/// The time for which a result may be reused without a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheTtl {
    Off,
    Time(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogSettings {
    pub tools_per_provider_max: usize,
    pub warmup_timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    pub concurrent: usize,
    pub waiting_max: usize,
    /// `None`: the queue sets no limit of its own.
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    pub entries_max: u64,
    pub bytes_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySettings {
    /// The decision about calls that change or send something after the run has read untrusted text.
    pub after_untrusted: ApprovalPolicy,
    pub default: ApprovalPolicy,
    /// The time for which a remembered approval counts. `None`: until it is revoked.
    pub keep_approvals: Option<Duration>,
    pub rules: Vec<PolicyRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    pub tool: ToolGlob,
    /// A pattern of commands; only in rules whose `tool` matches `bash`.
    pub command: Option<String>,
    pub decision: ApprovalPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutputSettings {
    pub enabled: bool,
    /// Selects how `tool_output` reads an output if the question names no part of it.
    pub reading: OutputReadSettings,
    /// The limits of the store.
    pub limits: StoreLimits,
}

/// The settings for recording runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    pub enabled: bool,
    pub limits: SessionLimits,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidationSettings {
    pub strict: bool,
    pub draft: SchemaDraft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TelemetrySettings {
    pub capture_content: bool,
}

impl ResolvedConfig {
    /// Returns the settings of a tool. Of all patterns that match it, the most specific one wins for each key.
    pub fn tool(&self, name: &str) -> PerToolSettings {
        let named = self.tools.iter().filter(|(glob, _)| glob.matches(name));
        named.fold(PerToolSettings::default(), |below, (_, above)| above.clone().over(below))
    }
}

impl PerToolSettings {
    fn over(self, below: PerToolSettings) -> PerToolSettings {
        PerToolSettings {
            timeout: self.timeout.or(below.timeout),
            idle_timeout: self.idle_timeout.or(below.idle_timeout),
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
