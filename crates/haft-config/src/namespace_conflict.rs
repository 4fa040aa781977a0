//! Detects MCP servers whose names result in the same tool namespace. The first of these servers gets the namespace,
//! and every command reports the conflict.

use std::collections::BTreeMap;

use haft_core::name::Namespace;

use super::mcp::McpServerSettings;

/// Returns the reason why a server cannot be used together with the others: another enabled server has the same
/// namespace for tools, files and caches.
pub fn namespace_conflict(servers: &BTreeMap<String, McpServerSettings>, name: &str) -> Option<String> {
    let namespace = Namespace::sanitize(name);
    let off = servers.get(name).is_some_and(|server| !server.enabled);
    let has_it = |(other, server): &(&String, &McpServerSettings)| {
        let first = off || other.as_str() < name;
        server.enabled && first && other.as_str() != name && Namespace::sanitize(other) == namespace
    };
    let (other, _) = servers.iter().find(has_it)?;
    Some(format!(
        "the tool names of the server would begin with `{namespace}__`, like the tool names of `{other}`; rename one of the two servers"
    ))
}

/// Returns true if another server, enabled or not, stores its data under the same namespace.
pub fn shares_namespace(servers: &BTreeMap<String, McpServerSettings>, name: &str) -> bool {
    let namespace = Namespace::sanitize(name);
    servers.keys().any(|other| other != name && Namespace::sanitize(other) == namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn servers(entries: &Value) -> BTreeMap<String, McpServerSettings> {
        let entries = entries.as_object().unwrap();
        super::super::mcp_servers_of("x".as_ref(), entries, &|_| None).unwrap()
    }

    #[test]
    fn first_enabled_server_wins_a_name_collision() {
        let check = |entries: Value, name: &str, expected: Option<&str>| {
            let found = namespace_conflict(&servers(&entries), name);
            let as_expected = expected.is_none_or(|other| found.as_deref().unwrap().contains(other));
            assert!(found.is_some() == expected.is_some() && as_expected, "{name}: {found:?}");
        };
        let (on, off) = (json!({ "command": "x" }), json!({ "command": "x", "enabled": false }));
        check(json!({ "a b": on, "a.b": on }), "a b", None);
        check(json!({ "a b": on, "a.b": on }), "a.b", Some("`a b`"));
        check(json!({ "a b": off, "a.b": on }), "a.b", None);
        check(json!({ "a b": off, "a.b": on }), "a b", Some("`a.b`"));
        check(json!({ "a": on, "b": on }), "b", None);
        assert!(shares_namespace(&servers(&json!({ "a b": off, "a.b": on })), "a.b"));
        assert!(!shares_namespace(&servers(&json!({ "a": on, "b": on })), "b"));
    }
}
