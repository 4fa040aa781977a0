//! `haft mcp list`: lists the configured servers and the cached data about them, without starting a server.

use haft_tools::mcp::{CatalogCacheSummary, RemoteTransport};
use serde_json::{Value, json};

use super::super::cli_error::CliError;
use super::super::settings;
use super::super::table::{Table, left};
use super::super::terminal::counted;
use super::McpCommandOutput;
use super::args::McpListArgs;
use haft_config::namespace_conflict::namespace_conflict;
use haft_config::resolved::{McpEndpoint, McpServerSettings};
use haft_config::{ResolvedConfig, printable};
use haft_runtime::wiring;

pub(super) fn list(args: &McpListArgs) -> Result<McpCommandOutput, CliError> {
    let home = settings::home()?;
    let config = settings::configuration(&args.files)?.resolved;
    let rows: Vec<McpServerRow> = rows(&config, |name, server| wiring::remembered(name, server, &home));
    if rows.is_empty() {
        let text = "no MCP server is configured; `haft mcp add NAME -- COMMAND` adds one";
        return Ok(McpCommandOutput::new(text.into(), json!([])));
    }
    Ok(McpCommandOutput::new(table(&rows), rows.iter().map(McpServerRow::as_json).collect()))
}

struct McpServerRow {
    name: String,
    transport: &'static str,
    state: &'static str,
    detail: String,
    known: Option<CatalogCacheSummary>,
}

fn rows(
    config: &ResolvedConfig,
    known: impl Fn(&str, &McpServerSettings) -> Option<CatalogCacheSummary>,
) -> Vec<McpServerRow> {
    let servers = config.mcp_servers.iter();
    servers
        .map(|(name, server)| {
            match namespace_conflict(&config.mcp_servers, name).filter(|_| server.enabled) {
                None => row(name, server, known(name, server)),
                // Pass no cached data: another server has the same namespace, and the cache under this name belongs to
                // that server.
                Some(reason) => row(name, &McpServerSettings { reach: Err(reason), ..server.clone() }, None),
            }
        })
        .collect()
}

fn row(name: &str, server: &McpServerSettings, known: Option<CatalogCacheSummary>) -> McpServerRow {
    let (state, detail) = match (&server.reach, server.enabled, &known) {
        (_, false, _) => ("disabled", "`enabled` is false".to_owned()),
        (Err(reason), true, _) => ("unusable", reason.clone()),
        (Ok(_), true, Some(known)) => {
            ("known", format!("{}, protocol {}", counted(known.tools, "tool"), known.version))
        }
        (Ok(_), true, None) => ("new", format!("test the server with `haft mcp test {name}`")),
    };
    McpServerRow { name: name.to_owned(), transport: transport(server), state, detail, known }
}

pub(super) fn transport(server: &McpServerSettings) -> &'static str {
    match &server.reach {
        Ok(McpEndpoint::Process { .. }) => "stdio",
        Ok(McpEndpoint::Remote { protocol: RemoteTransport::Http, .. }) => "http",
        Ok(McpEndpoint::Remote { protocol: RemoteTransport::Sse, .. }) => "sse",
        Ok(McpEndpoint::Remote { protocol: RemoteTransport::WebSocket, .. }) => "websocket",
        Err(_) => "-",
    }
}

impl McpServerRow {
    fn as_json(&self) -> Value {
        json!({
            "name": self.name,
            "transport": self.transport,
            "state": self.state,
            "detail": self.detail,
            "tools": self.known.as_ref().map(|known| known.tools),
            "protocol": self.known.as_ref().map(|known| known.version.as_str()),
        })
    }
}

fn table(rows: &[McpServerRow]) -> String {
    let mut table = Table::new(["NAME", "TRANSPORT", "STATE", "DETAIL"].map(left));
    for McpServerRow { name, transport, state, detail, .. } in rows {
        table.row([printable(name), (*transport).to_owned(), (*state).to_owned(), printable(detail)]);
    }
    table.text()
}
