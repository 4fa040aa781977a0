//! Imports the `mcp_servers` tables of Codex.

use serde_json::{Map, Value};

use super::variables::{VariableStyle, rewrite, rewrite_map, rewrite_words};
use super::{EntryBuilder, ImportedServers, TimeoutUnit};

pub(super) fn read(text: &str) -> Result<ImportedServers, String> {
    let file: Value = toml::from_str(text).map_err(|error| format!("the file is not valid TOML: {error}"))?;
    let mut found = ImportedServers::default();
    for (name, server) in file["mcp_servers"].as_object().into_iter().flatten() {
        let Some(server) = server.as_object() else {
            found.skipped.push((name.clone(), "the settings of the server are not a table".into()));
            continue;
        };
        let mut builder = EntryBuilder::default();
        let (mut env, mut headers) = (Map::new(), Map::new());
        for (key, value) in server {
            member(key, value, (&mut env, &mut headers), &mut builder);
        }
        if !env.is_empty() {
            builder.set("env", env);
        }
        if !headers.is_empty() {
            builder.set("headers", headers);
        }
        builder.finish(name, &mut found);
    }
    Ok(found)
}

fn member(
    key: &str,
    value: &Value,
    (env, headers): (&mut Map<String, Value>, &mut Map<String, Value>),
    builder: &mut EntryBuilder,
) {
    match (key, value) {
        ("command" | "cwd" | "url", Value::String(text)) => {
            let text = rewrite(text, VariableStyle::None, builder);
            builder.set(key, text);
        }
        ("args", value) => {
            let words = rewrite_words(key, value, VariableStyle::None, builder);
            builder.set("args", words);
        }
        ("env", Value::Object(map)) => env.extend(rewrite_map(map, VariableStyle::None, builder)),
        ("env_vars", Value::Array(names)) => {
            let names = names.iter().map(|name| (name.as_str().unwrap_or_default().to_owned(), name));
            env.extend(references(key, names, builder));
        }
        ("http_headers", Value::Object(map)) => {
            headers.extend(rewrite_map(map, VariableStyle::None, builder));
        }
        ("env_http_headers", Value::Object(map)) => {
            let names = map.iter().map(|(header, name)| (header.clone(), name));
            headers.extend(references(key, names, builder));
        }
        ("bearer_token_env_var", Value::String(name)) => {
            headers.insert("Authorization".into(), format!("Bearer {}", variable(name)).into());
        }
        ("enabled", value) => builder.enabled_by(key, value),
        ("enabled_tools", names) => builder.allow_tools(key, names),
        ("disabled_tools", names) => builder.deny_tools(key, names),
        ("startup_timeout_sec", value) => {
            builder.time_limit("startupTimeout", key, value, TimeoutUnit::Seconds);
        }
        ("startup_timeout_ms", value) => {
            builder.time_limit("startupTimeout", key, value, TimeoutUnit::Milliseconds);
        }
        ("tool_timeout_sec", value) => {
            builder.time_limit("requestTimeout", key, value, TimeoutUnit::Seconds);
        }
        ("required", Value::Bool(true)) => builder.set("startup", "required"),
        ("required", Value::Bool(false)) => {}
        ("supports_parallel_tool_calls", _) => {
            builder.note(format!(
                "haft did not import the key `{key}`: the effects of a tool decide if its calls may run at the same time"
            ));
        }
        ("default_tools_approval_mode" | "tools", _) => builder.own_approvals(key),
        ("scopes" | "oauth_resource" | "auth", _) => {
            builder.note("haft cannot import the login; log in to the server with haft");
        }
        (
            "command"
            | "cwd"
            | "url"
            | "env"
            | "env_vars"
            | "http_headers"
            | "env_http_headers"
            | "bearer_token_env_var"
            | "required",
            value,
        ) => builder.malformed(key, value),
        (key, _) => builder.not_taken(key),
    }
}

/// Returns the entries with references to the variables that they name. Notes an entry that names no variable.
fn references<'a>(
    key: &str,
    names: impl Iterator<Item = (String, &'a Value)>,
    builder: &mut EntryBuilder,
) -> Map<String, Value> {
    let mut found = Map::new();
    for (entry, name) in names {
        match name.as_str() {
            Some(name) => {
                found.insert(entry, variable(name).into());
            }
            None => builder.malformed(key, name),
        }
    }
    found
}

fn variable(name: &str) -> String {
    format!("${{{name}}}")
}
