//! The keys of an MCP server, as written.

use std::collections::BTreeMap;

use haft_core::settings::mcp::{HealthProbe, ServerStartup};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::default;
use super::super::value_format::{
    AnyJson, GlobText, Millis, QueueText, TemplateText, Ttl, tool_globs, words,
};
use super::{RawAccess, RawEffects, RawMcpOauth, RawMcpSampling};

/// Values that may hold a secret stay as written: `haft config show` shows the variable, not its value. Keys for
/// other programs are ignored, because only haft's own keys may allow calls without approval.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-passed-over" = ["alwaysAllow", "autoApprove", "description", "timeout"]))]
pub(crate) struct RawMcpServer {
    /// The transport; by default `stdio` for a `command`, and by scheme and path for a `url`
    #[serde(rename = "type")]
    pub(crate) kind: Option<RawMcpTransport>,

    /// The program of a `stdio` server
    pub(crate) command: Option<TemplateText>,

    /// The arguments of `command`
    #[schemars(extend("default" = []))]
    pub(crate) args: Option<Vec<TemplateText>>,

    /// Environment variables for the server, in addition to those that every server gets
    pub(crate) env: Option<BTreeMap<String, TemplateText>>,

    /// The directory that the server runs in and may write to; by default the workspace
    pub(crate) cwd: Option<TemplateText>,

    /// The URL of a remote server
    pub(crate) url: Option<TemplateText>,

    /// Headers that haft sends with every request to the server
    pub(crate) headers: Option<BTreeMap<String, TemplateText>>,

    /// Login with OAuth, used if the server requires a token and `headers` have no `Authorization`
    pub(crate) oauth: Option<RawMcpOauth>,

    /// Whether haft uses the server
    #[schemars(extend("default" = true))]
    pub(crate) enabled: Option<bool>,

    /// The opposite of `enabled`, for configurations of other programs
    #[schemars(extend("default" = false))]
    pub(crate) disabled: Option<bool>,

    /// The server's tools to use: patterns of their names, as the server spells them
    #[schemars(extend("default" = ["*"]))]
    pub(crate) tools_allowed: Option<Vec<GlobText>>,

    /// The server's tools to leave out: patterns of their names, as the server spells them; they win over `toolsAllowed`
    #[schemars(extend("default" = []))]
    pub(crate) tools_denied: Option<Vec<GlobText>>,

    /// Input schemas that replace those of the server; each key is a tool name as the server spells it
    pub(crate) tool_schemas: Option<BTreeMap<String, AnyJson>>,

    /// The effects of the server's tools, which replace those that the server declares; each key is a pattern of tool names as the server spells them
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(crate) effects: Option<BTreeMap<String, RawEffects>>,

    /// The time for which outputs of the server's tools are cached, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// The same as `cache`, for some tools of the server; each key is a pattern of tool names as the server spells them
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(crate) tools_cache: Option<BTreeMap<String, Ttl>>,

    /// The queue for calls of the server's tools
    pub(crate) queue: Option<QueueText>,

    /// Whether all runs of one haft process share the server process or connection
    #[schemars(extend("default" = true))]
    pub(crate) shared: Option<bool>,

    /// The longest time that a request waits for a reply or for progress
    #[schemars(extend("default" = default::MCP_REQUEST_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(crate) request_timeout: Option<Millis>,

    /// The longest time that the server may take to start, including a download
    #[schemars(extend("default" = default::MCP_STARTUP_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(crate) startup_timeout: Option<Millis>,

    /// `background`: a run waits for the server `mcp.readyWait` at most; `required`: a run waits until the server is ready or `startupTimeout` is over
    #[schemars(extend("default" = "background"))]
    pub(crate) startup: Option<McpStartup>,

    /// Whether the server gets the workspace as its root when it asks; some servers restrict themselves to the root
    #[schemars(extend("default" = false))]
    pub(crate) roots: Option<bool>,

    /// Use of models by the server; without this key haft does not offer sampling
    pub(crate) sampling: Option<RawMcpSampling>,

    /// The request that checks if the server is alive after a call without a reply
    #[schemars(extend("default" = "ping"))]
    pub(crate) health_probe: Option<RawHealthProbe>,

    /// Whether the server runs in the sandbox, where it can read and use the network, and write only to some directories
    #[schemars(extend("default" = true))]
    pub(crate) sandbox: Option<bool>,

    /// More directories that the server may write to
    #[schemars(extend("default" = []))]
    pub(crate) writable: Option<Vec<TemplateText>>,

    /// Whether the server may open unix sockets
    #[schemars(extend("default" = "deny"))]
    pub(crate) unix_sockets: Option<RawAccess>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RawMcpTransport {
    Stdio,
    Http,
    StreamableHttp,
    Sse,
    Websocket,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct McpDefaults {
    /// The longest time that a run waits for servers whose tools are not known yet; those of a later one come when it is ready
    #[schemars(extend("default" = default::MCP_READY_WAIT_MS, "x-unit" = "milliseconds"))]
    pub(crate) ready_wait: Option<Millis>,
}

words! {
    pub(crate) McpStartup for ServerStartup { "background" Background, "required" Required }
    pub(crate) RawHealthProbe for HealthProbe { "ping" Ping, "listTools" ListTools }
}
