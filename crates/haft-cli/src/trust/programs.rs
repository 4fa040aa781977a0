//! Finds the files of a project that its configuration starts or reads. The digest of a trusted configuration does not
//! cover them, so the operator is warned.

use std::path::{Path, PathBuf};

use serde_json::Value;

use haft_config::ConfigRow;
use haft_config::resolved::McpEndpoint;
use haft_config::skills::Skill;

/// Returns the files that the rows of a configuration name, under any server or tool.
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

/// Returns the files that the servers of a skill name.
pub(super) fn of_skill(project: &Path, skill: &Skill) -> Vec<PathBuf> {
    let reached = skill.servers.values().filter_map(|server| server.reach.as_ref().ok());
    let words = reached.flat_map(|reach| match reach {
        McpEndpoint::Process { command, args, .. } => {
            std::iter::once(command.as_str()).chain(args.iter().map(|word| word.0.as_str())).collect()
        }
        McpEndpoint::Remote { .. } => Vec::new(),
    });
    inside(project, words)
}

/// Formats the warning about the files.
pub(super) fn told(programs: &[PathBuf]) -> String {
    let lines = programs.iter().map(|path| {
        format!(
            "\nnot covered: {}, which it starts or reads, can be changed later by whoever may write the project",
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
