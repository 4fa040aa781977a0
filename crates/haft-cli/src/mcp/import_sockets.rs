//! The unix sockets that imported servers need to start containers. haft grants such a socket only if a person agrees.

use std::fmt::Write as _;
use std::path::Path;

use haft_config::import::{EngineSocket, ImportedServer};
use haft_config::printable;
use serde_json::{Map, Value, json};

use super::super::question::{self, Consent};

/// A socket that an imported server needs.
#[derive(Debug, Clone)]
pub(super) struct NeededSocket {
    pub(super) server: String,
    program: &'static str,
    socket: EngineSocket,
}

impl NeededSocket {
    /// Returns the socket that a server needs; `None` if the server starts no containers, or not through a socket.
    pub(super) fn of(server: &ImportedServer) -> Option<Self> {
        let engine = server.engine?;
        let own = server.entry.get("env").and_then(|env| env.get(engine.host_variable()));
        let own = own.and_then(Value::as_str).map(str::to_owned);
        let variable = |name: &str| match &own {
            Some(host) if name == engine.host_variable() => Some(host.clone()),
            Some(_) | None => std::env::var(name).ok(),
        };
        let socket = engine.socket(variable, |path| Path::new(path).exists())?;
        Some(Self { server: server.name.clone(), program: engine.name(), socket })
    }

    /// Asks the user to grant the socket. Without a terminal, haft does not grant it.
    pub(super) async fn is_granted_by_user(&self) -> bool {
        let Self { server, program, socket } = self;
        let overview = format!(
            "`{}` starts containers with {program}. For this, it needs the unix socket `{}`.\nA program that can use this \
             socket can start containers that read and change all files of this machine.",
            printable(server),
            printable(&socket.path)
        );
        let choices = "let the server connect to this socket? [y] yes, any other key: no";
        match question::consent(&overview, choices).await {
            Consent::Given => true,
            Consent::Refused | Consent::NoTerminal => false,
        }
    }

    /// Adds the grant to the entry of the server.
    pub(super) fn grant(&self, entry: &mut Map<String, Value>) {
        entry.insert("sockets".to_owned(), json!([self.socket.path]));
        if let Some((name, host)) = &self.socket.host {
            let env = entry.entry("env").or_insert_with(|| json!({}));
            if let Some(env) = env.as_object_mut() {
                env.entry(*name).or_insert_with(|| json!(host));
            }
        }
    }

    /// Returns the line about a socket that haft did not grant.
    pub(super) fn missing_text(&self) -> String {
        let Self { server, socket, .. } = self;
        let (server, path) = (printable(server), printable(&socket.path));
        let mut text = format!("haft did not let `{server}` connect to the socket `{path}`; to allow it, ");
        // Writing to a string does not fail.
        let _ = write!(text, "set `mcpServers.{server}.sockets` to `[{:?}]`", socket.path);
        if let Some((name, host)) = &socket.host {
            let _ = write!(text, " and `env.{name}` to `{}`", printable(host));
        }
        text
    }

    /// Returns a socket that haft did not grant, as JSON.
    pub(super) fn missing_json(&self) -> Value {
        let Self { server, socket, .. } = self;
        json!({ "server": server, "socket": socket.path, "key": format!("mcpServers.{server}.sockets") })
    }
}
