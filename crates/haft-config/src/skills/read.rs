//! Reads the keys of a skill, and finds all errors in one pass.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::error::SkillError;
use super::find::is_foreign_skill;
use super::front_matter::{self, KEYS_LINE, SkillFileParts, line_of};
use super::requires::SkillRequirements;
use super::{SKILL_BYTES_MAX, Skill};
use crate::expand::VariableSource;
use crate::resolved::McpServerSettings;
use crate::{ConfigError, nearest};

const NAME_CHARS_MAX: usize = 64;
const DESCRIPTION_CHARS_MAX: usize = 1024;
const WORDS_MAX: usize = 64;
const WORD_CHARS_MAX: usize = 128;
const SERVERS_MAX: usize = 16;

/// Every key. The keys from `license` on belong to the common skill format; of these, haft reads only `metadata`.
const KEYS: [&str; 11] = [
    "name",
    "description",
    "trigger",
    "triggers",
    "requires",
    "mcp",
    "license",
    "homepage",
    "compatibility",
    "metadata",
    "allowed-tools",
];

/// The keys of Claude Code that have no effect in haft.
const KEYS_OF_CLAUDE_CODE: [&str; 9] = [
    "agent",
    "argument-hint",
    "context",
    "effort",
    "hooks",
    "model",
    "user-invocable",
    "version",
    "when_to_use",
];

/// The key of Claude Code for a skill that only a person may start.
const PERSON_ONLY: &str = "disable-model-invocation";

/// The prefix of a key that defines a server on one line: `mcp-NAME: COMMAND ARGUMENTS`.
const SERVER_LINE: &str = "mcp-";

/// The keys that a skill may set for its servers. Only the operator may loosen their sandbox or change the settings of
/// their tools.
const SERVER_KEYS: [&str; 14] = [
    "type",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "toolsAllowed",
    "toolsDenied",
    "toolSchemas",
    "requestTimeout",
    "requestTimeoutMs",
    "startupTimeout",
    "healthProbe",
];

pub(super) fn read(path: &Path, text: &str, variables: VariableSource<'_>) -> Result<Skill, Vec<SkillError>> {
    let failed = |line, message: String| vec![SkillError::new(path, line, message)];
    if text.len() > SKILL_BYTES_MAX {
        return Err(failed(1, format!("the skill has {} bytes; the limit is {SKILL_BYTES_MAX}", text.len())));
    }
    let parts = front_matter::split(text).map_err(|message| failed(1, message.into()))?;
    let keys =
        front_matter::values(&parts).map_err(|(line, message)| failed(KEYS_LINE + line - 1, message))?;
    let is_foreign = is_foreign_skill(path);
    let mut reader = SkillReader { path, parts, keys: &keys, errors: Vec::new(), is_foreign };
    let skill = Skill { text: text.to_owned(), ..reader.skill(variables) };
    if reader.errors.is_empty() {
        return Ok(skill);
    }
    // Report unknown keys too: a misspelled key is often the reason why another one is missing.
    let Skill { mut warnings, .. } = skill;
    warnings.append(&mut reader.errors);
    Err(warnings)
}

struct SkillReader<'a> {
    path: &'a Path,
    parts: SkillFileParts<'a>,
    keys: &'a Map<String, Value>,
    errors: Vec<SkillError>,
    /// Whether the skill was written for another program.
    is_foreign: bool,
}

impl SkillReader<'_> {
    fn skill(&mut self, variables: VariableSource<'_>) -> Skill {
        if self.is_foreign && self.keys.get(PERSON_ONLY) == Some(&Value::Bool(true)) {
            self.wrong(
                &[PERSON_ONLY],
                "the skill lets only a person start it, but in haft the model starts skills",
            );
        }
        let requires = self.requires();
        let triggers =
            ["trigger", "triggers"].iter().flat_map(|key| self.words(&[key], self.keys.get(*key), '|'));
        let triggers: Vec<String> =
            triggers.collect::<Vec<_>>().iter().map(|word| word.to_lowercase()).collect();
        Skill {
            name: self.name(),
            description: self.text("description", DESCRIPTION_CHARS_MAX),
            triggers,
            servers: self.servers(&requires, variables),
            requires,
            body: self.parts.body.trim().to_owned(),
            path: self.path.to_owned(),
            text: String::new(),
            warnings: self.unknown_keys(),
        }
    }

    fn wrong(&mut self, keys: &[&str], message: impl Into<String>) -> &mut SkillError {
        let line = line_of(self.parts.keys, keys);
        self.errors.push(SkillError::new(self.path, line, message));
        let last = self.errors.len() - 1;
        &mut self.errors[last]
    }

    fn unknown_keys(&self) -> Vec<SkillError> {
        let is_known = |key: &str| KEYS.contains(&key) || key == PERSON_ONLY && self.is_foreign;
        let is_unknown = |key: &&String| !is_known(key) && !key.starts_with(SERVER_LINE);
        let warning = |key: &String| {
            if self.is_foreign && KEYS_OF_CLAUDE_CODE.contains(&key.as_str()) {
                let line = line_of(self.parts.keys, &[key]);
                return SkillError::new(self.path, line, format!("the key `{key}` has no effect in haft"));
            }
            let hint = nearest(key, KEYS.iter().copied()).map(|near| format!("did you mean `{near}`?"));
            let line = line_of(self.parts.keys, &[key]);
            SkillError { hint, ..SkillError::new(self.path, line, format!("unknown key `{key}`")) }
        };
        self.keys.keys().filter(is_unknown).map(warning).collect()
    }

    /// Returns the name. In Claude Code, the name of the directory is the default.
    fn name(&mut self) -> String {
        let directory = self.path.parent().and_then(Path::file_name).map(|name| name.to_string_lossy());
        let name = match directory {
            Some(directory) if self.is_foreign && !self.keys.contains_key("name") => directory.into_owned(),
            Some(_) | None => self.text("name", NAME_CHARS_MAX),
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if !name.chars().all(legal) {
            self.wrong(&["name"], "`name` may contain only letters, digits, `-`, `_` and `.`");
        }
        name
    }

    /// Returns the value of a required key. Reports an error if it is missing, empty, too long or not a string.
    fn text(&mut self, key: &str, chars_max: usize) -> String {
        match self.keys.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() && text.chars().count() <= chars_max => {
                text.trim().to_owned()
            }
            Some(_) => {
                self.wrong(
                    &[key],
                    format!("the key `{key}` must be a string of 1 to {chars_max} characters"),
                );
                String::new()
            }
            None => {
                self.wrong(&[], format!("the required key `{key}` is missing"));
                String::new()
            }
        }
    }

    /// Returns a list of words, from a list or from one string that is split at `between`.
    fn words(&mut self, at: &[&str], value: Option<&Value>, between: char) -> Vec<String> {
        let words: Option<Vec<&str>> = match value {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(Value::String(text)) => Some(text.split(between).collect()),
            Some(Value::Array(list)) => list.iter().map(Value::as_str).collect(),
            Some(_) => None,
        };
        let words =
            words.map(|words| words.into_iter().map(str::trim).filter(|word| !word.is_empty()).collect());
        let words: Vec<&str> = words.unwrap_or_else(|| {
            self.wrong(at, format!("the key `{}` must be a list of words", at.join(".")));
            Vec::new()
        });
        if words.len() > WORDS_MAX || words.iter().any(|word| word.chars().count() > WORD_CHARS_MAX) {
            let message = format!(
                "too many or too long words; the limit is {WORDS_MAX} words of {WORD_CHARS_MAX} characters each"
            );
            self.wrong(at, format!("the key `{}` has {message}", at.join(".")));
            return Vec::new();
        }
        words.into_iter().map(str::to_owned).collect()
    }

    /// Reads the requirements: either programs alone, or programs (`bins`) and variables (`env`). If this key is
    /// missing, reads the requirements from `metadata`, where other products keep them.
    fn requires(&mut self) -> SkillRequirements {
        let of_metadata = self.keys.get("metadata").and_then(Value::as_object).into_iter().flatten();
        let product_requires: Vec<&Value> =
            of_metadata.filter_map(|(_, product)| product.get("requires")).collect();
        match self.keys.get("requires").or(product_requires.first().copied()) {
            Some(Value::Object(both)) => {
                for key in both.keys().filter(|key| !matches!(key.as_str(), "bins" | "env")) {
                    self.wrong(
                        &["requires", key],
                        format!("unknown key `requires.{key}`; expected `bins` or `env`"),
                    );
                }
                SkillRequirements {
                    programs: self.words(&["requires", "bins"], both.get("bins"), ','),
                    variables: self.words(&["requires", "env"], both.get("env"), ','),
                }
            }
            programs => SkillRequirements {
                programs: self.words(&["requires"], programs, ','),
                variables: Vec::new(),
            },
        }
    }

    fn servers(
        &mut self,
        requires: &SkillRequirements,
        variables: VariableSource<'_>,
    ) -> BTreeMap<String, McpServerSettings> {
        let mut written = Map::new();
        for (name, server) in self.tables() {
            self.check_table(&name, &server);
            written.insert(name, server);
        }
        for (name, line) in self.lines() {
            if written.insert(name.clone(), line).is_some() {
                self.wrong(
                    &[&format!("{SERVER_LINE}{name}")],
                    format!("the skill defines the server `{name}` twice"),
                );
            }
        }
        if written.len() > SERVERS_MAX {
            self.wrong(
                &["mcp"],
                format!("a skill may define at most {SERVERS_MAX} servers; this skill has {}", written.len()),
            );
        }
        if !self.errors.is_empty() {
            return BTreeMap::new();
        }
        self.resolved(&written, requires, variables)
    }

    fn tables(&mut self) -> Vec<(String, Value)> {
        match self.keys.get("mcp") {
            None => Vec::new(),
            Some(Value::Object(tables)) => tables.clone().into_iter().collect(),
            Some(_) => {
                self.wrong(&["mcp"], "`mcp` must contain a table for each server, under the server name");
                Vec::new()
            }
        }
    }

    fn check_table(&mut self, name: &str, server: &Value) {
        for key in server.as_object().into_iter().flat_map(Map::keys) {
            if !SERVER_KEYS.contains(&key.as_str()) {
                let near = nearest(key, SERVER_KEYS.iter().copied());
                let hint = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("set this key in `haft.json`, under `mcpServers.{name}`"),
                };
                let message = format!("a skill may not set the key `{key}` of an MCP server");
                self.wrong(&["mcp", name, key], message).hint = Some(hint);
            }
        }
        if let Some(Value::String(command)) = server.get("command") {
            self.check_command(&["mcp", name, "command"], command);
        }
    }

    /// Checks that a command is the name of a program, without shell syntax.
    fn check_command(&mut self, at: &[&str], command: &str) {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@');
        if command.is_empty() || !command.chars().all(legal) {
            self.wrong(
                at,
                "a command may contain only letters, digits and `- _ . / @`; put arguments in `args`",
            );
        }
    }

    fn lines(&mut self) -> Vec<(String, Value)> {
        let mut servers = Vec::new();
        for (key, value) in self.keys.iter().filter(|(key, _)| key.starts_with(SERVER_LINE)) {
            let mut words = value.as_str().unwrap_or_default().split_whitespace();
            let command = words.next().unwrap_or_default();
            let args: Vec<&str> = words.collect();
            self.check_command(&[key], command);
            if args.iter().any(|word| word.contains(['"', '\''])) {
                self.wrong(&[key], "haft splits this command line at spaces, and quotes have no effect")
                    .hint = Some("give the server a table with `command` and `args`".into());
            }
            let server = json!({ "command": command, "args": args });
            servers.push((key[SERVER_LINE.len()..].to_owned(), server));
        }
        servers
    }

    /// Resolves the servers in the same way as the servers of `haft.json`.
    fn resolved(
        &mut self,
        written: &Map<String, Value>,
        requires: &SkillRequirements,
        variables: VariableSource<'_>,
    ) -> BTreeMap<String, McpServerSettings> {
        let undeclared: Mutex<BTreeSet<String>> = Mutex::default();
        let declared = |name: &str| {
            // haft itself looks up HOME to resolve paths, so a skill need not declare it.
            if name == "HOME" || requires.variables.iter().any(|known| known == name) {
                return variables(name);
            }
            undeclared.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
            None
        };
        let found = crate::mcp_servers_of(self.path, written, &declared);
        for name in undeclared.into_inner().unwrap_or_else(PoisonError::into_inner) {
            self.wrong(
                &[&name],
                format!("the skill uses the variable `${{{name}}}` but does not declare it in `requires`"),
            )
            .hint = Some(format!("add the variable to `requires`: bins = [], env = [\"{name}\"]"));
        }
        found.unwrap_or_else(|errors| {
            for error in &errors {
                self.report_config_error(error);
            }
            BTreeMap::new()
        })
    }

    fn report_config_error(&mut self, ConfigError { key, message, hint, .. }: &ConfigError) {
        let key = key.strip_prefix("mcpServers.").unwrap_or(key);
        let keys: Vec<&str> = std::iter::once("mcp").chain(key.split('.')).collect();
        self.wrong(&keys, format!("`mcp.{key}`: {message}")).hint.clone_from(hint);
    }
}
