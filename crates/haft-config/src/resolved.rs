//! The effective configuration, with defaults filled in and references checked.

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
pub use super::gateway::{GatewayListing, GatewayProfileSettings, GatewaySettings, SelectedTools};
pub use super::mcp::{ExpandedSecret, McpEndpoint, McpRootsReply, McpServerSettings, WrittenTarget};
pub use super::models::{ModelName, ModelSelection, ModelSettings, ProviderSettings, SecretTemplate};
pub use super::oauth::McpOauthSettings;
use haft_core::glob::ToolGlob;
use haft_core::settings::sessions::SessionLimits;

pub use super::rest::{OpenapiSettings, RestCredentials, RestSettings, RestToolSettings, Secret};
pub use super::serve::{
    ServeRunLimits, ServeSettings, StorageSettings, TlsFiles, TokenIssuerSettings, TokenTenant,
    WebhookSecret, WebhookSettings, WorkspaceScope, WorkspaceSettings, is_loopback,
};

/// The effective configuration. Only [`load`](super::load) builds one, so code that uses a configuration need not check
/// it again.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each field is a key of haft.json")]
pub struct ResolvedConfig {
    pub sandbox: SandboxSettings,
    pub naming: NamingScheme,
    pub tool_timeout: Duration,
    pub tool_response_bytes_max: usize,
    /// The settings of tools by pattern, the least specific first; [`ResolvedConfig::tool`] merges them for one tool.
    pub tools: Vec<(ToolGlob, PerToolSettings)>,
    pub tools_allowed: Vec<ToolGlob>,
    /// Patterns of tools to deny. They take precedence over `tools_allowed`.
    pub tools_denied: Vec<ToolGlob>,
    /// Groups of tools, with nested groups expanded.
    pub groups: BTreeMap<GroupName, Vec<ToolGlob>>,
    /// The active groups; `None` shows all tools to models, whatever their groups.
    pub active_groups: Option<Vec<GroupName>>,
    /// The settings that decide which tools a model sees, and how it finds the others.
    pub tool_search: ToolSearchSettings,
    pub catalog: CatalogSettings,
    /// The settings of the MCP gateway.
    pub gateway: GatewaySettings,
    /// MCP servers, by the names in the configuration.
    pub mcp_servers: BTreeMap<String, McpServerSettings>,
    pub mcp_starts_max: usize,
    /// The maximum time that a run waits for servers whose tools are not known yet.
    pub mcp_ready_wait: Duration,
    pub trace_mcp: bool,
    /// Whether tokens of servers are kept in the keyring.
    pub token_store: KeyringPreference,
    pub queues: BTreeMap<QueueName, QueueSettings>,
    pub cache: CacheSettings,
    pub policy: PolicySettings,
    pub tool_output: ToolOutputSettings,
    /// The compaction rules for long conversations; an agent may change them.
    pub compaction: CompactionSettings,
    pub sessions: SessionSettings,
    pub validation: ValidationSettings,
    pub telemetry: TelemetrySettings,
    /// Providers, by the names in the configuration; built-in providers need no entry.
    pub providers: BTreeMap<String, ProviderSettings>,
    pub models: ModelSelection,
    /// True if the fast model decides which model handles a request.
    pub route: bool,
    /// True if models see the instructions of tool providers and skills.
    pub instructions: bool,
    /// True if models see the trusted `AGENTS.md` and `CLAUDE.md` of the project.
    pub project_instructions: bool,
    pub rest: RestSettings,
    /// The settings of `haft serve`.
    pub serve: ServeSettings,
    /// The tool definitions that the user has accepted; `None` if there is no lock file.
    pub tool_lock: Option<Arc<ToolLock>>,
}

/// The sandbox settings. Paths are absolute, but may not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    pub mode: SandboxMode,
    /// The workspace; `None` for the current directory.
    pub workspace: Option<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub readable: Vec<PathBuf>,
    /// Paths to hide in addition to the built-in list.
    pub secrets: Vec<PathBuf>,
    /// Access to the network; `None` if the sandbox mode decides. The command line may still change the mode.
    pub network: Option<ResourceAccess>,
    pub unix_sockets: Option<ResourceAccess>,
    pub git: GitMetadata,
    pub environment: Vec<String>,
    pub limits: CommandLimits,
}

/// The settings of one tool. A value is `None` if no pattern that matches the tool sets it.
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

/// The handling of an output that is too large.
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
    /// The time limit of the queue; `None` for no limit.
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheSettings {
    pub entries_max: u64,
    pub bytes_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySettings {
    /// The decision about calls that change or send data after the run has read untrusted text.
    pub after_untrusted: ApprovalPolicy,
    pub default: ApprovalPolicy,
    /// The time for which a remembered approval is valid; `None` if it is valid until it is revoked.
    pub keep_approvals: Option<Duration>,
    pub rules: Vec<PolicyRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRule {
    pub tool: ToolGlob,
    /// A pattern for commands. Only rules whose `tool` matches `bash` have one.
    pub command: Option<String>,
    pub decision: ApprovalPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutputSettings {
    pub enabled: bool,
    /// The settings with which the tool `tool_output` reads a stored output if its caller does not select a part of the
    /// output.
    pub reading: OutputReadSettings,
    /// The limits of the output store.
    pub limits: StoreLimits,
}

/// The settings for stored runs.
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
    /// Returns the settings of a tool. For each key, the most specific matching pattern is used.
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
