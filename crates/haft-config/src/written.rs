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

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::default;
use super::format::{
    Environment, GlobText, GroupText, MemberText, Millis, PathText, QueueText, Ttl, group_names, queue_names,
    rest_names, tool_globs,
};
pub(super) use mcp::{HealthProbe, McpKind, McpServer};
pub(super) use oauth::{McpGrant, McpOauth};
pub(super) use sampling::McpSampling;

pub(super) use rest::{HttpMethod, Login, LowerMethod, OpenapiSpec, RestTool, StreamMode, Streaming};

/// What `haft.json` may hold.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Written {
    /// Where the schema of this file is, for editors
    #[serde(rename = "$schema")]
    #[expect(dead_code, reason = "editors read it; it must not be an unknown key")]
    pub(super) schema: Option<String>,

    /// What tools may touch
    pub(super) sandbox: Option<Sandbox>,

    /// How the exposed name of a server's tool is made: `double` is `server__tool`, `claude` is `mcp__server__tool`, `single` is `server_tool`, `bare` is `tool`
    #[schemars(extend("default" = "double"))]
    pub(super) naming: Option<Naming>,

    /// How long any call may take; the smallest limit that applies to a call wins
    #[schemars(extend("default" = default::TOOL_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(super) tool_timeout: Option<Millis>,

    /// How much of an output a model is shown; what happens to the rest is up to `output`
    #[schemars(range(min = 1), extend("default" = default::TOOL_RESPONSE_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) tool_response_max_bytes: Option<u64>,

    /// What holds for the tools a pattern names; of several patterns the most specific decides, key by key
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(super) tools: Option<BTreeMap<String, Tool>>,

    /// Patterns of tools that may be called
    #[schemars(extend("default" = ["*"]))]
    pub(super) tools_allowed: Option<Vec<GlobText>>,

    /// Patterns of tools that may not be called; they win over `toolsAllowed`
    #[schemars(extend("default" = []))]
    pub(super) tools_denied: Option<Vec<GlobText>>,

    /// Sets of tools under a name: patterns, or `@name` for all of another group
    #[schemars(extend("propertyNames" = group_names()))]
    pub(super) groups: Option<BTreeMap<String, Vec<MemberText>>>,

    /// The groups whose tools are active: shown to models and called; without this key all tools. Where a tool comes from (`builtin`, a server, a spec) is a group too
    pub(super) active_groups: Option<Vec<GroupText>>,

    /// What is taken from those who give tools
    pub(super) catalog: Option<Catalog>,

    /// MCP servers and how each is reached, as the README of a server gives them
    pub(super) mcp_servers: Option<BTreeMap<String, McpServer>>,

    /// How many MCP servers are started at the same time
    #[schemars(range(min = 1), extend("default" = default::MCP_INIT_CONCURRENCY))]
    pub(super) mcp_init_concurrency: Option<u64>,

    /// Whether every message to and from MCP servers is shown on standard error, without secrets and cut
    #[serde(rename = "traceMCP")]
    #[schemars(extend("default" = false))]
    pub(super) trace_mcp: Option<bool>,

    /// Where the tokens of MCP servers are kept: `auto` is the keyring of the desktop where one answers, else a `file` that only you can read
    #[schemars(extend("default" = "auto"))]
    pub(super) token_store: Option<TokenStore>,

    /// Queues in which calls wait for each other; one named `default` holds every tool that names no other
    #[schemars(extend("propertyNames" = queue_names()))]
    pub(super) queues: Option<BTreeMap<String, Queue>>,

    /// Limits of cached answers, in memory and in `data/cache`
    pub(super) cache: Option<Cache>,

    /// Who decides whether a call is made
    pub(super) policy: Option<Policy>,

    /// How stored outputs are read again
    pub(super) tool_output: Option<ToolOutput>,

    /// What is kept of runs, so that they can go on
    pub(super) sessions: Option<Sessions>,

    /// How arguments are held against the schema of a tool
    pub(super) validation: Option<Validation>,

    /// What is told to a collector, when the environment names one
    pub(super) telemetry: Option<Telemetry>,

    /// Who is asked for replies, by a name of your own or that of a known provider
    pub(super) providers: Option<BTreeMap<String, models::Provider>>,

    /// Which models are asked, and what holds for them
    pub(super) models: Option<models::Models>,

    /// Whether a run first asks `models.fast` which of `models.fast` and `models.complex` a request is for; not where a model is named
    #[schemars(extend("default" = false))]
    pub(super) route: Option<bool>,

    /// Whether a model is told what those who give tools, and skills, say about themselves
    #[schemars(extend("default" = true))]
    pub(super) instructions: Option<bool>,

    /// Tools over HTTP, each a request with places for arguments; a name becomes `rest__name`
    #[schemars(extend("propertyNames" = rest_names()))]
    pub(super) rest_tools: Option<BTreeMap<String, RestTool>>,

    /// Descriptions of APIs (`OpenAPI` 3, Swagger 2.0) whose operations are tools, named `rest__name_operation`
    #[schemars(extend("propertyNames" = rest_names()))]
    pub(super) openapi_specs: Option<BTreeMap<String, OpenapiSpec>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Sandbox {
    /// `sandbox`: write to the workspace and `/tmp`, no network; `rx`: with network; `rwx`: open but for the blocklist
    #[schemars(extend("default" = "sandbox"))]
    pub(super) mode: Option<Mode>,

    /// The directory tools work in; without this key the current one
    pub(super) workspace: Option<PathText>,

    /// More directories that may be written
    #[schemars(extend("default" = []))]
    pub(super) writable: Option<Vec<PathText>>,

    /// Paths taken off the list of secrets that cannot be read
    #[schemars(extend("default" = []))]
    pub(super) readable: Option<Vec<PathText>>,

    /// Whether commands reach the network; without this key the mode decides
    pub(super) network: Option<Grant>,

    /// Whether commands may open unix sockets; without this key only in `rwx`
    pub(super) unix_sockets: Option<Grant>,

    /// Whether hooks and configuration of the workspace's git directory may be written
    #[schemars(extend("default" = "frozen"))]
    pub(super) git: Option<Git>,

    /// More variables of haft's environment that commands see
    #[schemars(extend("default" = []))]
    pub(super) environment: Option<Vec<Environment>>,

    /// What one command may use up
    pub(super) limits: Option<Limits>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Limits {
    /// Processes and threads alive at once
    #[schemars(range(min = 1), extend("default" = limit("processes")))]
    pub(super) processes: Option<u64>,

    /// Open files per process
    #[schemars(range(min = 1), extend("default" = limit("open-files")))]
    pub(super) open_files: Option<u64>,

    /// The largest file that may be written
    #[schemars(range(min = 1), extend("default" = limit("file-bytes"), "x-unit" = "bytes"))]
    pub(super) file_bytes: Option<u64>,

    /// CPU time per process
    #[schemars(range(min = 1), extend("default" = limit("cpu-seconds"), "x-unit" = "seconds"))]
    pub(super) cpu_seconds: Option<u64>,

    /// Private writable memory per process
    #[schemars(range(min = 1), extend("default" = limit("memory-bytes"), "x-unit" = "bytes"))]
    pub(super) memory_bytes: Option<u64>,

    /// What may be put into the private `/dev/shm`
    #[schemars(range(min = 1), extend("default" = limit("shm-bytes"), "x-unit" = "bytes"))]
    pub(super) shm_bytes: Option<u64>,
}

fn limit(name: &str) -> Option<u64> {
    haft_core::settings::limits::Limits::default().get(name)
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Tool {
    /// How long a call of it may take
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) timeout: Option<Millis>,

    /// What happens to an output that is too large: `store` keeps it and shows a handle, `truncate` cuts it, `pass` leaves it whole
    pub(super) output: Option<Output>,

    /// How much of its output a model is shown, instead of `toolResponseMaxBytes`
    #[schemars(range(min = 1), extend("x-unit" = "bytes"))]
    pub(super) max_bytes: Option<u64>,

    /// The queue its calls wait in
    pub(super) queue: Option<QueueText>,

    /// How urgent its calls are when they wait, whatever the run says
    pub(super) priority: Option<Priority>,

    /// How long an answer may be given again without a call, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) cache: Option<Ttl>,

    /// What a call does to the world; decides what runs at the same time and what may be repeated
    pub(super) effects: Option<Effects>,

    /// Whether it is active, whatever `activeGroups` says
    pub(super) enabled: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Catalog {
    /// Tools of one server, spec or program; what it lists beyond these is left out with a warning
    #[schemars(range(min = 1), extend("default" = default::TOOLS_PER_PROVIDER_MAX))]
    pub(super) tools_per_provider_max: Option<u64>,

    /// How long each may take to make its tools ready; one that takes longer is told and left behind
    #[schemars(extend("default" = default::WARMUP_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(super) warmup_timeout: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Queue {
    /// How many calls run at once
    #[schemars(range(min = 1), extend("default" = default::QUEUE_CONCURRENT, "x-alias" = "maxConcurrency"))]
    pub(super) concurrent: Option<u64>,

    /// How many calls may wait; one more is refused
    #[schemars(extend("default" = default::QUEUE_WAITING_MAX))]
    pub(super) max_waiting: Option<u64>,

    /// How long a call in this queue may take
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(super) default_timeout_ms: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Cache {
    /// Cached answers, in memory and on disk each
    #[schemars(extend("default" = default::CACHE_ENTRIES_MAX))]
    pub(super) entries_max: Option<u64>,

    /// Bytes that all cached answers may take, in memory and on disk each
    #[schemars(extend("default" = default::CACHE_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) bytes_max: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Policy {
    /// What holds for a call that no rule speaks of
    #[schemars(extend("default" = "allow"))]
    pub(super) default: Option<Decision>,

    /// Rules; the most specific one that fits decides, and of equals `deny` before `ask` before `allow`
    #[schemars(extend("default" = []))]
    pub(super) rules: Option<Vec<Rule>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Rule {
    /// A pattern of tools
    pub(super) tool: GlobText,

    /// For `bash` only: a pattern of commands
    pub(super) command: Option<String>,

    /// Whether the call is made, a human is asked, or it is refused
    pub(super) decision: Decision,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ToolOutput {
    /// Whether outputs are stored; when not, they are cut
    #[schemars(extend("default" = true))]
    pub(super) enabled: Option<bool>,

    /// Mode `auto` gives a stored output whole, in pieces, when it has at most this many; else its beginning and its end
    #[schemars(range(min = 1), extend("default" = default::OUTPUT_CHUNKS_MAX))]
    pub(super) max_chunks: Option<u64>,

    /// How much of a piece is repeated at the beginning of the next
    #[schemars(range(min = 0, max = 50), extend("default" = default::OUTPUT_OVERLAP_PERCENT, "x-unit" = "percent"))]
    pub(super) overlap_percent: Option<u64>,

    /// Where lines have on average at least this many bytes, pieces end anywhere; else at the ends of lines
    #[schemars(range(min = 1), extend("default" = default::OUTPUT_AVG_LINE_BYTES, "x-unit" = "bytes"))]
    pub(super) avg_line_bytes_threshold: Option<u64>,

    /// How much of one output is stored; what is beyond is let go, and the handle says so
    #[schemars(range(min = 1), extend("default" = default::STORE_OUTPUT_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) output_bytes_max: Option<u64>,

    /// How much all stored outputs may take together; the oldest go first
    #[schemars(range(min = 1), extend("default" = default::STORE_TOTAL_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) total_bytes_max: Option<u64>,

    /// How long an output is kept
    #[schemars(extend("default" = default::STORE_KEEP_MS, "x-unit" = "milliseconds"))]
    pub(super) keep: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Sessions {
    /// Whether runs are written down as they happen; one that is not cannot be resumed
    #[schemars(extend("default" = true))]
    pub(super) enabled: Option<bool>,

    /// How much the journal of one session may take; a run that comes to it ends
    #[schemars(range(min = 1), extend("default" = default::SESSION_BYTES_MAX, "x-unit" = "bytes"))]
    pub(super) bytes_max: Option<u64>,

    /// How long a session is kept after the last time something happened in it
    #[schemars(extend("default" = default::SESSION_KEEP_MS, "x-unit" = "milliseconds"))]
    pub(super) keep: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Validation {
    /// Whether a tool whose schema does not compile is refused, and structured output that does not fit its schema a failure
    #[schemars(extend("default" = false))]
    pub(super) strict: Option<bool>,

    /// The draft of JSON Schema that a schema without `$schema` is read as
    #[schemars(extend("default" = "2020-12"))]
    pub(super) draft: Option<Draft>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Telemetry {
    /// Whether spans carry the arguments and results of calls, and JSON log lines the content of events; `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` wins over it
    #[schemars(extend("default" = false))]
    pub(super) capture_content: Option<bool>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Naming {
    Double,
    Claude,
    Single,
    Bare,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    Sandbox,
    Rx,
    Rwx,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Grant {
    Allow,
    Deny,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum TokenStore {
    Auto,
    File,
    Keyring,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Git {
    Frozen,
    Writable,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Output {
    Store,
    Truncate,
    Pass,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Effects {
    ReadOnly,
    Idempotent,
    Mutating,
    Unknown,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Priority {
    Low,
    Normal,
    High,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
pub(super) enum Draft {
    #[serde(rename = "4")]
    Draft4,
    #[serde(rename = "6")]
    Draft6,
    #[serde(rename = "7")]
    Draft7,
    #[serde(rename = "2019-09")]
    Draft201909,
    #[serde(rename = "2020-12")]
    Draft202012,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Decision {
    Allow,
    Ask,
    Deny,
}
