//! Finds the entries in files of other programs that start haft itself.
//!
//! With such an entry, haft would start a second gateway in its own sandbox. It would fail, or offer every tool twice.

use std::path::Path;

use serde_json::{Map, Value};

use super::layers::is_inside;
use super::position::child;
use super::read::ConfigLayer;

/// The reason why haft does not use an entry that starts haft itself.
pub(super) const REASON: &str =
    "this entry is for other programs: it starts haft itself, so haft does not use it";

/// Returns true if a server is `haft mcp serve`. `program` is the path of the running program, whose file may have
/// another name.
pub(super) fn starts_haft(server: &Map<String, Value>, program: Option<&Path>) -> bool {
    let Some(command) = server.get("command").and_then(Value::as_str).map(Path::new) else { return false };
    let mut args = server.get("args").and_then(Value::as_array).into_iter().flatten();
    let is_haft = program == Some(command) || command.file_name().is_some_and(|name| name == "haft");
    is_haft && ["mcp", "serve"].iter().all(|word| args.next().is_some_and(|arg| arg == word))
}

/// Removes the entries that start haft itself from the values of a file. Returns the paths and positions of their keys.
pub(super) fn remove_from(
    layer: &mut ConfigLayer,
    program: Option<&Path>,
) -> Vec<(String, Option<(usize, usize)>)> {
    let servers = layer.value.get_mut("mcpServers").and_then(Value::as_object_mut);
    let Some(servers) = servers else { return Vec::new() };
    let is_own = |server: &Value| server.as_object().is_some_and(|server| starts_haft(server, program));
    let own: Vec<String> =
        servers.iter().filter(|(_, server)| is_own(server)).map(|(name, _)| name.clone()).collect();
    let mut removed = Vec::new();
    for name in own {
        servers.remove(&name);
        let path = child("mcpServers", &name);
        let position = layer.key_positions.get(&path).copied();
        layer.key_positions.retain(|key, _| !is_inside(key, &path));
        removed.push((path, position));
    }
    removed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entry_starts_haft_if_its_program_is_haft_and_its_arguments_begin_with_mcp_serve() {
        let program = Path::new("/opt/haft-1.2");
        let check = |server: Value, expected: bool| {
            assert_eq!(starts_haft(server.as_object().unwrap(), Some(program)), expected, "{server}");
        };
        check(json!({"command": "haft", "args": ["mcp", "serve"]}), true);
        check(json!({"command": "/usr/bin/haft", "args": ["mcp", "serve", "--read-only"]}), true);
        check(json!({"command": "/opt/haft-1.2", "args": ["mcp", "serve"]}), true);
        check(json!({"command": "/opt/haft-1.3", "args": ["mcp", "serve"]}), false);
        check(json!({"command": "haft", "args": ["mcp"]}), false);
        check(json!({"command": "haft", "args": ["mcp", "list"]}), false);
        check(json!({"command": "haft"}), false);
        check(json!({"command": "uvx", "args": ["haft", "mcp", "serve"]}), false);
        check(json!({"url": "https://example.com/haft"}), false);
    }
}
