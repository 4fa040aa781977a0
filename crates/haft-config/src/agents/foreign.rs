//! Translates the agent files of Claude Code and opencode into agent files of haft.
//!
//! Every function in this module is pure. A restriction that haft cannot express never disappears: the translated agent
//! gets fewer tools instead. Settings that are not taken over are listed with the reason.

mod claude_code;
mod opencode;

use std::path::Path;

use serde_json::{Map, Value};

use super::error::AgentError;
use super::front_matter::{self, AgentFileParts};
use super::written;

/// The built-in tools that an agent of another program may have. This crate does not know the tools, so a test in
/// `haft-cli` checks these names.
pub const BUILTINS: [&str; 6] = ["bash", "read", "write", "edit", "introspect", "current_date"];

/// The patterns for all tools other than the built-in ones: the tools of MCP servers in every naming scheme, and other
/// tools whose names contain `__`, such as the harmless tools for batches and progress.
const OTHER_TOOLS: [&str; 2] = ["*__*", "mcp:*"];

/// The reason why an agent file cannot select skills.
const ALL_SKILLS: &str = "haft offers all trusted skills to every agent";

/// The program that an agent file was written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentFormat {
    ClaudeCode,
    Opencode,
}

/// The agent directories of other programs in a project. The first takes precedence.
pub(super) const PROJECT_DIRECTORIES: [&str; 3] = [".claude/agents", ".opencode/agents", ".opencode/agent"];

/// An agent file in haft's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TranslatedAgent {
    pub(super) text: String,
    /// The settings that were not translated, with the reasons.
    pub(super) notes: Vec<String>,
}

/// Translates the file of another program; returns `None` for a path that belongs to no other program.
pub(super) fn translate(path: &Path, text: &str) -> Result<Option<TranslatedAgent>, AgentError> {
    let Some(format) = format_of(path) else { return Ok(None) };
    let file = path.display().to_string();
    let parts = front_matter::split(&file, text)?;
    let (keys, source) =
        keys_of(format, &parts).map_err(|error| written::yaml_error(&file, parts.yaml_line, &error))?;
    let mut agent = AgentBuilder::default();
    for (key, value) in &keys {
        match format {
            AgentFormat::ClaudeCode => claude_code::key(key, value, &mut agent),
            AgentFormat::Opencode => opencode::key(key, value, &mut agent),
        }
        .map_err(|reason| AgentError::new(&file, parts.yaml_line, reason))?;
    }
    // Without valid YAML, an unknown name may be a misread restriction, so a note is not enough.
    if let (KeySource::Lines, Some(name)) = (source, agent.tools.unknown_denied.first()) {
        let reason = format!(
            "the front matter is not valid YAML and seems to deny the tool `{name}`, but haft has no such tool"
        );
        let hint = Some("put the description in quotes to make the YAML valid".into());
        return Err(AgentError::new(&file, parts.yaml_line, reason).with_hint(hint));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    if let Some(name) = keys.get("name").and_then(Value::as_str).filter(|name| **name != *stem) {
        agent.note(
            "name",
            &format!("haft names the agent `{stem}` after its file, and ignores the name `{name}`"),
        );
    }
    Ok(Some(agent.finish(parts.body)))
}

/// Finds the program by the directory of the file, because the files themselves do not name it.
fn format_of(path: &Path) -> Option<AgentFormat> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.ancestors().skip(1).find_map(|directory| {
        if directory.ends_with(".claude/agents") {
            Some(AgentFormat::ClaudeCode)
        } else if directory.ends_with(".opencode/agents") || directory.ends_with(".opencode/agent") {
            Some(AgentFormat::Opencode)
        } else {
            None
        }
    })
}

/// The way in which the keys of a file were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeySource {
    Yaml,
    /// Line by line, because the file is not valid YAML.
    Lines,
}

/// Returns the keys of a file. Claude Code accepts descriptions that are not valid YAML, such as a line with a second
/// colon, and many published agents have one. For such a file, each line that begins with a key contains the whole
/// value of that key. Only the description may have further lines.
fn keys_of(
    format: AgentFormat,
    parts: &AgentFileParts<'_>,
) -> Result<(Map<String, Value>, KeySource), serde_saphyr::Error> {
    if parts.yaml.trim().is_empty() {
        return Ok((Map::new(), KeySource::Yaml));
    }
    let error = match crate::yaml::from_str(parts.yaml) {
        Ok(keys) => return Ok((keys, KeySource::Yaml)),
        Err(error) => error,
    };
    let keys = match format {
        AgentFormat::ClaudeCode => keys_of_lines(parts.yaml),
        AgentFormat::Opencode => None,
    };
    keys.map(|keys| (keys, KeySource::Lines)).ok_or(error)
}

/// Reads the keys line by line. Returns `None` if this could lose a restriction.
fn keys_of_lines(yaml: &str) -> Option<Map<String, Value>> {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for line in yaml.lines() {
        let key = line.split_once(':').filter(|(key, _)| is_plain_key(key));
        match (key, lines.last_mut()) {
            (Some((key, value)), _) => lines.push((key, value.trim().to_owned())),
            (None, _) if hides_a_restriction(line) => return None,
            (None, Some((_, value))) => {
                value.push('\n');
                value.push_str(line);
            }
            (None, None) => {}
        }
    }
    let mut keys = Map::new();
    for (key, text) in lines {
        // The second of two equal keys would replace the restrictions of the first.
        if keys.insert(key.to_owned(), value_of_line(key, text.trim())?).is_some() {
            return None;
        }
    }
    (!keys.is_empty()).then_some(keys)
}

/// Reads the value of a line as YAML. As plain text, the value would keep its quotes, brackets and comments, and would
/// then match no tool name. A description is always a string.
fn value_of_line(key: &str, text: &str) -> Option<Value> {
    match text {
        _ if key == "description" => Some(text.into()),
        "" => Some(Value::Null),
        // In YAML, a lone `*` is an alias without a name, which is an error. Here it means all tools.
        "*" => Some(text.into()),
        _ if text.contains('\n') => None,
        _ => crate::yaml::from_str(text).ok(),
    }
}

/// Returns whether a line without a plain key sets a restriction in another form, such as `"disallowedTools": Bash` or
/// an indented key. Without this check, the restriction would become a part of the description.
fn hides_a_restriction(line: &str) -> bool {
    let key = line.split(':').next().unwrap_or_default();
    let key = key.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    line.contains(':') && claude_code::RESTRICTIONS.contains(&key)
}

fn is_plain_key(key: &str) -> bool {
    let first = key.chars().next().is_some_and(|c| c.is_ascii_lowercase());
    first && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
}

/// Builds one agent from the agent file of another program: each key that haft knows becomes a key of haft, and each
/// other key becomes a note that says why haft ignores it.
#[derive(Debug, Default)]
struct AgentBuilder {
    keys: Map<String, Value>,
    tools: ToolAccess,
    notes: Vec<String>,
}

/// The tools that an agent lists and denies, before they become the key `tools`.
#[derive(Debug, Default)]
struct ToolAccess {
    /// The tools that the file names; `None` if it names none and the agent has all tools.
    listed: Option<Vec<String>>,
    denied: Vec<&'static str>,
    server_tools_denied: bool,
    /// The denied names that belong to no known tool.
    unknown_denied: Vec<String>,
}

impl AgentBuilder {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.keys.insert(key.to_owned(), value.into());
    }

    fn note(&mut self, key: &str, reason: &str) {
        self.notes.push(format!("`{key}`: {reason}"));
    }

    fn no_such_setting(&mut self, key: &str) {
        self.note(key, "haft ignores this key, because haft has no such setting");
    }

    /// Adds a tool of haft to the list.
    fn list(&mut self, tool: String) {
        let listed = self.tools.listed.get_or_insert_default();
        if !listed.contains(&tool) {
            listed.push(tool);
        }
    }

    fn deny(&mut self, tools: &[&'static str]) {
        self.tools.denied.extend(tools);
    }

    /// Denies all tools of MCP servers, although the file denies only `tool`: haft cannot take a single MCP tool from
    /// an agent that has all tools.
    fn deny_server_tools(&mut self, key: &str, tool: &str) {
        self.tools.server_tools_denied = true;
        self.note(
            key,
            &format!("haft cannot deny `{tool}` alone, so the agent gets no tools of MCP servers"),
        );
    }

    /// Adds a note if the file denies skills or external directories. An agent file of haft cannot deny them, so the
    /// denial has no effect.
    fn note_undeniable(&mut self, key: &str, name: &str) {
        match name {
            "Skill" | "skill" => self.note(key, &format!("haft cannot deny `{name}`: {ALL_SKILLS}")),
            "external_directory" => {
                self.note(
                    key,
                    &format!("haft cannot deny `{name}`: the sandbox mode decides which directories an agent can use"),
                );
            }
            _ => {}
        }
    }

    fn deny_unknown(&mut self, key: &str, tool: &str) {
        self.tools.unknown_denied.push(tool.to_owned());
        self.note(key, &format!("haft cannot deny `{tool}`: haft has no such tool"));
    }

    /// Translates a key whose value is a positive whole number.
    fn count(&mut self, key: &str, as_key: &str, value: &Value) {
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
        match number.filter(|number| (1..=u64::from(u32::MAX)).contains(number)) {
            Some(number) => self.set(as_key, number),
            None => self.note(key, "expected a positive whole number"),
        }
    }

    fn effort(&mut self, key: &str, value: &Value) {
        match value.as_str().unwrap_or_default() {
            "none" => self.set("reasoning", "off"),
            word @ ("minimal" | "low" | "medium" | "high") => self.set("reasoning", word),
            "xhigh" | "max" => self.set("reasoning", "highest"),
            _ => self.note(key, "expected none, minimal, low, medium, high, xhigh or max"),
        }
    }

    fn finish(mut self, body: &str) -> TranslatedAgent {
        if let Some(tools) = self.tools.selection() {
            self.set("tools", tools);
        }
        // JSON is YAML too, and needs no rules of its own for quotes.
        let keys: Vec<String> = self.keys.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
        // Other programs have no variables in texts, so `${` is plain text.
        let body = body.replace("${", "$${");
        TranslatedAgent { text: format!("---\n{}---\n{body}", keys.concat()), notes: self.notes }
    }
}

impl ToolAccess {
    /// Returns the items of `tools`; `None` for all tools.
    fn selection(&self) -> Option<Vec<String>> {
        let is_denied = |tool: &str| {
            self.denied.contains(&tool) || (self.server_tools_denied && !BUILTINS.contains(&tool))
        };
        match &self.listed {
            Some(listed) => Some(listed.iter().filter(|tool| !is_denied(tool)).cloned().collect()),
            None if self.denied.is_empty() && !self.server_tools_denied => None,
            None => {
                let all = BUILTINS.into_iter().chain(OTHER_TOOLS);
                Some(all.filter(|tool| !is_denied(tool)).map(str::to_owned).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests;
