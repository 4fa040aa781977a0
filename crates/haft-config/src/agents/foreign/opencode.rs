//! Translates the keys of an agent of opencode.

use haft_core::glob::ToolGlob;
use haft_core::settings::models::PROVIDER_NAMES;
use serde_json::Value;

use super::{AgentBuilder, BUILTINS};

/// haft's tools that change files. Newer versions of opencode have one permission for all of them, so that `write: false`
/// denies editing too.
const CHANGES: &[&str] = &["edit", "write"];

/// The tools of opencode, with haft's tools that have the same effect.
const TOOLS: [(&str, &[&str]); 7] = [
    ("read", &["read"]),
    ("bash", &["bash"]),
    ("write", CHANGES),
    ("edit", CHANGES),
    ("patch", CHANGES),
    ("multiedit", CHANGES),
    ("apply_patch", CHANGES),
];

/// The tools and permissions of opencode that have no counterpart in haft.
const TOOLS_WITHOUT_COUNTERPART: [&str; 15] = [
    "glob",
    "grep",
    "list",
    "lsp",
    "task",
    "agent",
    "skill",
    "question",
    "webfetch",
    "websearch",
    "codesearch",
    "todowrite",
    "todoread",
    "external_directory",
    "doom_loop",
];

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
        // haft ignores these keys of opencode, because they do not change the work of the agent.
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
    for (name, allowed) in tools {
        match allowed {
            Value::Bool(_) if name == "*" => {}
            Value::Bool(false) => deny("tools", name, agent),
            Value::Bool(true) if is_tool_of_opencode(name) => {}
            Value::Bool(true) => {
                agent.note(
                    "tools",
                    &format!("haft ignores `{name}`: haft names the tools of MCP servers `server__tool`"),
                );
            }
            _ => return Err(format!("`tools.{name}`: expected true or false")),
        }
    }
    Ok(())
}

/// Reads the permissions. Only `deny` changes the agent: haft's own rules decide about approvals.
fn permissions(value: &Value, agent: &mut AgentBuilder) -> Result<(), String> {
    match value {
        Value::String(_) => permission("*", value, agent)?,
        Value::Object(permissions) => {
            permissions.iter().try_for_each(|(name, value)| permission(name, value, agent))?;
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            return Err("`permission`: expected tool names with allow, ask or deny".into());
        }
    }
    agent.note(
        "permission",
        "`haft.json` sets the rules and approvals, so haft only removes the denied tools",
    );
    Ok(())
}

fn permission(name: &str, value: &Value, agent: &mut AgentBuilder) -> Result<(), String> {
    let has_denied = match value {
        // A rule for some arguments denies the whole tool, because an agent file cannot limit arguments.
        Value::Object(patterns) => {
            let denied: Result<Vec<bool>, String> =
                patterns.values().map(|value| is_denied(name, value)).collect();
            denied?.contains(&true)
        }
        value => is_denied(name, value)?,
    };
    if has_denied {
        deny("permission", name, agent);
    }
    Ok(())
}

fn is_denied(name: &str, value: &Value) -> Result<bool, String> {
    match value.as_str() {
        Some("deny") => Ok(true),
        Some("allow" | "ask") => Ok(false),
        _ => Err(format!("`permission` of `{name}`: expected allow, ask or deny")),
    }
}

/// Denies the tools that a name or a pattern matches. A pattern for built-in tools can match tools of servers too.
fn deny(key: &str, name: &str, agent: &mut AgentBuilder) {
    if name == "*" {
        agent.deny(&BUILTINS);
        agent.tools.server_tools_denied = true;
        return;
    }
    agent.note_undeniable(key, name);
    if let Ok(glob) = ToolGlob::new(name) {
        TOOLS.iter().filter(|(tool, _)| glob.matches(tool)).for_each(|(_, tools)| agent.deny(tools));
        BUILTINS.iter().filter(|tool| glob.matches(tool)).for_each(|tool| agent.deny(&[tool]));
    }
    if !is_tool_of_opencode(name) {
        agent.deny_server_tools(key, name);
    }
}

fn is_tool_of_opencode(name: &str) -> bool {
    TOOLS.iter().any(|(tool, _)| *tool == name) || TOOLS_WITHOUT_COUNTERPART.contains(&name)
}

fn model(value: &Value, agent: &mut AgentBuilder) {
    let name = value.as_str().unwrap_or_default();
    match name.split_once('/') {
        Some((provider, _)) if PROVIDER_NAMES.contains(&provider) => agent.set("models", name),
        Some(_) | None => agent
            .note("model", &format!("haft ignores the model `{name}`, because haft has no provider for it")),
    }
}

fn number(key: &str, as_key: &str, value: &Value, agent: &mut AgentBuilder) {
    if value.is_number() {
        agent.set(as_key, value.clone());
    } else {
        agent.note(key, "haft ignores this key, because its value is not a number");
    }
}
