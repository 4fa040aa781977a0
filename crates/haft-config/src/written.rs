//! The configuration as written: every key, its type and its meaning.
//!
//! Everything else is generated from this table: the published schema, the check of a file, `haft config show` and the
//! document. A reader of the document sees the doc comments and the defaults; `resolve` fills in the defaults, and a
//! test keeps the two equal.

mod mcp;
pub(super) mod models;
mod oauth;
mod rest;
mod sampling;
mod serve;

use std::collections::BTreeMap;

use haft_core::compaction::CompactionRules;
use haft_core::naming::NamingScheme;
use haft_core::priority::Priority;
use haft_core::settings::mode::SandboxMode;
use haft_core::settings::sandbox::{GitMetadata, ResourceAccess};
use haft_core::settings::tool_search::{ToolExposeForm, ToolSearchMode};
use haft_core::tool::{ApprovalPolicy, Effects};
use haft_core::validate::SchemaDraft;
use schemars::JsonSchema;
use serde::Deserialize;

use super::default;
use super::resolved::OversizeAction;
use super::value_format::{
    Environment, GlobText, GroupText, MemberText, Millis, PathText, PercentText, QueueText, Ttl, group_names,
    queue_names, rest_names, tool_globs, words,
};
pub(super) use mcp::{McpDefaults, RawMcpServer, RawMcpTransport};
pub(super) use oauth::RawMcpOauth;
pub(super) use sampling::RawMcpSampling;
pub(super) use serve::{RawKeyScope, RawServe, RawTokenIssuer};

pub(super) use rest::{RawOpenapiSpec, RawRestCredentials, RawRestTool, RawStreamMode, RawStreaming};

/// The keys of `haft.json`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawConfig {
    /// The path of the schema of this file, for editors
    #[serde(rename = "$schema")]
    #[expect(dead_code, reason = "editors read it; it must not be an unknown key")]
    pub(super) schema: Option<String>,

    /// The sandbox of tools
    pub(super) sandbox: Option<RawSandbox>,

    /// The form of exposed tool names: `double` is `server__tool`, `claude` is `mcp__server__tool`, `single` is `server_tool`, `bare` is `tool`
    #[schemars(extend("default" = "double"))]
    pub(super) naming: Option<RawNaming>,

    /// The longest time for any call; the smallest limit that applies to a call wins
    #[schemars(extend("default" = default::TOOL_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(super) tool_timeout: Option<Millis>,

    /// The most bytes of an output that a model sees; `output` determines what happens to the rest
    #[schemars(range(min = 1), extend("default" = default::TOOL_RESPONSE_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) tool_response_max_bytes: Option<u64>,

    /// Settings of tools, by pattern; for each key, the most specific pattern wins
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(super) tools: Option<BTreeMap<String, RawTool>>,

    /// Patterns of tools to allow
    #[schemars(extend("default" = ["*"]))]
    pub(super) tools_allowed: Option<Vec<GlobText>>,

    /// Patterns of tools to deny; they win over `toolsAllowed`
    #[schemars(extend("default" = []))]
    pub(super) tools_denied: Option<Vec<GlobText>>,

    /// Named sets of tools: patterns, or `@name` for all tools of another group
    #[schemars(extend("propertyNames" = group_names()))]
    pub(super) groups: Option<BTreeMap<String, Vec<MemberText>>>,

    /// The groups whose tools are active; without this key all tools are. The source of a tool (`builtin`, a server, a spec) is a group too
    pub(super) active_groups: Option<Vec<GroupText>>,

    /// Whether models search for tools instead of seeing all of them: `auto` does so above 30 tools or about 4,000 tokens of definitions
    #[schemars(extend("default" = "auto"))]
    pub(super) tool_search: Option<RawToolSearch>,

    /// Patterns of tools that models always see, in addition to the built-in ones
    #[schemars(extend("default" = []))]
    pub(super) always_show: Option<Vec<GlobText>>,

    /// The way in which found tools reach a model: `auto` uses the provider's own way if it has one, `constant` never changes the list of tools, `append` adds found tools to it
    #[schemars(extend("default" = "auto"))]
    pub(super) expose: Option<RawExpose>,

    /// Limits of the sources of tools
    pub(super) catalog: Option<RawCatalog>,

    /// Settings for all MCP servers
    pub(super) mcp: Option<McpDefaults>,

    /// MCP servers, in the form that the README of a server shows
    pub(super) mcp_servers: Option<BTreeMap<String, RawMcpServer>>,

    /// The most MCP servers that start at the same time
    #[schemars(range(min = 1), extend("default" = default::MCP_STARTS_MAX))]
    pub(super) max_mcp_starts: Option<u64>,

    /// Whether haft prints every message to and from MCP servers on standard error, shortened and without secrets
    #[serde(rename = "traceMCP")]
    #[schemars(extend("default" = false))]
    pub(super) trace_mcp: Option<bool>,

    /// The store for tokens of MCP servers: `auto` uses the keyring of the desktop if one answers, else a `file` that only you can read
    #[schemars(extend("default" = "auto"))]
    pub(super) token_store: Option<RawTokenStore>,

    /// Queues that limit concurrent calls; the queue `default` serves every tool without a separate queue
    #[schemars(extend("propertyNames" = queue_names()))]
    pub(super) queues: Option<BTreeMap<String, RawQueue>>,

    /// Limits of cached outputs, in memory and in `data/cache`
    pub(super) cache: Option<RawCache>,

    /// Rules that allow, deny or ask about calls
    pub(super) policy: Option<RawPolicy>,

    /// Stored outputs
    pub(super) tool_output: Option<RawToolOutput>,

    /// Making a long conversation smaller before it fills the context of the model
    pub(super) compaction: Option<RawCompaction>,

    /// Stored runs, which can be resumed
    pub(super) sessions: Option<RawSessions>,

    /// The check of arguments against the schema of a tool
    pub(super) validation: Option<RawValidation>,

    /// Content in telemetry and JSON log lines
    pub(super) telemetry: Option<RawTelemetry>,

    /// Model providers, by a name of your own or the name of a known provider
    pub(super) providers: Option<BTreeMap<String, models::RawProvider>>,

    /// The models to use, and their settings
    pub(super) models: Option<models::RawModels>,

    /// Whether `models.fast` first chooses between itself and `models.complex` for a run without a named model
    #[schemars(extend("default" = false))]
    pub(super) route: Option<bool>,

    /// Whether models see the instructions of tool sources and skills
    #[schemars(extend("default" = true))]
    pub(super) instructions: Option<bool>,

    /// Whether models see the trusted `AGENTS.md` and `CLAUDE.md` of the project
    #[schemars(extend("default" = true))]
    pub(super) project_instructions: Option<bool>,

    /// The server of `haft serve` and `haft mcp serve --http`
    pub(super) serve: Option<RawServe>,

    /// HTTP tools, each a request template; a name becomes the tool `rest__name`
    #[schemars(extend("propertyNames" = rest_names()))]
    pub(super) rest_tools: Option<BTreeMap<String, RawRestTool>>,

    /// API descriptions (`OpenAPI` 3, Swagger 2.0) whose operations become tools `rest__name_operation`
    #[schemars(extend("propertyNames" = rest_names()))]
    pub(super) openapi_specs: Option<BTreeMap<String, RawOpenapiSpec>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSandbox {
    /// `workspace`: write only to the workspace and `/tmp`, no network; `network`: the same with network; `full`: everything except the blocklist
    #[schemars(extend("default" = "workspace"))]
    pub(super) mode: Option<RawSandboxMode>,

    /// The directory that tools work in; by default the current one
    pub(super) workspace: Option<PathText>,

    /// More directories that commands may write to
    #[schemars(extend("default" = []))]
    pub(super) writable: Option<Vec<PathText>>,

    /// Paths to remove from the list of unreadable secrets
    #[schemars(extend("default" = []))]
    pub(super) readable: Option<Vec<PathText>>,

    /// More paths that commands cannot read in `workspace` and `network`, in addition to the built-in list of secrets
    #[schemars(extend("default" = []))]
    pub(super) secrets: Option<Vec<PathText>>,

    /// Whether commands can use the network; by default the mode decides
    pub(super) network: Option<RawAccess>,

    /// Whether commands may open unix sockets; by default only in `full`
    pub(super) unix_sockets: Option<RawAccess>,

    /// Whether commands may write hooks and configuration of the workspace's git repository
    #[schemars(extend("default" = "frozen"))]
    pub(super) git: Option<RawGitMetadata>,

    /// More variables of haft's environment to pass to commands
    #[schemars(extend("default" = []))]
    pub(super) environment: Option<Vec<Environment>>,

    /// The resource limits of a command
    pub(super) limits: Option<RawSandboxLimits>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSandboxLimits {
    /// Processes and threads alive at once
    #[schemars(range(min = 301), extend("default" = limit("processes")))]
    pub(super) processes: Option<u64>,

    /// Open files per process
    #[schemars(range(min = 1), extend("default" = limit("open-files")))]
    pub(super) open_files: Option<u64>,

    /// The largest file that a command may write
    #[schemars(range(min = 1), extend("default" = limit("file-bytes"), "x-unit" = "bytes"))]
    pub(super) file_bytes: Option<u64>,

    /// CPU time per process, rounded up to seconds
    #[schemars(extend("default" = limit("cpu-seconds").map(|seconds| seconds * 1000), "x-unit" = "milliseconds"))]
    pub(super) cpu_time: Option<Millis>,

    /// Private writable memory per process
    #[schemars(range(min = 1), extend("default" = limit("memory-bytes"), "x-unit" = "bytes"))]
    pub(super) memory_bytes: Option<u64>,

    /// The size of the private `/dev/shm`
    #[schemars(range(min = 1), extend("default" = limit("shm-bytes"), "x-unit" = "bytes"))]
    pub(super) shm_bytes: Option<u64>,
}

fn limit(name: &str) -> Option<u64> {
    haft_core::settings::limits::CommandLimits::default().get(name)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTool {
    /// The longest time for a call of it
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) timeout: Option<Millis>,

    /// The longest time without a sign of progress; a call that stays silent longer is stopped
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) idle_timeout: Option<Millis>,

    /// The treatment of an output that is too large: `store` stores it and shows a handle, `truncate` cuts it, `pass` shows it whole
    pub(super) output: Option<RawOversizeAction>,

    /// The most bytes of its output that a model sees, instead of `toolResponseMaxBytes`
    #[schemars(range(min = 1), extend("x-unit" = "bytes"))]
    pub(super) max_bytes: Option<u64>,

    /// The queue for its calls
    pub(super) queue: Option<QueueText>,

    /// The priority of its waiting calls, instead of the priority of the run
    pub(super) priority: Option<RawPriority>,

    /// The time for which an output is cached, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) cache: Option<Ttl>,

    /// The effects of a call; they decide which calls run at the same time and which may be repeated
    pub(super) effects: Option<RawEffects>,

    /// Whether it is active, independent of `activeGroups`
    pub(super) enabled: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCatalog {
    /// The most tools of one server, spec or program; further tools are left out with a warning
    #[schemars(range(min = 1), extend("default" = default::TOOLS_PER_PROVIDER_MAX))]
    pub(super) max_tools_per_provider: Option<u64>,

    /// The longest time that a source of tools may take to start; a slower one is reported and left out
    #[schemars(extend("default" = default::WARMUP_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(super) warmup_timeout: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawQueue {
    /// The most calls that run at once
    #[schemars(range(min = 1), extend("default" = default::QUEUE_CONCURRENT))]
    pub(super) max_concurrency: Option<u64>,

    /// The most calls of one user that may wait; further calls are refused
    #[schemars(extend("default" = default::QUEUE_WAITING_MAX))]
    pub(super) max_waiting: Option<u64>,

    /// The longest time for a call in this queue, waiting included
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) timeout: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCache {
    /// The most cached outputs, in memory and on disk each
    #[schemars(extend("default" = default::CACHE_ENTRIES_MAX))]
    pub(super) max_entries: Option<u64>,

    /// The most bytes of all cached outputs, in memory and on disk each
    #[schemars(extend("default" = default::CACHE_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPolicy {
    /// The decision for a call that changes or sends something, once the run has read text from an MCP server, a REST service or a command with network
    #[schemars(extend("default" = "allow"))]
    pub(super) after_untrusted: Option<RawApproval>,

    /// The decision for a call that no rule matches
    #[schemars(extend("default" = "allow"))]
    pub(super) default: Option<RawApproval>,

    /// The time for which a remembered approval counts; by default until it is revoked
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) keep_approvals: Option<Millis>,

    /// The rules; the most specific match decides, and of equally specific ones `deny` wins over `ask` and `ask` over `allow`
    #[schemars(extend("default" = []))]
    pub(super) rules: Option<Vec<RawPolicyRule>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPolicyRule {
    /// A pattern of tools
    pub(super) tool: GlobText,

    /// For `bash` only: a pattern of commands
    pub(super) command: Option<String>,

    /// `allow` makes the call, `ask` asks a person, `deny` refuses it
    pub(super) decision: RawApproval,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCompaction {
    /// The share of the room for messages and tools at which compaction begins; `off` ends the run when the context is full
    #[schemars(extend("default" = default::COMPACTION_AT))]
    pub(super) at: Option<PercentText>,

    /// The most recent turns that stay word for word; fewer stay if they are large
    #[schemars(range(min = 1, max = 1000), extend("default" = CompactionRules::KEEP_TURNS_DEFAULT))]
    pub(super) keep: Option<u32>,

    /// The model that writes summaries of old turns, as `provider/model`; by default the model of the run
    pub(super) model: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawToolOutput {
    /// Whether outputs are stored; otherwise they are cut
    #[schemars(extend("default" = true))]
    pub(super) enabled: Option<bool>,

    /// The most pieces in which mode `auto` returns a stored output; a longer one is reduced to its beginning and its end
    #[schemars(range(min = 1), extend("default" = default::OUTPUT_CHUNKS_MAX))]
    pub(super) max_chunks: Option<u64>,

    /// The part of a piece that the next one repeats
    #[schemars(range(min = 0, max = 50), extend("default" = default::OUTPUT_OVERLAP_PERCENT, "x-unit" = "percent"))]
    pub(super) overlap_percent: Option<u64>,

    /// If lines have on average at least this many bytes, pieces end anywhere; otherwise they end at line ends
    #[schemars(range(min = 1), extend("default" = default::OUTPUT_AVG_LINE_BYTES, "x-unit" = "bytes"))]
    pub(super) avg_line_bytes_threshold: Option<u64>,

    /// The most bytes to store of one output; the rest is dropped, and the message with the handle says so
    #[schemars(range(min = 1), extend("default" = default::STORE_OUTPUT_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_output_bytes: Option<u64>,

    /// The most bytes of all stored outputs; the oldest are removed first
    #[schemars(range(min = 1), extend("default" = default::STORE_TOTAL_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_total_bytes: Option<u64>,

    /// The time for which an output is kept
    #[schemars(extend("default" = default::STORE_KEEP_MS, "x-unit" = "milliseconds"))]
    pub(super) keep: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSessions {
    /// Whether runs are stored; a run that is not stored cannot be resumed
    #[schemars(extend("default" = true))]
    pub(super) enabled: Option<bool>,

    /// The most bytes of one journal; a run that reaches the limit ends
    #[schemars(range(min = 1), extend("default" = default::SESSION_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_bytes: Option<u64>,

    /// The time after its last change for which a session is kept
    #[schemars(extend("default" = default::SESSION_KEEP_MS, "x-unit" = "milliseconds"))]
    pub(super) keep: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawValidation {
    /// Whether haft refuses a tool whose schema does not compile, and fails a call whose structured output does not match its schema
    #[schemars(extend("default" = false))]
    pub(super) strict: Option<bool>,

    /// The draft of JSON Schema for schemas without `$schema`
    #[schemars(extend("default" = "2020-12"))]
    pub(super) draft: Option<RawDraft>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTelemetry {
    /// Whether spans carry the arguments and results of calls, and JSON log lines the content of events; `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` wins over it
    #[schemars(extend("default" = false))]
    pub(super) capture_content: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum RawTokenStore {
    Auto,
    File,
    Keyring,
}

words! {
    pub(super) RawNaming for NamingScheme { "double" Double, "claude" Claude, "single" Single, "bare" Bare }
    pub(super) RawToolSearch for ToolSearchMode { "auto" Auto, "always" Always, "never" Never }
    pub(super) RawExpose for ToolExposeForm { "auto" Auto, "constant" Constant, "append" Append }
    pub(super) RawSandboxMode for SandboxMode { "workspace" Workspace, "network" Network, "full" Full }
    pub(super) RawAccess for ResourceAccess { "allow" Allow, "deny" Deny }
    pub(super) RawGitMetadata for GitMetadata { "frozen" Frozen, "writable" Writable }
    pub(super) RawOversizeAction for OversizeAction { "store" Store, "truncate" Truncate, "pass" Pass }
    pub(super) RawEffects for Effects {
        "read-only" ReadOnly, "idempotent" Idempotent, "mutating" Mutating, "unknown" Unknown
    }
    pub(super) RawPriority for Priority { "low" Low, "normal" Normal, "high" High }
    pub(super) RawDraft for SchemaDraft {
        "4" Draft4, "6" Draft6, "7" Draft7, "2019-09" Draft201909, "2020-12" Draft202012
    }
    pub(super) RawApproval for ApprovalPolicy { "allow" Allow, "ask" Ask, "deny" Deny }
}
