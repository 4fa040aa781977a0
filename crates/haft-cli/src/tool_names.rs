//! Checks tool names without starting any server.

use haft_config::{ResolvedConfig, nearest, printable};
use haft_core::naming::MCP_ITEM_PREFIX;
use haft_runtime::wiring;

/// The namespaces of tools that do not come from MCP servers.
const OWN_NAMESPACES: [&str; 3] = ["agent", "rest", "router"];

/// The group of the built-in tools.
const BUILTIN: &str = "builtin";

/// Returns the error for a name that no tool of this configuration can have. Only a running server can list its tools,
/// so a name in the namespace of a configured server is accepted.
pub(super) fn unknown_tool(config: &ResolvedConfig, name: &str) -> Option<String> {
    if wiring::is_builtin(name) || is_pattern(name) || has_namespace(config, name) {
        return None;
    }
    let builtin = wiring::builtin_names();
    let near = nearest(name, builtin.iter()).map(|near| format!("; did you mean `{near}`?"));
    Some(format!("there is no tool `{}`{}", printable(name), near.unwrap_or_default()))
}

/// Returns the error of [`unknown_tool`] for an item of `tools`, which may also be the name of a group or of a tool
/// source.
pub(super) fn unknown_selection(config: &ResolvedConfig, word: &str) -> Option<String> {
    if let Some(name) = word.strip_prefix(MCP_ITEM_PREFIX) {
        return unknown_tool(config, name);
    }
    let is_it = |known: &str| known.eq_ignore_ascii_case(word);
    let rest = &config.rest;
    let mut known = config
        .groups
        .keys()
        .chain(rest.tools.values().filter_map(|tool| tool.group.as_ref()))
        .map(haft_core::name::GroupName::as_str)
        .chain(config.mcp_servers.keys().chain(rest.specs.keys()).map(String::as_str))
        .chain(OWN_NAMESPACES)
        .chain([BUILTIN]);
    if known.any(is_it) { None } else { unknown_tool(config, word) }
}

fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '{', '@'])
}

fn has_namespace(config: &ResolvedConfig, name: &str) -> bool {
    let Some((namespace, _)) = name.split_once("__") else { return false };
    // The namespace of a server may differ from its name in case, and in characters that tool names cannot have.
    let letters = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    let is_it = |known: &str| letters(known).eq_ignore_ascii_case(&letters(namespace));
    config.mcp_servers.keys().any(|server| is_it(server)) || OWN_NAMESPACES.into_iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translation_of_foreign_agent_files_covers_every_builtin_tool() {
        let mut builtins = wiring::builtin_names();
        // Every agent gets this tool together with its first stored output.
        builtins.retain(|name| name != "tool_output");
        builtins.sort();
        let mut translated = haft_config::agents::TRANSLATED_BUILTINS.to_vec();
        translated.sort_unstable();
        assert_eq!(translated, builtins);
    }
}
