//! Imports the map `extensions` of goose.

use serde_json::{Map, Value};

use super::variables::{VariableStyle, rewrite, rewrite_map, rewrite_words};
use super::{EntryBuilder, ImportedServers, TimeoutUnit};
use crate::yaml;

pub(super) fn read(text: &str) -> Result<ImportedServers, String> {
    let file: Value = yaml::from_str(text).map_err(|error| format!("the file is not valid YAML: {error}"))?;
    let mut found = ImportedServers::default();
    for (name, extension) in file["extensions"].as_object().into_iter().flatten() {
        let kind = extension["type"].as_str().unwrap_or_default();
        match (extension.as_object(), kind) {
            (Some(extension), "stdio" | "sse" | "streamable_http") => {
                let mut builder = EntryBuilder::default();
                of_extension(extension, kind, &mut builder);
                builder.finish(name, &mut found);
            }
            (Some(_), kind) => {
                found.skipped.push((
                    name.clone(),
                    format!("haft cannot import extensions of type `{kind}`, which are built into goose"),
                ));
            }
            (None, _) => {
                found.skipped.push((name.clone(), "the settings of the extension are not a map".into()));
            }
        }
    }
    Ok(found)
}

fn of_extension(extension: &Map<String, Value>, kind: &str, builder: &mut EntryBuilder) {
    let mut env = Map::new();
    for (key, value) in extension {
        match (key.as_str(), value) {
            ("cmd", Value::String(program)) => {
                let program = rewrite(program, VariableStyle::None, builder);
                builder.set("command", program);
            }
            ("args", value) => {
                let words = rewrite_words(key, value, VariableStyle::None, builder);
                builder.set("args", words);
            }
            ("envs", Value::Object(map)) => env.extend(rewrite_map(map, VariableStyle::None, builder)),
            ("env_keys", Value::Array(names)) => {
                for name in names.iter().filter_map(Value::as_str) {
                    env.insert(name.to_owned(), format!("${{{name}}}").into());
                    builder.note(format!(
                        "set the environment variable `{name}`; goose stores its value in the keyring"
                    ));
                }
            }
            ("uri", Value::String(url)) => {
                let url = rewrite(url, VariableStyle::None, builder);
                builder.set("url", url);
            }
            ("headers", Value::Object(map)) => {
                let map = rewrite_map(map, VariableStyle::Braces, builder);
                builder.set("headers", map);
            }
            ("enabled", value) => builder.enabled_by(key, value),
            // An empty list means all tools.
            ("available_tools", Value::Array(names)) if names.is_empty() => {}
            ("available_tools", names) => builder.allow_tools(key, names),
            ("timeout", value) => builder.time_limit("requestTimeout", key, value, TimeoutUnit::Seconds),
            ("bundled" | "description" | "display_name", _) => builder.describing(key),
            ("name" | "type", _) => {}
            ("cmd" | "envs" | "env_keys" | "uri" | "headers", value) => builder.malformed(key, value),
            (key, _) => builder.not_taken(key),
        }
    }
    if !env.is_empty() {
        builder.set("env", env);
    }
    if kind == "sse" {
        builder.set("type", "sse");
    }
}
