//! The configuration keys of MCP servers, as the configuration file contains them, before defaults are applied.

use std::collections::BTreeMap;

use haft_core::settings::mcp::{HealthProbe, ServerStartup};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::default;
use super::super::value_format::{
    AnyJson, GlobText, Millis, QueueText, TemplateText, Ttl, tool_globs, words,
};
use super::{RawAccess, RawEffects, RawMcpOauth, RawMcpSampling};

/// The keys of one server. A value that may hold a secret is kept as written, so that `haft config show` shows the
/// variable and not its value. Keys for other programs are ignored, because only haft's own keys may allow calls
/// without approval.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-passed-over" = ["alwaysAllow", "autoApprove", "description", "timeout"]))]
pub(crate) struct RawMcpServer {
    /// The transport; by default `stdio` if `command` is set, otherwise the scheme and path of `url` decide
    #[serde(rename = "type")]
    pub(crate) kind: Option<RawMcpTransport>,

    /// The program that haft starts for a `stdio` server
    pub(crate) command: Option<TemplateText>,

    /// The arguments for `command`
    #[schemars(extend("default" = []))]
    pub(crate) args: Option<Vec<TemplateText>>,

    /// Environment variables for the server, in addition to the variables that every server gets
    pub(crate) env: Option<BTreeMap<String, TemplateText>>,

    /// The directory that the server runs in and may write to; by default the workspace
    pub(crate) cwd: Option<TemplateText>,

    /// The URL of a remote server
    pub(crate) url: Option<TemplateText>,

    /// Headers that haft sends with every request to the server
    pub(crate) headers: Option<BTreeMap<String, TemplateText>>,

    /// Settings for OAuth; haft uses OAuth if the server requires a token and `headers` contain no `Authorization`
    pub(crate) oauth: Option<RawMcpOauth>,

    /// Whether haft uses the server
    #[schemars(extend("default" = true))]
    pub(crate) enabled: Option<bool>,

    /// The opposite of `enabled`, as other programs write it
    #[schemars(extend("default" = false))]
    pub(crate) disabled: Option<bool>,

    /// Patterns for the tools to use, matched against the server's own tool names
    #[schemars(extend("default" = ["*"]))]
    pub(crate) tools_allowed: Option<Vec<GlobText>>,

    /// Patterns for the tools to leave out, even if `toolsAllowed` matches them; matched against the server's own tool names
    #[schemars(extend("default" = []))]
    pub(crate) tools_denied: Option<Vec<GlobText>>,

    /// Input schemas that replace the server's own; each key is one of the server's own tool names
    pub(crate) tool_schemas: Option<BTreeMap<String, AnyJson>>,

    /// The effects of the server's tools, instead of the effects that the server declares; each key is a pattern for the server's own tool names
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(crate) effects: Option<BTreeMap<String, RawEffects>>,

    /// How long haft caches an output of the server's tools; `off` disables the cache
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// The same as `cache`, for some tools of the server; each key is a pattern for the server's own tool names
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(crate) tools_cache: Option<BTreeMap<String, Ttl>>,

    /// The queue for calls of the server's tools
    pub(crate) queue: Option<QueueText>,

    /// Whether all runs of one haft process share the server process or connection
    #[schemars(extend("default" = true))]
    pub(crate) shared: Option<bool>,

    /// The maximum time that haft waits for a reply or for progress of a request
    #[schemars(extend("default" = default::MCP_REQUEST_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(crate) request_timeout: Option<Millis>,

    /// The maximum time that the server may take to start, including the download of its package
    #[schemars(extend("default" = default::MCP_STARTUP_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(crate) startup_timeout: Option<Millis>,

    /// `background`: a run waits at most `mcp.readyWait` for the server; `required`: a run waits until the server is ready or `startupTimeout` has passed
    #[schemars(extend("default" = "background"))]
    pub(crate) startup: Option<McpStartup>,

    /// Whether haft gives the workspace to a server that asks for its root directories; some servers restrict themselves to these directories
    #[schemars(extend("default" = false))]
    pub(crate) roots: Option<bool>,

    /// Settings for requests of the server to a model (sampling); without this key, haft does not offer sampling
    pub(crate) sampling: Option<RawMcpSampling>,

    /// The request that haft sends after a call without a reply, to check whether the server still responds
    #[schemars(extend("default" = "ping"))]
    pub(crate) health_probe: Option<RawHealthProbe>,

    /// Whether the server runs in the sandbox; there it can read files, use the network, and write only to some directories
    #[schemars(extend("default" = true))]
    pub(crate) sandbox: Option<bool>,

    /// More directories that the server may write to
    #[schemars(extend("default" = []))]
    pub(crate) writable: Option<Vec<TemplateText>>,

    /// The unix sockets that the server may connect to, such as `/var/run/docker.sock`; needs Linux with namespaces
    #[schemars(extend("default" = []))]
    pub(crate) sockets: Option<Vec<TemplateText>>,

    /// Whether the server may create unix sockets and connect to all of them
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
    /// The maximum time that a run waits for servers whose tools are not known yet; the tools of a slower server join the run when that server is ready
    #[schemars(extend("default" = default::MCP_READY_WAIT_MS, "x-unit" = "milliseconds"))]
    pub(crate) ready_wait: Option<Millis>,
}

words! {
    pub(crate) McpStartup for ServerStartup { "background" Background, "required" Required }
    pub(crate) RawHealthProbe for HealthProbe { "ping" Ping, "listTools" ListTools }
}
