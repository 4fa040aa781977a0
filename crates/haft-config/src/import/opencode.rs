//! Imports the object `mcp` of opencode.

use serde_json::{Map, Value};

use super::variables::{VariableStyle, rewrite, rewrite_map, rewrite_words};
use super::{EntryBuilder, ImportedServers, TimeoutUnit};

pub(super) fn read(file: &Map<String, Value>) -> ImportedServers {
    let mut found = ImportedServers::default();
    for (name, server) in file.get("mcp").and_then(Value::as_object).into_iter().flatten() {
        let Some(server) = server.as_object() else {
            found.skipped.push((name.clone(), "the settings of the server are not an object".into()));
            continue;
        };
        let mut builder = EntryBuilder::default();
        for (key, value) in server {
            member(key, value, &mut builder);
        }
        builder.finish(name, &mut found);
    }
    for name in file.get("agent").and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        let reason =
            format!("haft reads agents from agent files; move the agent to `.opencode/agent/{name}.md`");
        found.skipped.push((format!("agent {name}"), reason));
    }
    found
}

fn member(key: &str, value: &Value, builder: &mut EntryBuilder) {
    let style = VariableStyle::Opencode;
    match (key, value) {
        // In opencode, `command` is a list of the program and its arguments.
        ("command", value) => {
            let mut words = rewrite_words(key, value, style, builder).into_iter();
            if let Some(program) = words.next() {
                builder.set("command", program);
                builder.set("args", words.collect::<Vec<_>>());
            }
        }
        ("environment", Value::Object(map)) => {
            let map = rewrite_map(map, style, builder);
            builder.set("env", map);
        }
        ("url", Value::String(url)) => {
            let url = rewrite(url, style, builder);
            builder.set("url", url);
        }
        ("headers", Value::Object(map)) => {
            let map = rewrite_map(map, style, builder);
            builder.set("headers", map);
        }
        ("cwd", Value::String(path)) => {
            let path = rewrite(path, style, builder);
            builder.set("cwd", path);
        }
        ("enabled", value) => builder.enabled_by(key, value),
        ("timeout", value) => builder.time_limit("requestTimeout", key, value, TimeoutUnit::Milliseconds),
        ("type", _) => {}
        ("environment" | "url" | "headers" | "cwd", value) => builder.malformed(key, value),
        ("oauth", _) => builder.note("haft cannot import the login; log in to the server with haft"),
        (key, _) => builder.not_taken(key),
    }
}
