//! Translates the keys of an agent of opencode.

use haft_core::settings::models::PROVIDER_NAMES;
use serde_json::{Map, Value};

use super::{AgentBuilder, BUILTINS};

/// Translates one key, or returns the reason why the agent cannot be used.
pub(super) fn key(key: &str, value: &Value, agent: &mut AgentBuilder) -> Result<(), String> {
    match key {
        "disable" if value == &Value::Bool(true) => {
            return Err("the agent is disabled in opencode (`disable: true`)".into());
        }
        "description" => agent.set("description", value.as_str().unwrap_or_default()),
        "tools" => tools(value, agent)?,
        "permission" => permissions(value, agent)?,
        "model" => model(value, agent),
        "steps" | "maxSteps" => agent.count(key, "maxTurns", value),
        "temperature" => number(key, "temperature", value, agent),
        "top_p" => number(key, "topP", value, agent),
        "reasoningEffort" => agent.effort(key, value),
        // These keys have no effect on the work of the agent.
        "name" | "mode" | "color" | "hidden" | "disable" => {}
        _ => agent.no_such_setting(key),
    }
    Ok(())
}

/// Reads the map of tools: `false` removes a tool, and `true` adds it after `"*": false`.
fn tools(value: &Value, agent: &mut AgentBuilder) -> Result<(), String> {
    let Value::Object(tools) = value else {
        return Err("`tools`: expected tool names with true or false".into());
    };
    let is = |name: &str, wanted: bool| tools.get(name) == Some(&Value::Bool(wanted));
    if is("*", false) {
        let listed = BUILTINS.into_iter().filter(|tool| is(tool, true)).map(str::to_owned).collect();
        agent.tools.listed = Some(listed);
    }
    for (name, allowed) in tools.iter().filter(|(name, _)| *name != "*") {
        match (tools_of(name), allowed) {
            (ToolMeaning::Haft(names), Value::Bool(false)) => agent.deny(names),
            (ToolMeaning::Haft(_) | ToolMeaning::None, _) => {}
            (ToolMeaning::Server, Value::Bool(false)) => agent.deny_server_tools("tools", name),
            (ToolMeaning::Server, _) => {
                agent.note("tools", &format!("`{name}` was left out: haft names tools `server__tool`"));
            }
        }
    }
    Ok(())
}

/// Reads the permissions. Only `deny` changes the agent: haft's own rules decide about approvals.
fn permissions(value: &Value, agent: &mut AgentBuilder) -> Result<(), String> {
    match value {
        Value::String(word) if word == "deny" => deny_all(agent),
        Value::String(_) => {}
        Value::Object(permissions) => {
            permissions.iter().for_each(|(name, value)| permission(name, value, agent));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err("`permission`: expected tool names with allow, ask or deny".into());
        }
    }
    agent.note("permission", "the rules and approvals of `haft.json` decide; only denied tools are removed");
    Ok(())
}

fn permission(name: &str, value: &Value, agent: &mut AgentBuilder) {
    let has_denied = match value {
        Value::String(word) => word == "deny",
        // A rule for some arguments denies the whole tool, because an agent file cannot limit arguments.
        Value::Object(patterns) => denies_some(patterns),
        _ => false,
    };
    match (has_denied, name, tools_of(name)) {
        (false, ..) | (true, _, ToolMeaning::None) => {}
        (true, "*", _) => deny_all(agent),
        // This permission of opencode covers every change of a file.
        (true, "edit", _) => agent.deny(&["edit", "write"]),
        (true, _, ToolMeaning::Haft(names)) => agent.deny(names),
        (true, _, ToolMeaning::Server) => agent.deny_server_tools("permission", name),
    }
}

fn denies_some(patterns: &Map<String, Value>) -> bool {
    patterns.values().any(|value| value == "deny")
}

fn deny_all(agent: &mut AgentBuilder) {
    agent.deny(&BUILTINS);
    agent.tools.server_tools_denied = true;
}

/// The tools of haft that correspond to a tool name in opencode.
enum ToolMeaning {
    Haft(&'static [&'static str]),
    /// A tool of opencode that haft does not have.
    None,
    Server,
}

fn tools_of(name: &str) -> ToolMeaning {
    match name {
        "read" => ToolMeaning::Haft(&["read"]),
        "write" => ToolMeaning::Haft(&["write"]),
        "edit" | "patch" | "multiedit" => ToolMeaning::Haft(&["edit"]),
        "bash" => ToolMeaning::Haft(&["bash"]),
        "glob" | "grep" | "list" | "lsp" | "task" | "agent" | "skill" | "question" | "webfetch"
        | "websearch" | "codesearch" | "todowrite" | "todoread" | "external_directory" | "doom_loop" => {
            ToolMeaning::None
        }
        _ => ToolMeaning::Server,
    }
}

fn model(value: &Value, agent: &mut AgentBuilder) {
    let name = value.as_str().unwrap_or_default();
    match name.split_once('/') {
        Some((provider, _)) if PROVIDER_NAMES.contains(&provider) => agent.set("models", name),
        Some(_) | None => agent.note("model", &format!("haft has no provider for `{name}`")),
    }
}

fn number(key: &str, as_key: &str, value: &Value, agent: &mut AgentBuilder) {
    if value.is_number() {
        agent.set(as_key, value.clone());
    } else {
        agent.note(key, "expected a number");
    }
}
