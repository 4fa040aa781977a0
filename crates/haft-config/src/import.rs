//! Reads MCP servers from the configuration files of other programs, and converts them to entries of `mcpServers`.
//!
//! Every function in this module is pure: [`read`] takes the text of a file. Settings that haft cannot import are
//! listed with the reason.

mod codex;
mod docker;
mod goose;
mod json;
mod opencode;
mod servers;
mod variables;

use std::path::Path;

use serde_json::{Map, Value};

pub use self::docker::{ContainerEngine, EngineSocket};
use self::variables::VariableStyle;
use super::duration;
use super::error::ConfigError;
use super::expand::VariableSource;
use super::own_entry::{self, starts_haft};

/// The largest time limit that is imported, in milliseconds (about 31 years).
const MILLISECONDS_MAX: f64 = 1e12;

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
            Self::VsCode => &[
                ".config/Code/User/mcp.json",
                "Library/Application Support/Code/User/mcp.json",
                ".config/Code - Insiders/User/mcp.json",
                "Library/Application Support/Code - Insiders/User/mcp.json",
                ".config/VSCodium/User/mcp.json",
                "Library/Application Support/VSCodium/User/mcp.json",
            ],
            Self::Windsurf => &[".codeium/windsurf/mcp_config.json"],
            Self::Cline => &[
                ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ".config/Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                ".config/VSCodium/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "Library/Application Support/Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
                "Library/Application Support/VSCodium/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
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

impl ImportedServers {
    /// Skips the servers that are haft itself. `program` is the path of the running program.
    pub fn skip_own(&mut self, program: Option<&Path>) {
        let own = self.servers.extract_if(.., |server| starts_haft(&server.entry, program));
        self.skipped.extend(own.map(|server| (server.name, own_entry::REASON.to_owned())));
    }

    /// Skips the servers whose entries haft could not resolve. In a configuration file, such an entry would make every
    /// later command fail.
    pub fn skip_invalid(&mut self, variables: VariableSource<'_>) {
        for server in std::mem::take(&mut self.servers) {
            match server.check(variables) {
                Ok(()) => self.servers.push(server),
                Err(reason) => self.skipped.push((server.name, reason)),
            }
        }
    }
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
    /// The container engine that the command of the server starts, and whose unix socket the command needs; `None` for
    /// any other command.
    pub engine: Option<ContainerEngine>,
}

impl ImportedServer {
    /// Checks the entry as haft does when it loads a configuration. The error text is shown to the user.
    fn check(&self, variables: VariableSource<'_>) -> Result<(), String> {
        let servers = Map::from_iter([(self.name.clone(), Value::Object(self.entry.clone()))]);
        let reason = |error: &ConfigError| match error.key.as_str() {
            "" => error.message.clone(),
            key => format!("`{key}`: {}", error.message),
        };
        // The entry is not in a file yet, so this path is invented. haft only uses its directory to resolve relative
        // paths.
        crate::mcp_servers_of(Path::new("/haft.json"), &servers, variables)
            .map(|_| ())
            .map_err(|errors| errors.iter().map(reason).collect::<Vec<_>>().join("; "))
    }

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

/// A value that the other program asks its user for. In haft, it becomes an environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedVariable {
    pub name: String,
    /// The name of the value in the other program.
    pub id: String,
    pub description: String,
    pub echo: InputEcho,
    /// The values that the person may choose from. Empty if any value is allowed.
    pub options: Vec<String>,
    /// The value for an empty answer.
    pub default: Option<String>,
}

impl AskedVariable {
    /// Returns the value that a person's answer selects: an option or its number, starting at 1, or the text itself if
    /// there are no options. `Ok(None)` leaves the variable unset.
    pub fn value_of(&self, answer: &str) -> Result<Option<String>, String> {
        let answer = answer.trim();
        if answer.is_empty() {
            return Ok(self.default.clone());
        }
        if self.options.is_empty() || self.options.iter().any(|option| option == answer) {
            return Ok(Some(answer.to_owned()));
        }
        let chosen = answer.parse::<usize>().ok().and_then(|number| self.options.get(number.checked_sub(1)?));
        let refused = || format!("`{answer}` is not one of the {} options", self.options.len());
        chosen.cloned().map(Some).ok_or_else(refused)
    }
}

/// Selects whether the terminal shows the input while a person types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputEcho {
    Shown,
    Hidden,
}

/// Reads the file of a program, or returns the reason why it cannot be read. `directory` is the current directory. It
/// selects the project, because Claude Code also stores servers that it uses only in one project.
pub fn read(source: ImportSource, text: &str, directory: Option<&Path>) -> Result<ImportedServers, String> {
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
        | ImportSource::Gemini => {
            Ok(servers::read(&json::object(text)?, ServerDialect::of(source), directory))
        }
    }
}

/// Reads a file of any program. The extension of the path decides between JSON, TOML (Codex) and YAML (goose); for
/// other extensions, the text decides. The keys of a JSON file decide between the JSON formats. A file may also be a map
/// of servers, or a single server; its name is the key `name` or the name of the file.
pub fn read_any(text: &str, path: &Path, directory: Option<&Path>) -> Result<ImportedServers, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match syntax(text, path) {
        FileSyntax::Json => read_any_json(text, path, directory),
        FileSyntax::Toml => require_servers(codex::read(text)?, "mcp_servers"),
        FileSyntax::Yaml => require_servers(goose::read(text)?, "extensions"),
    }
}

/// The syntax of a configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileSyntax {
    Json,
    Toml,
    Yaml,
}

fn syntax(text: &str, path: &Path) -> FileSyntax {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "json" | "jsonc" => FileSyntax::Json,
        "toml" => FileSyntax::Toml,
        "yaml" | "yml" => FileSyntax::Yaml,
        // JSON begins with a brace or a comment, and neither TOML nor a YAML map of goose begins like this.
        _ if text.trim_start().starts_with(['{', '/']) => FileSyntax::Json,
        _ if text.contains("[mcp_servers") => FileSyntax::Toml,
        _ if text.lines().any(|line| line.starts_with("extensions:")) => FileSyntax::Yaml,
        _ => FileSyntax::Json,
    }
}

fn read_any_json(text: &str, path: &Path, directory: Option<&Path>) -> Result<ImportedServers, String> {
    let object = json::object(text)?;
    let dialect = ServerDialect::UNKNOWN;
    if object.contains_key("mcpServers") {
        Ok(servers::read(&object, dialect, directory))
    } else if servers::vs_code_section(&object).is_some() {
        Ok(servers::read_vs_code(&object))
    } else if object.contains_key("mcp") {
        Ok(opencode::read(&object))
    } else if servers::is_server(&object) {
        Ok(servers::read_one(object, path, dialect))
    } else if object.values().filter_map(Value::as_object).any(servers::is_server) {
        Ok(servers::read_unwrapped(object, dialect))
    } else {
        Err("the file contains no MCP servers; expected the key `mcpServers`, `servers` or `mcp`, or a server with \
             `command` or `url`"
            .into())
    }
}

fn require_servers(found: ImportedServers, key: &str) -> Result<ImportedServers, String> {
    if found.servers.is_empty() && found.skipped.is_empty() {
        return Err(format!("the file has no servers under the key `{key}`"));
    }
    Ok(found)
}

/// The differences between the programs that use the key `mcpServers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ServerDialect {
    timeouts: TimeoutUnit,
    variables: VariableStyle,
}

impl ServerDialect {
    const UNKNOWN: Self = Self { timeouts: TimeoutUnit::Unknown, variables: VariableStyle::Unknown };

    fn of(source: ImportSource) -> Self {
        let variables = match source {
            ImportSource::Gemini => VariableStyle::Dollars,
            ImportSource::ClaudeDesktop
            | ImportSource::ClaudeCode
            | ImportSource::Cursor
            | ImportSource::VsCode
            | ImportSource::Windsurf
            | ImportSource::Cline
            | ImportSource::Opencode
            | ImportSource::Goose
            | ImportSource::Codex => VariableStyle::Braces,
        };
        Self { timeouts: TimeoutUnit::of(source), variables }
    }
}

/// The unit of the key `timeout` in the configuration of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeoutUnit {
    Seconds,
    Milliseconds,
    /// The programs with this format use different units, or none of them documents the key.
    Unknown,
}

impl TimeoutUnit {
    fn of(source: ImportSource) -> Self {
        match source {
            ImportSource::Cline | ImportSource::Goose | ImportSource::Codex => Self::Seconds,
            ImportSource::ClaudeCode | ImportSource::Gemini | ImportSource::Opencode => Self::Milliseconds,
            ImportSource::ClaudeDesktop
            | ImportSource::Cursor
            | ImportSource::VsCode
            | ImportSource::Windsurf => Self::Unknown,
        }
    }
}

/// Collects one server: known members become keys of haft, and the other members become notes.
#[derive(Debug, Default)]
struct EntryBuilder {
    entry: Map<String, Value>,
    notes: Vec<String>,
    asked: Vec<AskedVariable>,
    engine: Option<ContainerEngine>,
    /// The keys that only describe the server.
    describing: Vec<String>,
    /// The reason why haft cannot start the server as the other program does.
    unusable: Option<String>,
}

impl EntryBuilder {
    /// Adds a value that the other program asks for. Hides its input, because the value may be a secret.
    fn ask(&mut self, name: &str, id: &str) {
        if self.asked.iter().all(|asked| asked.name != name) {
            let (name, id) = (name.to_owned(), id.to_owned());
            self.asked.push(AskedVariable {
                name,
                id,
                description: String::new(),
                echo: InputEcho::Hidden,
                options: Vec::new(),
                default: None,
            });
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

    /// Notes a key of haft whose value has a type that haft cannot use. The value `null` is the same as no value.
    fn malformed(&mut self, key: &str, value: &Value) {
        if !value.is_null() {
            self.note(format!(
                "haft did not import the key `{key}`, because it cannot use a value of this type"
            ));
        }
    }

    /// Skips the server, because it would not do the same as in the other program.
    fn unusable(&mut self, reason: String) {
        self.unusable.get_or_insert(reason);
    }

    /// Disables the server if this key of the other program disables it.
    fn disabled_by(&mut self, key: &str, value: &Value) {
        match switch_of(value) {
            SwitchValue::On => self.set("disabled", true),
            SwitchValue::Unclear => self.disable_for_unclear(key),
            SwitchValue::Off | SwitchValue::Unset => {}
        }
    }

    /// Disables the server if this key of the other program does not enable it.
    fn enabled_by(&mut self, key: &str, value: &Value) {
        match switch_of(value) {
            SwitchValue::Off => self.set("disabled", true),
            SwitchValue::Unclear => self.disable_for_unclear(key),
            SwitchValue::On | SwitchValue::Unset => {}
        }
    }

    /// Disables the server because the value of `key` is unclear: the user may have turned it off in the other program.
    fn disable_for_unclear(&mut self, key: &str) {
        self.set("disabled", true);
        self.note(format!(
            "haft disabled the server, because the value of the key `{key}` is neither `true` nor `false`; remove \
             `disabled` to use the server"
        ));
    }

    /// Notes a key that only describes the server.
    fn describing(&mut self, key: &str) {
        self.describing.push(format!("`{key}`"));
    }

    /// Notes a key that lets calls run without approval.
    fn own_approvals(&mut self, key: &str) {
        self.note(format!(
            "haft did not import the key `{key}`: haft uses its own policy rules for approvals"
        ));
    }

    /// Sets a time limit of haft, or notes why the value cannot be used.
    fn time_limit(&mut self, own_key: &str, key: &str, value: &Value, unit: TimeoutUnit) {
        let milliseconds = match unit {
            TimeoutUnit::Seconds => value.as_f64().map(|seconds| seconds * 1000.0),
            TimeoutUnit::Milliseconds => value.as_f64(),
            TimeoutUnit::Unknown => {
                return self.note(format!(
                    "haft did not import the key `{key}`, because programs use different units for it; set \
                     `{own_key}`"
                ));
            }
        };
        match milliseconds.and_then(whole_milliseconds) {
            Some(milliseconds) => self.set(own_key, duration::notation(milliseconds)),
            None => self.note(format!(
                "haft did not import the key `{key}`, because its value is not a positive number; set `{own_key}`"
            )),
        }
    }

    /// Restricts the server to these tools, in addition to earlier restrictions.
    fn allow_tools(&mut self, key: &str, names: &Value) {
        let Some(mut names) = self.tool_names(key, names) else { return };
        if let Some(earlier) = self.entry.get("toolsAllowed").and_then(Value::as_array) {
            names.retain(|name| earlier.contains(name));
        }
        self.set("toolsAllowed", names);
    }

    /// Leaves out these tools of the server, in addition to the tools that are already left out.
    fn deny_tools(&mut self, key: &str, names: &Value) {
        let Some(names) = self.tool_names(key, names) else { return };
        let mut denied = self.entry.get("toolsDenied").and_then(Value::as_array).cloned().unwrap_or_default();
        denied.extend(names);
        self.set("toolsDenied", denied);
    }

    /// Returns a list of tool names. A list that haft cannot read disables the server, because without the list haft
    /// would offer tools that the user has excluded.
    fn tool_names(&mut self, key: &str, names: &Value) -> Option<Vec<Value>> {
        let names = names.as_array().filter(|names| names.iter().all(Value::is_string)).cloned();
        if names.is_none() {
            self.set("disabled", true);
            self.note(format!(
                "haft disabled the server, because the key `{key}` is not a list of tool names; set `toolsAllowed` \
                 or `toolsDenied`, and remove `disabled`"
            ));
        }
        names
    }

    /// Adds the finished server. A server without a program and without a URL is skipped.
    fn finish(mut self, name: &str, into: &mut ImportedServers) {
        if let Some(reason) = self.unusable {
            return into.skipped.push((name.into(), reason));
        }
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
                self.note_describing();
                let Self { entry, notes, asked, engine, describing: _, unusable: _ } = self;
                into.servers.push(ImportedServer { name: name.to_owned(), entry, notes, asked, engine });
            }
        }
    }

    fn note_describing(&mut self) {
        match self.describing.as_slice() {
            [] => {}
            [key] => self.note(format!("haft did not import the key {key}, which only describes the server")),
            keys => {
                let keys = keys.join(", ");
                self.note(format!("haft did not import the keys {keys}, which only describe the server"));
            }
        }
    }

    /// Notes the access that a container needs. Other programs start `docker` with all their environment variables;
    /// haft passes only the variables in `env`.
    fn note_docker(&mut self) {
        let program = self.entry.get("command").and_then(Value::as_str).unwrap_or_default();
        let Some(engine) = ContainerEngine::of(program) else { return };
        self.engine = Some(engine);
        self.note(format!(
            "the server starts a container, so it needs the unix socket of `{}`",
            engine.name()
        ));
        let args = self.entry.get("args").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut env = self.entry.get("env").and_then(Value::as_object).cloned().unwrap_or_default();
        for name in docker::passed_variables(&args) {
            if env.contains_key(&name) {
                continue;
            }
            self.note(format!(
                "the container gets the environment variable `{name}`: haft added it to `env`; set the variable"
            ));
            self.ask(&name, &name);
            env.insert(name.clone(), format!("${{{name}}}").into());
            self.set("env", env.clone());
        }
    }
}

/// The value of a key that turns a server on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SwitchValue {
    On,
    Off,
    Unset,
    Unclear,
}

/// Returns the meaning of a switch: a boolean, or the text of a boolean.
fn switch_of(value: &Value) -> SwitchValue {
    let text = match value {
        Value::Null => return SwitchValue::Unset,
        Value::Bool(on) => on.to_string(),
        Value::String(text) => text.trim().to_ascii_lowercase(),
        Value::Number(_) | Value::Array(_) | Value::Object(_) => return SwitchValue::Unclear,
    };
    match text.as_str() {
        "true" => SwitchValue::On,
        "false" => SwitchValue::Off,
        _ => SwitchValue::Unclear,
    }
}

/// Returns a positive number of milliseconds without its fraction.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn whole_milliseconds(milliseconds: f64) -> Option<u64> {
    (1.0..=MILLISECONDS_MAX).contains(&milliseconds).then_some(milliseconds as u64)
}

#[cfg(test)]
mod tests;
