//! Reads MCP servers from the configuration files of other programs, and converts them to entries of `mcpServers`.
//!
//! Every function in this module is pure: [`read`] takes the text of a file. Settings that haft cannot import are
//! listed with the reason.

mod codex;
mod goose;
mod json;
mod opencode;
mod servers;
mod variables;

use serde_json::{Map, Value};

/// A program whose configuration haft can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportSource {
    ClaudeDesktop,
    ClaudeCode,
    Cursor,
    VsCode,
    Windsurf,
    Cline,
    Gemini,
    Opencode,
    Goose,
    Codex,
}

haft_core::name_table!(ImportSource {
    ClaudeDesktop: "claude-desktop",
    ClaudeCode: "claude-code",
    Cursor: "cursor",
    VsCode: "vscode",
    Windsurf: "windsurf",
    Cline: "cline",
    Gemini: "gemini",
    Opencode: "opencode",
    Goose: "goose",
    Codex: "codex",
});

impl ImportSource {
    /// Returns the files of the program, relative to the user's home directory.
    pub fn files_in_home(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeDesktop => &[
                ".config/Claude/claude_desktop_config.json",
                "Library/Application Support/Claude/claude_desktop_config.json",
            ],
            Self::ClaudeCode => &[".claude.json"],
            Self::Cursor => &[".cursor/mcp.json"],
            Self::VsCode => &[".config/Code/User/mcp.json", "Library/Application Support/Code/User/mcp.json"],
            Self::Windsurf => &[".codeium/windsurf/mcp_config.json"],
            Self::Cline => &[
                ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ".cline/data/settings/cline_mcp_settings.json",
            ],
            Self::Gemini => &[".gemini/settings.json"],
            Self::Opencode => &[".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"],
            Self::Goose => &[".config/goose/config.yaml"],
            Self::Codex => &[".codex/config.toml"],
        }
    }

    /// Returns the files of the program, relative to a project. `.mcp.json` is not listed, because haft reads it as a
    /// configuration file.
    pub fn files_in_project(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeDesktop | Self::ClaudeCode | Self::Windsurf | Self::Cline | Self::Goose => &[],
            Self::Cursor => &[".cursor/mcp.json"],
            Self::VsCode => &[".vscode/mcp.json"],
            Self::Gemini => &[".gemini/settings.json"],
            Self::Opencode => &["opencode.json", "opencode.jsonc"],
            Self::Codex => &[".codex/config.toml"],
        }
    }
}

/// The servers that were found in one file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportedServers {
    /// The servers that haft can use, sorted by name.
    pub servers: Vec<ImportedServer>,
    /// The servers that haft cannot use, with the reasons.
    pub skipped: Vec<(String, String)>,
}

/// One server as an entry of `mcpServers`.
#[derive(Debug, Clone, PartialEq)]
pub struct ImportedServer {
    pub name: String,
    pub entry: Map<String, Value>,
    /// Settings that were not imported, and steps that the user must still do.
    pub notes: Vec<String>,
    /// The values that the other program asks its user for.
    pub asked: Vec<AskedVariable>,
}

impl ImportedServer {
    /// Returns the names of the variables in the entry.
    pub fn variables(&self) -> Vec<String> {
        let text = Value::Object(self.entry.clone()).to_string();
        let after = text.split("${").skip(1);
        let name = |after: &str| {
            let inside = after.split('}').next().unwrap_or_default();
            inside.split(":-").next().unwrap_or_default().to_owned()
        };
        after.map(name).collect()
    }
}

/// A value that a person types, as a variable of haft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedVariable {
    pub name: String,
    /// The name of the value in the other program.
    pub id: String,
    pub description: String,
    pub echo: InputEcho,
}

/// Decides if a terminal shows what a person types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputEcho {
    Shown,
    Hidden,
}

/// Reads the file of a program, or returns the reason why it cannot be read.
pub fn read(source: ImportSource, text: &str) -> Result<ImportedServers, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match source {
        ImportSource::Goose => goose::read(text),
        ImportSource::Codex => codex::read(text),
        ImportSource::Opencode => Ok(opencode::read(&json::object(text)?)),
        ImportSource::VsCode => Ok(servers::read_vs_code(&json::object(text)?)),
        ImportSource::ClaudeDesktop
        | ImportSource::ClaudeCode
        | ImportSource::Cursor
        | ImportSource::Windsurf
        | ImportSource::Cline
        | ImportSource::Gemini => Ok(servers::read(&json::object(text)?)),
    }
}

/// Reads a file in any of the JSON formats. Detects the format by its keys.
pub fn read_any(text: &str) -> Result<ImportedServers, String> {
    let object = json::object(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    if object.contains_key("mcpServers") {
        Ok(servers::read(&object))
    } else if object.contains_key("servers") {
        Ok(servers::read_vs_code(&object))
    } else if object.contains_key("mcp") {
        Ok(opencode::read(&object))
    } else {
        Err("the file has none of the keys `mcpServers`, `servers` and `mcp`".into())
    }
}

/// Collects one server: known members become keys of haft, and the other members become notes.
#[derive(Debug, Default)]
struct EntryBuilder {
    entry: Map<String, Value>,
    notes: Vec<String>,
    asked: Vec<AskedVariable>,
}

impl EntryBuilder {
    /// Adds a value that the other program asks for. Without a definition of the input it may be a secret.
    fn ask(&mut self, name: &str, id: &str) {
        if self.asked.iter().all(|asked| asked.name != name) {
            let (name, id) = (name.to_owned(), id.to_owned());
            self.asked.push(AskedVariable { name, id, description: String::new(), echo: InputEcho::Hidden });
        }
    }

    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.entry.insert(key.to_owned(), value.into());
    }

    fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn not_taken(&mut self, key: &str) {
        self.note(format!("haft did not import the key `{key}`, because haft has no such setting"));
    }

    /// Adds the finished server. A server without a program and without a URL is skipped.
    fn finish(mut self, name: &str, into: &mut ImportedServers) {
        let has = |key: &str| self.entry.contains_key(key);
        match (has("command"), has("url")) {
            (true, true) => {
                into.skipped.push((name.into(), "the server has both a command and a URL".into()));
            }
            (false, false) => {
                into.skipped.push((name.into(), "the server has neither a command nor a URL".into()));
            }
            (true, false) | (false, true) => {
                self.note_docker();
                let Self { entry, notes, asked } = self;
                into.servers.push(ImportedServer { name: name.to_owned(), entry, notes, asked });
            }
        }
    }

    fn note_docker(&mut self) {
        let program = self.entry.get("command").and_then(Value::as_str).unwrap_or_default();
        if matches!(program.rsplit('/').next(), Some("docker" | "podman")) {
            self.note(
                "the server starts a container: add `\"unixSockets\": \"allow\"` to let it open the docker socket",
            );
        }
    }
}

#[cfg(test)]
mod tests;
