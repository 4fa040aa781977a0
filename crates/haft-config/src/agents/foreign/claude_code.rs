//! Translates the keys of an agent of Claude Code.

use serde_json::Value;

use super::AgentBuilder;

/// Translates one key, or returns the reason why the agent cannot be used.
pub(super) fn key(key: &str, value: &Value, agent: &mut AgentBuilder) -> Result<(), String> {
    match key {
        "description" => agent.set("description", value.as_str().unwrap_or_default()),
        "tools" => tools(&items(key, value)?, agent),
        "disallowedTools" => items(key, value)?.iter().for_each(|item| deny(item, agent)),
        "model" => model(value, agent),
        "maxTurns" => agent.count(key, "maxTurns", value),
        "effort" => agent.effort(key, value),
        "permissionMode" => permission_mode(value, agent),
        "mcpServers" => agent.note(key, "an agent file cannot add servers; add them to `haft.json`"),
        "skills" => agent.note(key, "an agent file cannot load skills; haft offers all trusted skills"),
        "hooks" => agent.note(key, "haft runs no hooks"),
        // These keys have no effect on the work of the agent.
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
                &format!("`{item}` was left out, because an agent file cannot limit the arguments of a tool; use the rules of `haft.json`"),
            ),
            (Some(names), None) => names.iter().for_each(|name| agent.list((*name).to_owned())),
            (None, _) => match server_tool(name) {
                Some(tool) => agent.list(tool),
                None => agent.note("tools", &format!("`{item}` was left out: {}", no_such_tool(name))),
            },
        }
    }
}

fn deny(item: &str, agent: &mut AgentBuilder) {
    // A denied argument denies the whole tool, because an agent file cannot limit arguments.
    let name = item.split('(').next().unwrap_or_default();
    match (tools_of(name), server_tool(name)) {
        (Some(names), _) => agent.deny(names),
        (None, Some(_)) => agent.deny_server_tools("disallowedTools", item),
        (None, None) => {}
    }
}

/// Returns haft's tools with the effect of a tool of Claude Code.
fn tools_of(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "Read" => &["read"],
        "Write" => &["write"],
        "Edit" | "MultiEdit" => &["edit"],
        "Bash" => &["bash"],
        _ => return None,
    })
}

fn no_such_tool(name: &str) -> &'static str {
    match name {
        "Grep" | "Glob" | "LS" => "haft has no such tool; the model can search with `bash`",
        "Task" | "Agent" => "haft has no such tool; an agent file of haft lists its sub-agents in `agents`",
        _ => "haft has no such tool",
    }
}

/// Translates `mcp__SERVER__TOOL` and `mcp__SERVER`.
fn server_tool(name: &str) -> Option<String> {
    let name = name.strip_prefix("mcp__")?;
    Some(name.strip_suffix("__*").unwrap_or(name).to_owned())
}

fn model(value: &Value, agent: &mut AgentBuilder) {
    match value.as_str().unwrap_or_default() {
        "inherit" => {}
        name => {
            let reason = format!("`{name}` names no provider; choose a model with `-m` or `models.default`");
            agent.note("model", &reason);
        }
    }
}

fn permission_mode(value: &Value, agent: &mut AgentBuilder) {
    match value.as_str().unwrap_or_default() {
        "default" => {}
        "plan" => {
            agent.deny(&["bash", "write", "edit"]);
            agent.deny_server_tools("permissionMode", "plan");
        }
        _ => agent.note("permissionMode", "the rules and approvals of `haft.json` decide"),
    }
}

/// Returns the items of a list, or of a text with commas. A comma in parentheses separates arguments and not tools.
fn items(key: &str, value: &Value) -> Result<Vec<String>, String> {
    let items = match value {
        Value::Array(list) => list.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Value::String(text) => Some(split_outside_parentheses(text)),
        Value::Null => Some(Vec::new()),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    };
    items.ok_or_else(|| format!("`{key}`: expected a list of tool names"))
}

fn split_outside_parentheses(text: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let words = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    words.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
