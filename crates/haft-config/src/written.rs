//! The configuration as the file contains it, before defaults are applied: every key, its type and its meaning.
//!
//! The published schema, the check of a file, `haft config show` and `docs/configuration.md` are all derived from these
//! types: the doc comment of a field is its description for users. `resolve` fills in the defaults, and a test checks
//! that they are equal to the documented ones.

mod gateway;
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
use haft_core::settings::mcp::{KeyringPreference, RequestedServers};
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
pub(super) use gateway::{RawGateway, RawGatewayProfile};
pub(super) use mcp::{McpDefaults, RawMcpServer, RawMcpTransport};
pub(super) use oauth::{RawIdentityProvider, RawMcpOauth};
pub(super) use sampling::RawMcpSampling;
pub(super) use serve::{RawKeyScope, RawServe, RawTokenIssuer, RawWebhook};

pub(super) use rest::{RawOpenapiSpec, RawRestCredentials, RawRestTool, RawStreamMode, RawStreaming};

/// The keys of `haft.json`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawConfig {
    /// The path or URL of the JSON Schema for this file; only editors use it
    #[serde(rename = "$schema")]
    #[expect(dead_code, reason = "editors read this key, so haft must accept it")]
    pub(super) schema: Option<String>,

    /// Settings of the sandbox that tools run in
    pub(super) sandbox: Option<RawSandbox>,

    /// The form of the tool names that models see: `double` is `server__tool`, `claude` is `mcp__server__tool`, `single` is `server_tool`, `bare` is `tool`
    #[schemars(extend("default" = "double"))]
    pub(super) naming: Option<RawNaming>,

    /// The time limit for every tool call; if several time limits apply to a call, the shortest is used
    #[schemars(extend("default" = default::TOOL_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(super) tool_timeout: Option<Millis>,

    /// The maximum size of an output that a model gets in full; `tools.<name>.output` sets what happens to a larger output
    #[schemars(range(min = 1), extend("default" = default::TOOL_RESPONSE_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_tool_response_bytes: Option<u64>,

    /// Settings of tools, by tool pattern; if several patterns set the same key for a tool, the most specific pattern wins
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(super) tools: Option<BTreeMap<String, RawTool>>,

    /// The tools to allow
    #[schemars(extend("default" = ["*"]))]
    pub(super) tools_allowed: Option<Vec<GlobText>>,

    /// The tools to deny, even if `toolsAllowed` allows them
    #[schemars(extend("default" = []))]
    pub(super) tools_denied: Option<Vec<GlobText>>,

    /// Named sets of tools; each is a list of tool patterns, and `@name` includes all tools of another group
    #[schemars(extend("propertyNames" = group_names()))]
    pub(super) groups: Option<BTreeMap<String, Vec<MemberText>>>,

    /// The groups whose tools are active; without this key, all tools are active. Every tool source (`builtin`, an MCP server, an OpenAPI document) is a group too
    pub(super) active_groups: Option<Vec<GroupText>>,

    /// Whether models search for tools instead of seeing all of them; with `auto` they do if there are more than 30 tools or if the tool definitions have more than about 4,000 tokens
    #[schemars(extend("default" = "auto"))]
    pub(super) tool_search: Option<RawToolSearch>,

    /// The tools that models see without a search, in addition to the built-in tools
    #[schemars(extend("default" = []))]
    pub(super) always_show: Option<Vec<GlobText>>,

    /// How a model gets the tools that a search found: `constant` never changes the tool list, and the model calls found tools with `tool_call`; `append` adds the found tools to the tool list; `auto` uses the tool search of the provider if there is one, and otherwise works like `constant`
    #[schemars(extend("default" = "auto"))]
    pub(super) expose: Option<RawExpose>,

    /// Limits for tool sources
    pub(super) catalog: Option<RawCatalog>,

    /// Settings that apply to all MCP servers
    pub(super) mcp: Option<McpDefaults>,

    /// Settings of the MCP gateway: `haft mcp serve`, and `/mcp` of `haft serve`
    pub(super) gateway: Option<RawGateway>,

    /// MCP servers by name, in the `mcpServers` form that server READMEs show
    pub(super) mcp_servers: Option<BTreeMap<String, RawMcpServer>>,

    /// The maximum number of MCP servers that start at the same time
    #[schemars(range(min = 1), extend("default" = default::MCP_STARTS_MAX))]
    pub(super) max_mcp_starts: Option<u64>,

    /// Whether haft prints every message to and from MCP servers on standard error, shortened and without secrets
    #[serde(rename = "traceMCP")]
    #[schemars(extend("default" = false))]
    pub(super) trace_mcp: Option<bool>,

    /// The store for the tokens of MCP servers: `keyring` is the desktop keyring (only in builds with the feature `keyring`), `file` is a file that only you can read, `auto` uses the keyring if it is available, else the file
    #[schemars(extend("default" = "auto"))]
    pub(super) token_store: Option<RawTokenStore>,

    /// Queues that limit concurrent calls; the queue `default` is used for every tool without a `queue`
    #[schemars(extend("propertyNames" = queue_names()))]
    pub(super) queues: Option<BTreeMap<String, RawQueue>>,

    /// Limits for cached outputs, in memory and in the directory `data/cache`
    pub(super) cache: Option<RawCache>,

    /// Rules that allow a call, deny it, or ask a person about it
    pub(super) policy: Option<RawPolicy>,

    /// Settings for stored tool outputs
    pub(super) tool_output: Option<RawToolOutput>,

    /// Settings for compaction, which shortens a long conversation before it fills the context window
    pub(super) compaction: Option<RawCompaction>,

    /// Settings for stored runs, which can be resumed
    pub(super) sessions: Option<RawSessions>,

    /// Settings for the check of arguments and outputs against the JSON Schemas of a tool
    pub(super) validation: Option<RawValidation>,

    /// Settings for the content in telemetry and in JSON log lines
    pub(super) telemetry: Option<RawTelemetry>,

    /// Model providers; each key is the name of a known provider or a name that you choose
    pub(super) providers: Option<BTreeMap<String, models::RawProvider>>,

    /// The models to use, and their settings
    pub(super) models: Option<models::RawModels>,

    /// Whether haft lets `models.fast` choose between `models.fast` and `models.complex` for a run that names no model
    #[schemars(extend("default" = false))]
    pub(super) route: Option<bool>,

    /// Whether models see the instructions of tool sources and skills
    #[schemars(extend("default" = true))]
    pub(super) instructions: Option<bool>,

    /// Whether models see the trusted `AGENTS.md` and `CLAUDE.md` of the project
    #[schemars(extend("default" = true))]
    pub(super) project_instructions: Option<bool>,

    /// Settings for the HTTP server of `haft serve` and `haft mcp serve --http`
    pub(super) serve: Option<RawServe>,

    /// HTTP tools; each is a request template, and the tool name is `rest__` followed by the key
    #[schemars(extend("propertyNames" = rest_names()))]
    pub(super) rest_tools: Option<BTreeMap<String, RawRestTool>>,

    /// OpenAPI documents (OpenAPI 3, Swagger 2.0); their operations become tools with names such as `rest__name_operation`
    #[schemars(extend("propertyNames" = rest_names()))]
    pub(super) openapi_specs: Option<BTreeMap<String, RawOpenapiSpec>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSandbox {
    /// `workspace`: tools may write only to the workspace and `/tmp`, and have no network; `network`: the same with network access; `full`: everything is allowed except the blocklist
    #[schemars(extend("default" = "workspace"))]
    pub(super) mode: Option<RawSandboxMode>,

    /// The directory that tools work in; by default the current directory
    pub(super) workspace: Option<PathText>,

    /// More directories that commands may write to
    #[schemars(extend("default" = []))]
    pub(super) writable: Option<Vec<PathText>>,

    /// Paths that commands may read although they are in the list of secrets
    #[schemars(extend("default" = []))]
    pub(super) readable: Option<Vec<PathText>>,

    /// More paths that commands cannot read in the modes `workspace` and `network`, in addition to the built-in list of secrets
    #[schemars(extend("default" = []))]
    pub(super) secrets: Option<Vec<PathText>>,

    /// Whether commands can use the network; by default `sandbox.mode` decides
    pub(super) network: Option<RawAccess>,

    /// Whether commands may create unix sockets; by default only in the mode `full`
    pub(super) unix_sockets: Option<RawAccess>,

    /// Whether commands may change the git hooks and the git configuration of the workspace: `frozen` forbids it, `writable` allows it
    #[schemars(extend("default" = "frozen"))]
    pub(super) git: Option<RawGitMetadata>,

    /// More environment variables that commands get from haft's own environment
    #[schemars(extend("default" = []))]
    pub(super) environment: Option<Vec<Environment>>,

    /// The resource limits for a command
    pub(super) limits: Option<RawSandboxLimits>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSandboxLimits {
    /// The maximum number of processes and threads at the same time
    #[schemars(range(min = 301), extend("default" = limit("processes")))]
    pub(super) processes: Option<u64>,

    /// The maximum number of open files per process
    #[schemars(range(min = 1), extend("default" = limit("open-files")))]
    pub(super) open_files: Option<u64>,

    /// The maximum size of a file that a command writes
    #[schemars(range(min = 1), extend("default" = limit("file-bytes"), "x-unit" = "bytes"))]
    pub(super) file_bytes: Option<u64>,

    /// The maximum CPU time per process, rounded up to whole seconds
    #[schemars(extend("default" = limit("cpu-time").map(|seconds| seconds * 1000), "x-unit" = "milliseconds"))]
    pub(super) cpu_time: Option<Millis>,

    /// The maximum private writable memory per process
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
    /// The time limit for a call of the tool
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) timeout: Option<Millis>,

    /// The maximum time without progress; haft stops a call that reports no progress for longer
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) idle_timeout: Option<Millis>,

    /// What happens to an output that is too large: `store` stores it and shows a handle, `truncate` cuts it, `pass` shows all of it
    pub(super) output: Option<RawOversizeAction>,

    /// The maximum size of an output of this tool that a model gets in full; replaces `maxToolResponseBytes` for this tool
    #[schemars(range(min = 1), extend("x-unit" = "bytes"))]
    pub(super) max_bytes: Option<u64>,

    /// The queue for calls of the tool
    pub(super) queue: Option<QueueText>,

    /// The priority of waiting calls of the tool, instead of the priority of the run
    pub(super) priority: Option<RawPriority>,

    /// How long haft caches an output of the tool; `off` disables the cache
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) cache: Option<Ttl>,

    /// The effects of a call; they decide which calls may run at the same time and which may be repeated
    pub(super) effects: Option<RawEffects>,

    /// Whether the tool is active; this overrides `activeGroups`
    pub(super) enabled: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCatalog {
    /// The maximum number of tools from one tool source, such as an MCP server or an OpenAPI document; haft leaves out further tools with a warning
    #[schemars(range(min = 1), extend("default" = default::TOOLS_PER_PROVIDER_MAX))]
    pub(super) max_tools_per_provider: Option<u64>,

    /// The maximum time that a tool source may take to start; haft reports a slower source and leaves it out
    #[schemars(extend("default" = default::WARMUP_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(super) warmup_timeout: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawQueue {
    /// The maximum number of calls that run at the same time
    #[schemars(range(min = 1), extend("default" = default::QUEUE_CONCURRENT))]
    pub(super) max_concurrency: Option<u64>,

    /// The maximum number of calls of one user that wait; haft refuses further calls
    #[schemars(extend("default" = default::QUEUE_WAITING_MAX))]
    pub(super) max_waiting: Option<u64>,

    /// The time limit for a call in this queue, including the time that it waits
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) timeout: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCache {
    /// The maximum number of cached outputs; the limit applies to memory and disk separately
    #[schemars(extend("default" = default::CACHE_ENTRIES_MAX))]
    pub(super) max_entries: Option<u64>,

    /// The maximum total size of cached outputs; the limit applies to memory and disk separately
    #[schemars(extend("default" = default::CACHE_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPolicy {
    /// The decision for a call that changes or sends something, after the run has read text from an MCP server, a REST service or a command with network access
    #[schemars(extend("default" = "allow"))]
    pub(super) after_untrusted: Option<RawApproval>,

    /// The decision for a call that no rule matches
    #[schemars(extend("default" = "allow"))]
    pub(super) default: Option<RawApproval>,

    /// How long a remembered approval is valid; by default until it is revoked
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) keep_approvals: Option<Millis>,

    /// The rules; the most specific rule that matches a call decides. Among equally specific rules, `deny` wins over `ask`, and `ask` over `allow`
    #[schemars(extend("default" = []))]
    pub(super) rules: Option<Vec<RawPolicyRule>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPolicyRule {
    /// The tools that the rule applies to
    pub(super) tool: GlobText,

    /// The commands that the rule applies to, as a pattern; only for the tool `bash`
    pub(super) command: Option<String>,

    /// `allow` allows the call, `ask` asks a person, `deny` denies the call
    pub(super) decision: RawApproval,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawCompaction {
    /// Compaction starts when messages and tools fill this share of the context window, not counting the part that is reserved for the reply; with `off`, a run ends when the window is full
    #[schemars(extend("default" = default::COMPACTION_AT))]
    pub(super) at: Option<PercentText>,

    /// The number of recent turns that compaction leaves unchanged; if they are large, it leaves fewer unchanged
    #[schemars(range(min = 1, max = 1000), extend("default" = CompactionRules::KEEP_TURNS_DEFAULT))]
    pub(super) keep: Option<u32>,

    /// The model that summarizes old turns, as `provider/model`; by default the model of the run
    pub(super) model: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawToolOutput {
    /// Whether haft stores outputs that are too large; otherwise it cuts them
    #[schemars(extend("default" = true))]
    pub(super) enabled: Option<bool>,

    /// The mode `auto` returns a stored output in full if it has at most this many chunks; of a longer output, it returns only the beginning and the end
    #[schemars(range(min = 1), extend("default" = default::OUTPUT_CHUNKS_MAX))]
    pub(super) max_chunks: Option<u64>,

    /// The part of a chunk that the next chunk repeats
    #[schemars(range(min = 0, max = 50), extend("default" = default::OUTPUT_OVERLAP_PERCENT, "x-unit" = "percent"))]
    pub(super) overlap_percent: Option<u64>,

    /// If the average line has at least this many bytes, chunks may end within a line; otherwise they end at line ends
    #[schemars(range(min = 1), extend("default" = default::OUTPUT_AVG_LINE_BYTES, "x-unit" = "bytes"))]
    pub(super) avg_line_bytes_threshold: Option<u64>,

    /// The maximum number of bytes that haft stores of one output; it drops the rest and says so in the message with the handle
    #[schemars(range(min = 1), extend("default" = default::STORE_OUTPUT_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_output_bytes: Option<u64>,

    /// The maximum total size of all stored outputs; haft removes the oldest ones first
    #[schemars(range(min = 1), extend("default" = default::STORE_TOTAL_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_total_bytes: Option<u64>,

    /// How long haft keeps a stored output
    #[schemars(extend("default" = default::STORE_KEEP_MS, "x-unit" = "milliseconds"))]
    pub(super) keep: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawSessions {
    /// Whether haft stores runs; a run that is not stored cannot be resumed
    #[schemars(extend("default" = true))]
    pub(super) enabled: Option<bool>,

    /// The maximum size of the journal of one run; a run that reaches the limit ends
    #[schemars(range(min = 1), extend("default" = default::SESSION_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) max_bytes: Option<u64>,

    /// How long haft keeps a session after its last change
    #[schemars(extend("default" = default::SESSION_KEEP_MS, "x-unit" = "milliseconds"))]
    pub(super) keep: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawValidation {
    /// Whether haft refuses a tool whose schema does not compile, and reports an error for a call whose structured output does not match the output schema
    #[schemars(extend("default" = false))]
    pub(super) strict: Option<bool>,

    /// The JSON Schema draft for schemas without `$schema`
    #[schemars(extend("default" = "2020-12"))]
    pub(super) draft: Option<RawDraft>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTelemetry {
    /// Whether spans contain the arguments and results of calls, and JSON log lines the content of events; `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` overrides this key
    #[schemars(extend("default" = false))]
    pub(super) capture_content: Option<bool>,
}

words! {
    pub(super) RawTokenStore for KeyringPreference { "auto" WhereThereIsOne, "file" Never, "keyring" Required }
    pub(super) RawNaming for NamingScheme { "double" Double, "claude" Claude, "single" Single, "bare" Bare }
    pub(super) RawToolSearch for ToolSearchMode { "auto" Auto, "always" Always, "never" Never }
    pub(super) RawExpose for ToolExposeForm { "auto" Auto, "constant" Constant, "append" Append }
    pub(super) RawSandboxMode for SandboxMode { "workspace" Workspace, "network" Network, "full" Full }
    pub(super) RawServerUrls for RequestedServers { "off" Off, "public" Public, "any" Any }
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
