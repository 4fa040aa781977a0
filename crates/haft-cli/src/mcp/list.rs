//! `haft mcp list`: lists the configured servers and the cached data about them, without starting any.

use std::fmt::Write;

use haft_tools::mcp::{Protocol, Remembrance};
use serde_json::{Value, json};

use super::super::settings::{self, Refused};
use super::Answer;
use super::args::ListArgs;
use haft_config::namesake::namesake;
use haft_config::resolved::{McpReach, McpServer};
use haft_config::{Resolved, printable};
use haft_runtime::wiring;

pub(super) fn list(args: &ListArgs) -> Result<Answer, Refused> {
    let home = settings::home()?;
    let config = settings::configuration(&args.files)?.resolved;
    let rows: Vec<Row> = rows(&config, |name, server| wiring::remembered(name, server, &home));
    if rows.is_empty() {
        let text = "no MCP server is configured; `haft mcp add NAME -- COMMAND` adds one";
        return Ok(Answer::new(text.into(), json!([])));
    }
    Ok(Answer::new(table(&rows), rows.iter().map(Row::as_json).collect()))
}

struct Row {
    name: String,
    transport: &'static str,
    state: &'static str,
    detail: String,
    known: Option<Remembrance>,
}

fn rows(config: &Resolved, known: impl Fn(&str, &McpServer) -> Option<Remembrance>) -> Vec<Row> {
    let servers = config.mcp_servers.iter();
    servers
        .map(|(name, server)| match namesake(&config.mcp_servers, name).filter(|_| server.enabled) {
            None => row(name, server, known(name, server)),
            // The cache under this name belongs to the other server.
            Some(reason) => row(name, &McpServer { reach: Err(reason), ..server.clone() }, None),
        })
        .collect()
}

fn row(name: &str, server: &McpServer, known: Option<Remembrance>) -> Row {
    let (state, detail) = match (&server.reach, server.enabled, &known) {
        (_, false, _) => ("disabled", "`enabled` is false".to_owned()),
        (Err(reason), true, _) => ("unusable", reason.clone()),
        (Ok(_), true, Some(known)) => ("known", format!("{} tools, protocol {}", known.tools, known.version)),
        (Ok(_), true, None) => ("new", format!("`haft mcp test {name}` tries it")),
    };
    Row { name: name.to_owned(), transport: transport(server), state, detail, known }
}

pub(super) fn transport(server: &McpServer) -> &'static str {
    match &server.reach {
        Ok(McpReach::Process { .. }) => "stdio",
        Ok(McpReach::Remote { protocol: Protocol::Http, .. }) => "http",
        Ok(McpReach::Remote { protocol: Protocol::Sse, .. }) => "sse",
        Ok(McpReach::Remote { protocol: Protocol::WebSocket, .. }) => "websocket",
        Err(_) => "-",
    }
}

impl Row {
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

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| printable(&row.name).chars().count()).fold(4, usize::max);
    let mut text = format!("{:<width$}  TRANSPORT  STATE     DETAIL\n", "NAME");
    for Row { name, transport, state, detail, .. } in rows {
        let (name, detail) = (printable(name), printable(detail));
        let _ = writeln!(text, "{name:<width$}  {transport:<9}  {state:<8}  {detail}");
    }
    text
}
