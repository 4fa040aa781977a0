//! The keys of an MCP server, as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::default;
use super::super::format::{AnyJson, GlobText, Millis, QueueText, TemplateText, Ttl, tool_globs};
use super::{Effects, Grant, McpOauth, McpSampling};

/// What may hold a secret is kept as it is written: `haft config show` shows the variable, not its value. What READMEs write
/// beside it for other programs is passed over: what may be called unasked, for one, is not for them to say here.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-passed-over" = ["alwaysAllow", "autoApprove", "description", "timeout"]))]
pub(crate) struct McpServer {
    /// How it is reached; without this key a `command` is `stdio`, and of a `url` its scheme and path decide
    #[serde(rename = "type")]
    pub(crate) kind: Option<McpKind>,

    /// The program of a `stdio` server
    pub(crate) command: Option<TemplateText>,

    /// Its arguments
    #[schemars(extend("default" = []))]
    pub(crate) args: Option<Vec<TemplateText>>,

    /// Variables it sees beside those that every server sees
    pub(crate) env: Option<BTreeMap<String, TemplateText>>,

    /// The directory it runs in and may write; without this key the workspace
    pub(crate) cwd: Option<TemplateText>,

    /// The address of a server elsewhere
    pub(crate) url: Option<TemplateText>,

    /// What is sent with every request to that address
    pub(crate) headers: Option<BTreeMap<String, TemplateText>>,

    /// How it learns who we are when it asks for a token and `headers` have no `Authorization`
    pub(crate) oauth: Option<McpOauth>,

    /// Whether it is there at all
    #[schemars(extend("default" = true))]
    pub(crate) enabled: Option<bool>,

    /// The opposite of `enabled`, as other programs write it
    #[schemars(extend("default" = false))]
    pub(crate) disabled: Option<bool>,

    /// Patterns of its tools, by its own names, that there are
    #[schemars(extend("default" = ["*"]))]
    pub(crate) tools_allowed: Option<Vec<GlobText>>,

    /// Patterns of its tools that there are not; they win over `toolsAllowed`
    #[schemars(extend("default" = []))]
    pub(crate) tools_denied: Option<Vec<GlobText>>,

    /// Input schemas that stand in for those of the server, by its own names
    pub(crate) tool_schemas: Option<BTreeMap<String, AnyJson>>,

    /// What calls of its tools do to the world, by patterns of its own names, where it says nothing or the wrong thing
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(crate) effects: Option<BTreeMap<String, Effects>>,

    /// How long answers of its tools may be given again without a call, or `off`
    #[schemars(extend("x-unit" = "milliseconds"))]
    pub(crate) cache: Option<Ttl>,

    /// The same for some of its tools, by patterns of its own names
    #[schemars(extend("propertyNames" = tool_globs()))]
    pub(crate) tools_cache: Option<BTreeMap<String, Ttl>>,

    /// The queue that calls of its tools wait in
    pub(crate) queue: Option<QueueText>,

    /// Whether all runs of one program use the same process or connection
    #[schemars(extend("default" = true))]
    pub(crate) shared: Option<bool>,

    /// How long a request may go without a reply or progress
    #[schemars(extend("default" = default::MCP_REQUEST_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(crate) request_timeout_ms: Option<Millis>,

    /// How long it may take to start, a download included
    #[schemars(extend("default" = default::MCP_STARTUP_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(crate) startup_timeout: Option<Millis>,

    /// Whether it is told the workspace as its root when it asks; some servers take that for all they may touch
    #[schemars(extend("default" = false))]
    pub(crate) roots: Option<bool>,

    /// What it may have of models; without this key it is never told that there are any
    pub(crate) sampling: Option<McpSampling>,

    /// How it is asked whether it is still there after a call got no answer
    #[schemars(extend("default" = "ping"))]
    pub(crate) health_probe: Option<HealthProbe>,

    /// Whether the sandbox holds it: reading and the network are open, writing is not
    #[schemars(extend("default" = true))]
    pub(crate) sandbox: Option<bool>,

    /// More directories it may write
    #[schemars(extend("default" = []))]
    pub(crate) writable: Option<Vec<TemplateText>>,

    /// Whether it may open unix sockets
    #[schemars(extend("default" = "deny"))]
    pub(crate) unix_sockets: Option<Grant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum McpKind {
    Stdio,
    Http,
    StreamableHttp,
    Sse,
    Websocket,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HealthProbe {
    Ping,
    ListTools,
}
