//! Translates the keys of an agent of Claude Code.

use haft_core::glob::ToolGlob;
use haft_core::naming::MCP_ITEM_PREFIX;
use serde_json::Value;

use super::{ALL_SKILLS, AgentBuilder, BUILTINS};

/// The keys that take tools from an agent.
pub(super) const RESTRICTIONS: [&str; 3] = ["tools", "disallowedTools", "permissionMode"];

/// The tools of Claude Code, with haft's tools that have the same effect.
const TOOLS: [(&str, &[&str]); 5] = [
    ("Read", &["read"]),
    ("Write", &["write"]),
    ("Edit", &["edit"]),
    ("MultiEdit", &["edit"]),
    ("Bash", &["bash"]),
];

/// The tools of Claude Code that haft does not have, so no haft agent has them, even if the file does not deny them.
const TOOLS_WITHOUT_COUNTERPART: [&str; 22] = [
    "Agent",
    "AskUserQuestion",
    "BashOutput",
    "EnterPlanMode",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "KillBash",
    "KillShell",
    "LS",
    "LSP",
    "ListMcpResourcesTool",
    "NotebookEdit",
    "NotebookRead",
    "ReadMcpResourceTool",
    "Skill",
    "SlashCommand",
    "Task",
    "TodoRead",
    "TodoWrite",
    "WebFetch",
    "WebSearch",
];

/// The prefix of MCP tool names in Claude Code.
const SERVER_PREFIX: &str = "mcp__";

/// Translates one key, or returns the reason why the agent cannot be used.
pub(super) fn key(key: &str, value: &Value, agent: &mut AgentBuilder) -> Result<(), String> {
    match key {
        "description" => agent.set("description", value.as_str().unwrap_or_default()),
        "tools" => tools(&items(key, value)?, agent),
        "disallowedTools" => disallowed_tools(&items(key, value)?, agent),
        "model" => model(value, agent),
        "maxTurns" => agent.count(key, "maxTurns", value),
        "effort" => agent.effort(key, value),
        "permissionMode" => permission_mode(value, agent)?,
        "mcpServers" => {
            let reason = "haft ignores this key, because an agent file cannot add MCP servers; \
                          add the servers to `haft.json`";
            agent.note(key, reason);
        }
        "skills" => agent.note(
            key,
            &format!("haft ignores this key, because an agent file cannot load skills; {ALL_SKILLS}"),
        ),
        "hooks" => agent.note(key, "haft ignores this key, because haft runs no hooks"),
        // haft ignores these keys of Claude Code, because they do not change the work of the agent.
        "name" | "color" => {}
        _ => agent.no_such_setting(key),
    }
    Ok(())
}

/// Adds the listed tools. If haft does not have a listed tool, the agent still gets only the other listed tools, never
/// all tools.
fn tools(items: &[String], agent: &mut AgentBuilder) {
    if items.iter().any(|item| item == "*") {
        return;
    }
    agent.tools.listed.get_or_insert_default();
    for item in items {
        let (name, argument) = item.split_once('(').map_or((item.as_str(), None), |(a, b)| (a, Some(b)));
        match (tools_of(name), argument) {
            (Some(_), Some(_)) => agent.note(
                "tools",
                &format!("haft ignores `{item}`, because an agent file cannot limit the arguments of a tool; use the rules of `haft.json`"),
            ),
            (Some(names), None) => names.iter().for_each(|name| agent.list((*name).to_owned())),
            (None, _) => match server_tool(name) {
                Some(tool) => agent.list(tool),
                None => agent.note("tools", &format!("haft ignores `{item}`: {}", no_such_tool(name))),
            },
        }
    }
}

fn disallowed_tools(items: &[String], agent: &mut AgentBuilder) {
    // Claude Code separates tools by commas or by spaces.
    let is_separator = |c: char| c == ',' || c.is_whitespace();
    let items = items.iter().flat_map(|item| split_outside_parentheses(item, is_separator));
    items.for_each(|item| deny(&item, agent));
}

/// Denies the tools that an item matches. The item may be a pattern.
fn deny(item: &str, agent: &mut AgentBuilder) {
    // A denied argument denies the whole tool, because an agent file cannot limit arguments.
    let name = item.split('(').next().unwrap_or_default();
    let denied = denied_tools(name);
    let reaches_servers = may_name_servers(name);
    agent.deny(&denied);
    agent.note_undeniable("disallowedTools", name);
    if reaches_servers {
        agent.deny_server_tools("disallowedTools", item);
    }
    if denied.is_empty() && !reaches_servers && !TOOLS_WITHOUT_COUNTERPART.contains(&name) {
        agent.deny_unknown("disallowedTools", item);
    }
}

fn denied_tools(name: &str) -> Vec<&'static str> {
    match ToolGlob::new(name) {
        _ if name == "*" => BUILTINS.to_vec(),
        Ok(glob) => {
            let matched = TOOLS.iter().filter(|(tool, _)| glob.matches(tool));
            matched.flat_map(|(_, names)| *names).copied().collect()
        }
        Err(_) => Vec::new(),
    }
}

/// Returns whether a name or a pattern can match a tool of an MCP server.
fn may_name_servers(name: &str) -> bool {
    let fixed = name.split(['*', '?']).next().unwrap_or_default();
    fixed.starts_with(SERVER_PREFIX) || (fixed.len() < name.len() && SERVER_PREFIX.starts_with(fixed))
}

/// Returns the haft tools that replace a Claude Code tool.
fn tools_of(name: &str) -> Option<&'static [&'static str]> {
    TOOLS.iter().find(|(tool, _)| *tool == name).map(|(_, names)| *names)
}

fn no_such_tool(name: &str) -> &'static str {
    match name {
        _ if name.starts_with(SERVER_PREFIX) => "haft expects `mcp__SERVER` or `mcp__SERVER__TOOL`",
        "Grep" | "Glob" | "LS" => "haft has no such tool; the model can search with `bash`",
        "Task" | "Agent" => "haft has no such tool; an agent file of haft lists its sub-agents in `agents`",
        _ => "haft has no such tool",
    }
}

/// Translates `mcp__*`, `mcp__SERVER` and `mcp__SERVER__TOOL` into an item for tools of MCP servers. The item matches the
/// names of the server and the tool in every naming scheme. It cannot select a built-in tool or a group, even if a
/// server is called `bash` or `builtin`.
fn server_tool(name: &str) -> Option<String> {
    let name = name.strip_prefix(SERVER_PREFIX)?;
    if name == "*" {
        return Some(format!("{MCP_ITEM_PREFIX}*"));
    }
    let (server, tool) = name.split_once("__").unwrap_or((name, "*"));
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_server = !server.is_empty() && server.chars().all(is_name_char);
    let is_tool = !tool.is_empty() && tool.chars().all(|c| is_name_char(c) || c == '*');
    (is_server && is_tool).then(|| format!("{MCP_ITEM_PREFIX}{server}__{tool}"))
}

fn model(value: &Value, agent: &mut AgentBuilder) {
    match value.as_str().unwrap_or_default() {
        "inherit" => {}
        name => {
            let reason = format!(
                "the model `{name}` names no provider, so the agent uses the default model (`models.default`)"
            );
            agent.note("model", &reason);
        }
    }
}

fn permission_mode(value: &Value, agent: &mut AgentBuilder) -> Result<(), String> {
    match value.as_str().ok_or("`permissionMode`: expected the name of a mode")? {
        "default" => {}
        "plan" => {
            agent.deny(&["bash", "write", "edit"]);
            agent.deny_server_tools("permissionMode", "plan");
        }
        _ => agent.note(
            "permissionMode",
            "haft ignores this mode, because `haft.json` sets the rules and approvals",
        ),
    }
    Ok(())
}

/// Returns the items of a list, or of a string with commas. A comma in parentheses separates arguments and not tools.
fn items(key: &str, value: &Value) -> Result<Vec<String>, String> {
    let items = match value {
        Value::Array(list) => list.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Value::String(text) => Some(split_outside_parentheses(text, |c| c == ',')),
        Value::Null => Some(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    items.ok_or_else(|| format!("`{key}`: expected a list of tool names"))
}

fn split_outside_parentheses(text: &str, is_separator: impl Fn(char) -> bool) -> Vec<String> {
    let mut depth = 0_usize;
    let words = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && is_separator(c)
    });
    words.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
