//! Resolves MCP servers, whose entries have the form that the READMEs of servers show.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use haft_core::glob::ToolGlob;
use haft_core::name::{Namespace, QueueName};
use haft_core::settings::mcp::{
    HealthProbe, RemoteTransport, SamplingLimits, ServerConfinement, ServerStartup,
};
use haft_core::settings::sandbox::ResourceAccess;
use haft_core::tool::Effects;
use serde_json::Value;

use super::default;
use super::expand;
use super::oauth::McpOauthSettings;
use super::position::child;
use super::resolve::{ConfigResolver, cache_for, duration};
use super::resolved::{self, CacheTtl};
use super::value_format::{GlobText, TemplateText};
use super::written::{self, RawMcpTransport};

const EITHER: &str = "an MCP server needs a `command` or a `url`, but not both";

/// The part of an error that explains why haft does not take the missing key from a file with lower precedence.
const NOT_INHERITED: &str = "a file that sets `args`, `cwd`, `env` or `oauth.issuer` of an MCP server must also set its \
    `command` or `url`, because haft uses credentials only for a server that the same file defines";

/// The settings of one MCP server, with all defaults filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServerSettings {
    pub enabled: bool,
    /// The way to connect to the server, or the reason why the server is unavailable for now: an unset variable, with
    /// the key that uses the variable.
    pub reach: Result<McpEndpoint, String>,
    /// The program or the URL, with its variables as in the file.
    pub written_target: WrittenTarget,
    pub tools_allowed: Vec<ToolGlob>,
    pub tools_denied: Vec<ToolGlob>,
    pub tool_schemas: BTreeMap<String, Value>,
    pub request_timeout: Duration,
    pub startup_timeout: Duration,
    pub startup: ServerStartup,
    pub health_probe: HealthProbe,
    /// The effects of tools, by patterns for the server's own tool names, most specific first.
    pub effects: Vec<(ToolGlob, Effects)>,
    pub cache: Option<CacheTtl>,
    /// The cache times of tools, by patterns for the server's own tool names, most specific first.
    pub tools_cache: Vec<(ToolGlob, CacheTtl)>,
    pub queue: Option<QueueName>,
    pub shared: bool,
    pub roots: McpRootsReply,
    /// The server's access to models; `None` unless the operator grants it.
    pub sampling: Option<SamplingLimits>,
}

/// The program or the URL of a server, as the file contains it: its variables are not expanded.
#[derive(Clone, PartialEq, Eq)]
pub struct WrittenTarget {
    /// The command and its arguments, or the URL.
    pub words: Vec<String>,
    pub directory: Option<String>,
    pub env: BTreeMap<String, String>,
}

impl fmt::Debug for WrittenTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and environment variables may contain secrets.
        f.write_str("WrittenTarget")
    }
}

/// The reply to a server's `roots/list` request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpRootsReply {
    Nothing,
    Workspace,
}

impl McpServerSettings {
    /// Returns the cache time for the results of one of the server's tools; `None` if the server's entry does not set
    /// it.
    pub fn cache_of(&self, tool: &str) -> Option<CacheTtl> {
        let own = self.tools_cache.iter().find(|(glob, _)| glob.matches(tool)).map(|(_, cache)| *cache);
        own.or(self.cache)
    }

    pub fn effects_of(&self, tool: &str) -> Option<Effects> {
        self.effects.iter().find(|(glob, _)| glob.matches(tool)).map(|(_, effects)| *effects)
    }
}

/// The server that the name of a tool refers to.
#[derive(Debug, Clone, Copy)]
pub struct ServerOfTool<'a> {
    pub name: &'a str,
    pub settings: &'a McpServerSettings,
    /// The tool name without the server name.
    pub own_name: &'a str,
}

impl<'a> ServerOfTool<'a> {
    /// Finds the server by the beginning of an exposed tool name. The server need not have such a tool.
    pub fn find(servers: &'a BTreeMap<String, McpServerSettings>, tool: &'a str) -> Option<Self> {
        let tool = tool.strip_prefix("mcp__").unwrap_or(tool);
        let named = servers.iter().filter_map(|(name, settings)| {
            let own = tool.strip_prefix(Namespace::sanitize(name).as_str())?.strip_prefix('_')?;
            Some(Self { name, settings, own_name: own.trim_start_matches('_') })
        });
        // Choose the longest match: both `a` and `a_b` may be servers.
        named.max_by_key(|server| server.name.len())
    }

    /// Returns the setting that excludes the tool; `None` if no setting excludes it, or if the server cannot be used at
    /// all.
    pub fn exclusion(&self) -> Option<String> {
        let Self { name, settings, own_name } = self;
        if !settings.enabled || settings.reach.is_err() {
            return None;
        }
        let any = |globs: &[ToolGlob]| globs.iter().any(|glob| glob.matches(own_name));
        match (any(&settings.tools_denied), any(&settings.tools_allowed)) {
            (true, _) => Some(format!("the setting `mcpServers.{name}.toolsDenied` excludes the tool")),
            (false, false) => {
                Some(format!("the setting `mcpServers.{name}.toolsAllowed` does not include the tool"))
            }
            (false, true) => None,
        }
    }
}

/// The way to connect to a server.
#[derive(Debug, Clone, PartialEq)]
pub enum McpEndpoint {
    Process {
        command: String,
        args: Vec<ExpandedSecret>,
        env: BTreeMap<String, ExpandedSecret>,
        directory: Option<PathBuf>,
        writable: Vec<PathBuf>,
        unix_sockets: Option<ResourceAccess>,
        /// The unix sockets that the server may connect to.
        sockets: Vec<PathBuf>,
        confined: ServerConfinement,
    },
    Remote {
        url: ExpandedSecret,
        headers: BTreeMap<String, ExpandedSecret>,
        protocol: RemoteTransport,
        oauth: McpOauthSettings,
    },
}

/// A text that may contain a secret, which `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct ExpandedSecret(pub String);

impl fmt::Debug for ExpandedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(concealed)")
    }
}

impl ConfigResolver<'_> {
    pub(super) fn mcp_servers(
        &mut self,
        written: BTreeMap<String, written::RawMcpServer>,
        queues: &BTreeMap<QueueName, resolved::QueueSettings>,
    ) -> BTreeMap<String, McpServerSettings> {
        let servers = written.into_iter();
        servers
            .filter_map(|(name, server)| {
                let path = child("mcpServers", &name);
                self.mcp_server(&path, &server, queues).map(|server| (name, server))
            })
            .collect()
    }

    fn mcp_server(
        &mut self,
        path: &str,
        written: &written::RawMcpServer,
        queues: &BTreeMap<QueueName, resolved::QueueSettings>,
    ) -> Option<McpServerSettings> {
        let all = [GlobText("*".into())];
        let allowed = written.tools_allowed.as_deref().unwrap_or(&all);
        let schemas = written.tool_schemas.clone().unwrap_or_default();
        let millis = |written: Option<super::value_format::Millis>, default| {
            written.map_or(Duration::from_millis(default), duration)
        };
        Some(McpServerSettings {
            enabled: written.enabled.unwrap_or(true) && !written.disabled.unwrap_or(false),
            tools_allowed: self.globs(&child(path, "toolsAllowed"), allowed),
            tools_denied: self
                .globs(&child(path, "toolsDenied"), written.tools_denied.as_deref().unwrap_or_default()),
            tool_schemas: schemas.into_iter().map(|(name, schema)| (name, schema.0)).collect(),
            request_timeout: millis(written.request_timeout.clone(), default::MCP_REQUEST_TIMEOUT_MS),
            startup_timeout: millis(written.startup_timeout.clone(), default::MCP_STARTUP_TIMEOUT_MS),
            startup: written.startup.map_or(ServerStartup::Background, Into::into),
            health_probe: written.health_probe.map_or(HealthProbe::Ping, Into::into),
            effects: self.sorted_by_specificity(&child(path, "effects"), written.effects.as_ref(), |found| {
                (*found).into()
            }),
            cache: written.cache.as_ref().map(cache_for),
            tools_cache: self.sorted_by_specificity(
                &child(path, "toolsCache"),
                written.tools_cache.as_ref(),
                cache_for,
            ),
            queue: written.queue.as_ref().and_then(|name| self.queue(&child(path, "queue"), &name.0, queues)),
            shared: written.shared.unwrap_or(true),
            roots: if written.roots.unwrap_or(false) {
                McpRootsReply::Workspace
            } else {
                McpRootsReply::Nothing
            },
            sampling: self.sampling(&child(path, "sampling"), written.sampling.as_ref()),
            reach: self.reach(path, written)?,
            written_target: written_target(written),
        })
    }

    /// Sorts by specificity, so that the first matching pattern is the most specific.
    fn sorted_by_specificity<W, T>(
        &mut self,
        path: &str,
        written: Option<&BTreeMap<String, W>>,
        meant: impl Fn(&W) -> T,
    ) -> Vec<(ToolGlob, T)> {
        let mut found = Vec::new();
        for (pattern, value) in written.into_iter().flatten() {
            if let Some(glob) = self.globs(&child(path, pattern), &[GlobText(pattern.clone())]).pop() {
                found.push((glob, meant(value)));
            }
        }
        found.sort_by_key(|(glob, _)| std::cmp::Reverse(glob.specificity()));
        found
    }

    /// Determines how haft connects to the server. Invalid keys are errors in the file; an unset variable only makes
    /// the server unavailable.
    fn reach(&mut self, path: &str, written: &written::RawMcpServer) -> Option<Result<McpEndpoint, String>> {
        let stdio = match (written.kind, &written.command, &written.url) {
            (None | Some(RawMcpTransport::Stdio), Some(_), None) => true,
            (Some(RawMcpTransport::Stdio), _, _) => {
                self.wrong(
                    path,
                    "an MCP server of type `stdio` needs a `command` and must not have a `url`".into(),
                );
                return None;
            }
            (Some(_) | None, None, Some(_)) => false,
            (Some(_) | None, Some(_), Some(_)) => {
                self.wrong(path, EITHER.into());
                return None;
            }
            (Some(_), Some(_), None) => {
                self.wrong(
                    path,
                    "an MCP server of this `type` needs a `url` and must not have a `command`".into(),
                );
                return None;
            }
            (Some(_) | None, None, None) => {
                self.wrong(path, format!("{EITHER}; {NOT_INHERITED}"));
                return None;
            }
        };
        if let (true, Some(_)) = (stdio, &written.oauth) {
            self.wrong(
                &child(path, "oauth"),
                "`oauth` needs an MCP server with a `url`; set the credentials for a `command` in `env`"
                    .into(),
            );
        }
        let expander = VariableExpander { path, variables: self.variables };
        Some(if stdio { expander.process(written) } else { expander.remote(written) })
    }
}

fn written_target(written: &written::RawMcpServer) -> WrittenTarget {
    let words = written.command.iter().chain(written.args.iter().flatten()).chain(&written.url);
    let env = written.env.iter().flatten().map(|(name, value)| (name.clone(), value.0.clone()));
    WrittenTarget {
        words: words.map(|text| text.0.clone()).collect(),
        directory: written.cwd.as_ref().map(|text| text.0.clone()),
        env: env.collect(),
    }
}

/// Expands variables. The error for an unset variable names the key.
pub(super) struct VariableExpander<'a> {
    path: &'a str,
    variables: expand::VariableSource<'a>,
}

impl VariableExpander<'_> {
    fn process(&self, written: &written::RawMcpServer) -> Result<McpEndpoint, String> {
        let words = |key: &str, list: &Option<Vec<TemplateText>>| -> Result<Vec<String>, String> {
            list.iter().flatten().map(|word| self.text(key, word)).collect()
        };
        let directory = written.cwd.as_ref().map(|text| self.text("cwd", text)).transpose()?;
        Ok(McpEndpoint::Process {
            command: written.command.as_ref().map_or(Ok(String::new()), |text| self.text("command", text))?,
            args: words("args", &written.args)?.into_iter().map(ExpandedSecret).collect(),
            env: self.map("env", written.env.as_ref())?,
            directory: directory.map(|text| self.user_path(&text)),
            writable: words("writable", &written.writable)?.iter().map(|text| self.user_path(text)).collect(),
            unix_sockets: written.unix_sockets.map(Into::into),
            sockets: words("sockets", &written.sockets)?.iter().map(|text| self.user_path(text)).collect(),
            confined: if written.sandbox.unwrap_or(true) {
                ServerConfinement::Yes
            } else {
                ServerConfinement::No
            },
        })
    }

    fn remote(&self, written: &written::RawMcpServer) -> Result<McpEndpoint, String> {
        let url = written.url.as_ref().map_or(Ok(String::new()), |text| self.text("url", text))?;
        Ok(McpEndpoint::Remote {
            protocol: protocol(written.kind, &url),
            oauth: self.oauth(written.oauth.as_ref())?,
            headers: self.map("headers", written.headers.as_ref())?,
            url: ExpandedSecret(url),
        })
    }

    fn map(
        &self,
        key: &str,
        written: Option<&BTreeMap<String, TemplateText>>,
    ) -> Result<BTreeMap<String, ExpandedSecret>, String> {
        let entries = written.into_iter().flatten();
        entries
            .map(|(name, text)| {
                Ok((name.clone(), ExpandedSecret(self.text_at(&child(&child(self.path, key), name), text)?)))
            })
            .collect()
    }

    pub(super) fn text(&self, key: &str, text: &TemplateText) -> Result<String, String> {
        self.text_at(&child(self.path, key), text)
    }

    fn text_at(&self, path: &str, TemplateText(text): &TemplateText) -> Result<String, String> {
        expand::expand(text, self.variables).map_err(|error| format!("{path}: {error}"))
    }

    fn user_path(&self, text: &str) -> PathBuf {
        match (text.strip_prefix("~/"), (self.variables)("HOME")) {
            (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
            (_, _) => PathBuf::from(text),
        }
    }
}

fn protocol(kind: Option<RawMcpTransport>, url: &str) -> RemoteTransport {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let scheme = path.split(':').next().unwrap_or_default().to_ascii_lowercase();
    match kind {
        Some(RawMcpTransport::Sse) => RemoteTransport::Sse,
        Some(RawMcpTransport::Websocket) => RemoteTransport::WebSocket,
        Some(RawMcpTransport::Stdio) | None if matches!(scheme.as_str(), "ws" | "wss") => {
            RemoteTransport::WebSocket
        }
        Some(RawMcpTransport::Stdio) | None if path.trim_end_matches('/').ends_with("/sse") => {
            RemoteTransport::Sse
        }
        Some(RawMcpTransport::Http | RawMcpTransport::StreamableHttp | RawMcpTransport::Stdio) | None => {
            RemoteTransport::Http
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_is_inferred_from_url_unless_type_is_set() {
        let check = |kind, url: &str, expected| assert_eq!(protocol(kind, url), expected, "{url}");
        check(None, "https://h/mcp", RemoteTransport::Http);
        check(None, "https://h/sse", RemoteTransport::Sse);
        check(None, "https://h/sse/?key=1", RemoteTransport::Sse);
        check(None, "https://h/mcp?next=/sse", RemoteTransport::Http);
        check(None, "wss://h/mcp", RemoteTransport::WebSocket);
        check(None, "WS://h/sse", RemoteTransport::WebSocket);
        check(Some(RawMcpTransport::Http), "https://h/sse", RemoteTransport::Http);
        check(Some(RawMcpTransport::Websocket), "https://h/x", RemoteTransport::WebSocket);
    }
}
