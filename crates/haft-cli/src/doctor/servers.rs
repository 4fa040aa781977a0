//! Starts the MCP servers of the configuration concurrently. Reports each server as ready, or the reason why it is not
//! ready with a hint.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use haft_sandbox::SandboxPolicy;
use haft_tools::mcp::{McpProvider, SupervisedServer};
use serde_json::{Value, json};

use super::super::mcp::missing_permission::{config_hint, lacked};
use super::super::servers::face;
use super::super::status_line::waiting;
use super::super::terminal::counted;
use haft_config::{ResolvedConfig, printable};
use haft_runtime::wiring;

/// The maximum time that one server may take in this check. A server that still downloads its package is reported as
/// not ready yet.
const PATIENCE: Duration = Duration::from_secs(20);

/// The check result of one MCP server.
pub(super) struct ServerFinding {
    name: String,
    outcome: Result<ReadyServer, ServerFailure>,
}

struct ReadyServer {
    took: Duration,
    tools: usize,
    protocol: String,
    transport: &'static str,
}

struct ServerFailure {
    reason: String,
    hint: String,
}

impl ServerFinding {
    pub(super) fn is_ready(&self) -> bool {
        self.outcome.is_ok()
    }

    fn broken(name: &str, reason: &str, hint: String) -> Self {
        Self {
            name: name.to_owned(),
            outcome: Err(ServerFailure { reason: reason.trim_end().to_owned(), hint }),
        }
    }

    pub(super) fn as_json(&self) -> Value {
        match &self.outcome {
            Ok(ReadyServer { took, tools, protocol, transport }) => json!({
                "name": self.name, "ready": true, "tools": tools, "protocol": protocol, "transport": transport,
                "milliseconds": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            }),
            Err(ServerFailure { reason, hint }) => {
                json!({ "name": self.name, "ready": false, "reason": reason, "hint": hint })
            }
        }
    }

    pub(super) fn write_to(&self, text: &mut String) {
        let name = printable(&self.name);
        let _ = match &self.outcome {
            Ok(ReadyServer { took, tools, protocol, transport }) => writeln!(
                text,
                "server     {name}: ready after {} ms, {}, {transport}, protocol {protocol}",
                took.as_millis(),
                counted(tools, "tool")
            ),
            Err(ServerFailure { reason, hint }) => {
                let reason = reason.lines().map(printable).collect::<Vec<_>>().join("\n           ");
                writeln!(text, "server     {name}: not ready: {reason}\n           hint: {}", printable(hint))
            }
        };
    }
}

/// Starts every enabled server, and returns one finding for each.
pub(super) async fn try_all(config: &ResolvedConfig, policy: &SandboxPolicy) -> Vec<ServerFinding> {
    if config.mcp_servers.is_empty() {
        return Vec::new();
    }
    let made = wiring::mcp_servers(config, policy, &face(config));
    let unusable = made.unusable.iter().map(|(name, reason)| {
        ServerFinding::broken(name, reason, format!("check `mcpServers.{name}` and its variables"))
    });
    let attempts: Vec<_> = made.providers.iter().map(try_one).collect();
    let all = stream::iter(attempts).buffered(config.mcp_starts_max).collect::<Vec<_>>();
    let tried = waiting("testing MCP servers", String::new, all).await;
    unusable.chain(tried).collect()
}

async fn try_one(provider: &Arc<McpProvider>) -> ServerFinding {
    let server = provider.server();
    let name = server.status().name;
    let began = Instant::now();
    let outcome = tokio::time::timeout(PATIENCE, server.start()).await;
    let finding = match outcome {
        Ok(Ok(())) => ready(server, began.elapsed()),
        Ok(Err(error)) => {
            let reason = server.status().reason.unwrap_or(error.message);
            let hint = hint(&name, &reason, server);
            ServerFinding::broken(&name, &reason, hint)
        }
        Err(_) => {
            let reason = format!(
                "the server was not ready after {} s; it may need more time to start",
                PATIENCE.as_secs()
            );
            ServerFinding::broken(&name, &reason, format!("`haft mcp test {name}` waits longer"))
        }
    };
    server.stop().await;
    finding
}

fn ready(server: &SupervisedServer, took: Duration) -> ServerFinding {
    let status = server.status();
    let protocol = status.era.as_ref().map_or("-", |era| era.version()).to_owned();
    let ready = ReadyServer {
        took,
        tools: status.listing.tools().len(),
        protocol,
        transport: status.transport.unwrap_or("-"),
    };
    ServerFinding { name: status.name, outcome: Ok(ready) }
}

/// Returns a hint: the missing permission, the key or login that the server requires, or the commands that show more.
fn hint(name: &str, reason: &str, server: &SupervisedServer) -> String {
    let log = server.log(usize::MAX);
    let lines = log.iter().map(String::as_str).chain(reason.lines());
    let lacked = lacked(lines, |path| Path::new(path).is_dir());
    lacked
        .map(|lacked| lacked.hint(name))
        .or_else(|| config_hint(name, reason))
        .unwrap_or_else(|| format!("`haft mcp test {name}` and `haft mcp logs {name}` show details"))
}
