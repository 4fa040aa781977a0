//! Imports the `mcp_servers` tables of Codex.

use serde_json::{Map, Value};

use super::variables::{VariableStyle, rewrite_map, rewrite_words};
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
    let variable = |name: &str| format!("${{{name}}}");
    match (key, value) {
        ("command" | "cwd" | "url", Value::String(text)) => builder.set(key, text.clone()),
        ("args", value) => {
            let words = rewrite_words(value, VariableStyle::None, builder);
            builder.set("args", words);
        }
        ("env", Value::Object(map)) => env.extend(rewrite_map(map, VariableStyle::None, builder)),
        ("env_vars", Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            env.extend(names.map(|name| (name.to_owned(), variable(name).into())));
        }
        ("http_headers", Value::Object(map)) => {
            headers.extend(rewrite_map(map, VariableStyle::None, builder));
        }
        ("env_http_headers", Value::Object(map)) => {
            let named = map.iter().filter_map(|(header, name)| Some((header.clone(), name.as_str()?)));
            headers.extend(named.map(|(header, name)| (header, variable(name).into())));
        }
        ("bearer_token_env_var", Value::String(name)) => {
            headers.insert("Authorization".into(), format!("Bearer {}", variable(name)).into());
        }
        ("enabled", Value::Bool(false)) => builder.set("disabled", true),
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
        ("enabled" | "required", Value::Bool(_)) => {}
        ("supports_parallel_tool_calls", _) => {
            builder.note(format!(
                "haft did not import the key `{key}`: the effects of a tool decide if its calls may run at the same time"
            ));
        }
        ("default_tools_approval_mode" | "tools", _) => builder.own_approvals(key),
        ("scopes" | "oauth_resource" | "auth", _) => {
            builder.note("haft cannot import the login; log in to the server with haft");
        }
        (key, _) => builder.not_taken(key),
    }
}
