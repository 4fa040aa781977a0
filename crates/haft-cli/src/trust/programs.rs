//! Finds the project files that a configuration starts or reads. The digest of a trusted configuration does not cover
//! these files, so haft warns the operator.

use std::path::{Path, PathBuf};

use serde_json::Value;

use haft_config::ConfigRow;
use haft_config::resolved::McpEndpoint;
use haft_config::skills::Skill;

/// Returns the files that any server or tool in a configuration names.
pub(super) fn of_rows(project: &Path, rows: &[ConfigRow]) -> Vec<PathBuf> {
    let names_files =
        |row: &&ConfigRow| matches!(row.key.rsplit('.').next(), Some("command" | "args" | "spec" | "caFile"));
    let named = rows.iter().filter(names_files);
    let words = named.filter_map(|row| row.value.as_ref()).flat_map(|value| match value {
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        Value::String(word) => vec![word.as_str()],
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
    });
    inside(project, words)
}

/// Returns the files in the commands of a skill's servers. A server with an unset variable counts too, because its
/// command runs as soon as the variable is set.
pub(super) fn of_skill(project: &Path, skill: &Skill) -> Vec<PathBuf> {
    let words = skill.servers.values().flat_map(|server| match &server.reach {
        Ok(McpEndpoint::Process { command, args, .. }) => {
            std::iter::once(command.as_str()).chain(args.iter().map(|word| word.0.as_str())).collect()
        }
        Ok(McpEndpoint::Remote { .. }) => Vec::new(),
        Err(_) => server.written_target.words.iter().map(String::as_str).collect(),
    });
    inside(project, words)
}

/// Returns a line for each command and address in a configuration.
pub(super) fn commands_of_rows(rows: &[ConfigRow]) -> Vec<String> {
    let words = |value: &Value| match value {
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
        Value::String(word) => word.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
    };
    let value_of = |key: &str| rows.iter().find(|row| row.key == key).and_then(|row| row.value.as_ref());
    let runs = rows.iter().filter_map(|row| {
        let (owner, name) = row.key.rsplit_once('.')?;
        let value = row.value.as_ref()?;
        let runs = match name {
            "command" => {
                let args = value_of(&format!("{owner}.args")).map(words).unwrap_or_default();
                format!("{} {args}", words(value))
            }
            "url" | "baseUrl" | "spec" => words(value),
            _ => return None,
        };
        Some(haft_config::printable(format!("{owner}: {runs}").trim_end()))
    });
    runs.collect()
}

/// Returns a line for each server of a skill, with its variables as in the file: a variable can get another value after
/// the file is trusted, and its value may be a secret.
pub(super) fn servers_of_skill(skill: &Skill) -> Vec<String> {
    let servers = skill.servers.iter().map(|(name, server)| {
        let runs = server.written_target.words.join(" ");
        haft_config::printable(&format!("server {name} of skill {}: {runs}", skill.name))
    });
    servers.collect()
}

/// Formats the warning about files that the trust does not cover.
pub(super) fn uncovered_lines(programs: &[PathBuf]) -> String {
    let lines = programs.iter().map(|path| {
        format!(
            "\nnot covered: {} (a trusted file starts or reads this file; anyone who can write to the project can change it later)",
            haft_config::printable(&path.to_string_lossy())
        )
    });
    lines.collect()
}

fn inside<'a>(project: &Path, words: impl Iterator<Item = &'a str>) -> Vec<PathBuf> {
    let Ok(project) = project.canonicalize() else { return Vec::new() };
    let found = words.filter_map(|word| project.join(word).canonicalize().ok());
    let mut found: Vec<PathBuf> = found.filter(|path| path.is_file() && path.starts_with(&project)).collect();
    found.sort();
    found.dedup();
    found
}
