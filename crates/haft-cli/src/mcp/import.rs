//! `haft mcp import`: imports the MCP servers that other programs on this machine use.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use haft_config::edit::{self, ConfigEntry};
use haft_config::env_file;
use haft_config::import::{self, AskedVariable, ImportSource, ImportedServer, ImportedServers, InputEcho};
use haft_config::printable;
use haft_runtime::stored_variables::{StoredVariables, ValueLocation};
use haft_sandbox::user_home;
use serde_json::{Map, Value, json};

use super::super::args::FileArgs;
use super::super::cli_error::CliError;
use super::super::question::{self, Consent};
use super::super::settings;
use super::super::terminal::{self, counted};
use super::super::variables::variable;
use super::add::changed;
use super::args::McpImportArgs;
use super::import_preview::{target, variable_lines};
use super::import_sockets::NeededSocket;
use super::{McpCommandOutput, SECTION};

/// The largest configuration file that is read, in bytes.
const IMPORT_BYTES_MAX: u64 = 16 << 20;

/// The maximum number of attempts to answer one question.
const ANSWERS_MAX: usize = 3;

pub(super) async fn import(args: &McpImportArgs) -> Result<McpCommandOutput, CliError> {
    let found = found(args)?;
    let config = settings::configuration(&FileArgs::default())?.resolved;
    let program = std::env::current_exe().ok();
    let mut plan = ImportPlan::of(found, |name| config.mcp_servers.contains_key(name), program.as_deref());
    if plan.added.is_empty() {
        return Ok(McpCommandOutput::new(
            format!("{}haft found no server to add", plan.text()),
            plan.json(None, &[]),
        ));
    }
    if !args.yes {
        consent(&plan).await?;
    }
    let missing = grant_sockets(&mut plan, args).await;
    let home = settings::home()?;
    let values = values(&plan, args).await?;
    let count = values.len();
    let location = if values.is_empty() {
        None
    } else {
        let stored = StoredVariables::of(&home).add(values, config.token_store).await;
        Some(stored.map_err(|error| {
            CliError::internal(format!("haft cannot store the variables of the imported servers: {error}"))
        })?)
    };
    let mut file = String::new();
    for server in &plan.added {
        let entry = ConfigEntry { section: SECTION, name: &server.name };
        let value = Value::Object(server.entry.clone());
        file = changed(&home, args.scope, |path| edit::add(path, entry, &value))?.file;
    }
    let shown = if args.yes { plan.text() } else { String::new() };
    let mut text = format!("{shown}added {} to {file}", counted(plan.added.len(), "server"));
    if let Some(location) = location {
        let location = match location {
            ValueLocation::File => "beside the tokens of MCP servers",
            ValueLocation::Keyring => "in the keyring",
        };
        let _ = write!(text, "\nstored {} {location}", counted(count, "value"));
    }
    for socket in &missing {
        let _ = write!(text, "\n{}", socket.missing_text());
    }
    Ok(McpCommandOutput::new(text, plan.json(Some(&file), &missing)))
}

/// Asks the user about each socket that an added server needs. Adds a granted socket to the entry of its server, and
/// returns the sockets that the user did not grant. With `--yes`, haft does not ask and grants no socket.
async fn grant_sockets(plan: &mut ImportPlan, args: &McpImportArgs) -> Vec<NeededSocket> {
    let mut missing = Vec::new();
    for needed in plan.added.iter().filter_map(NeededSocket::of).collect::<Vec<_>>() {
        if !args.yes && needed.is_granted_by_user().await {
            plan.entries_of(&needed.server).for_each(|entry| needed.grant(entry));
        } else {
            missing.push(needed);
        }
    }
    missing
}

async fn consent(plan: &ImportPlan) -> Result<(), CliError> {
    let question = format!("add {}? [y] yes, any other key: no", counted(plan.added.len(), "server"));
    match question::consent(&plan.text(), &question).await {
        Consent::Given => Ok(()),
        Consent::Refused => Err(CliError::denied("nothing was added, because you did not confirm")),
        Consent::NoTerminal => {
            let hint = "review the servers above, then add them with `haft mcp import --yes`";
            let message = "nothing was added: haft needs a terminal to ask for your consent";
            Err(CliError::denied(message).with_hint(hint))
        }
    }
}

/// Returns the values to store: the values in the `.env` file that the user named, and the user's answers to questions.
/// A variable that already has a value is not asked for.
async fn values(plan: &ImportPlan, args: &McpImportArgs) -> Result<BTreeMap<String, String>, CliError> {
    let mut values = match &args.env_file {
        Some(path) => env_file(path, &plan.added)?,
        None => BTreeMap::new(),
    };
    if args.yes {
        return Ok(values);
    }
    for asked in plan.added.iter().flat_map(|server| &server.asked) {
        let is_known = values.contains_key(&asked.name) || variable(&asked.name).is_some();
        if is_known {
            continue;
        }
        if let Some(value) = typed_value(asked).await {
            values.insert(asked.name.clone(), value);
        }
    }
    Ok(values)
}

/// Returns the values of a `.env` file for variables that the servers use.
fn env_file(path: &Path, servers: &[ImportedServer]) -> Result<BTreeMap<String, String>, CliError> {
    let refused = |reason: String| CliError::input(format!("`{}`: {reason}", path.display()));
    let text = text(path).map_err(refused)?.ok_or_else(|| refused("the file does not exist".into()))?;
    let mut values =
        env_file::parse(&text).map_err(|line| refused(format!("line {line}: expected NAME=value")))?;
    let used: Vec<String> = servers.iter().flat_map(ImportedServer::variables).collect();
    values.retain(|name, _| used.contains(name));
    Ok(values)
}

/// Asks the user for the value of a variable. Returns `None` if the answer is empty and there is no default, if the
/// input ends, or if no attempt gives a valid answer.
async fn typed_value(asked: &AskedVariable) -> Option<String> {
    let mut turn = question::turn().await;
    for _ in 0..ANSWERS_MAX {
        terminal::prompt(&value_question(asked));
        let line = match asked.echo {
            InputEcho::Shown => turn.line().await,
            InputEcho::Hidden => turn.hidden_line().await,
        };
        match asked.value_of(&line?) {
            Ok(value) => return value,
            // Use `prompt`, because other output waits until the question is answered.
            Err(reason) => terminal::prompt(&printable(&reason)),
        }
    }
    None
}

fn value_question(asked: &AskedVariable) -> String {
    let about = if asked.description.is_empty() { &asked.id } else { &asked.description };
    let empty = match &asked.default {
        Some(default) => format!("leave empty for `{}`:", printable(default)),
        None => "leave empty to set the variable later:".to_owned(),
    };
    let mut text = String::new();
    for (at, option) in asked.options.iter().enumerate() {
        let _ = writeln!(text, "  {}  {}", at + 1, printable(option));
    }
    let choice = if asked.options.is_empty() { "" } else { "type a number or a value, or " };
    let _ = write!(text, "{} ({}); {choice}{empty}", printable(about), asked.name);
    text
}

/// A file that was found, with its servers or the reason why it cannot be read.
struct FoundFile {
    source: &'static str,
    path: PathBuf,
    servers: Result<ImportedServers, String>,
}

fn found(args: &McpImportArgs) -> Result<Vec<FoundFile>, CliError> {
    if let Some(path) = &args.file {
        let text = text(path).and_then(|text| text.ok_or_else(|| "the file does not exist".to_owned()));
        let servers = text.and_then(|text| match args.program.first() {
            Some(source) => import::read(source.source(), &text, current_directory().as_deref()),
            None => import::read_any(&text, path, current_directory().as_deref()),
        });
        let servers = servers.map_err(|reason| CliError::input(format!("`{}`: {reason}", path.display())))?;
        return Ok(vec![FoundFile { source: "file", path: path.clone(), servers: Ok(servers) }]);
    }
    let chosen: Vec<ImportSource> = if args.program.is_empty() {
        ImportSource::ALL.to_vec()
    } else {
        args.program.iter().map(|program| program.source()).collect()
    };
    Ok(chosen.into_iter().flat_map(files_of).collect())
}

fn files_of(source: ImportSource) -> Vec<FoundFile> {
    let home = user_home();
    let in_home = source.files_in_home().iter().filter_map(|file| Some(home.as_ref()?.join(file)));
    let config_home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let in_config_home = source.files_in_home().iter().filter_map(|file| {
        // The specification of the variable requires programs to ignore a relative path.
        let directory = config_home.as_ref().filter(|directory| directory.is_absolute())?;
        Some(directory.join(file.strip_prefix(".config/")?))
    });
    let here = current_directory();
    let in_project = source.files_in_project().iter().filter_map(|file| Some(here.as_ref()?.join(file)));
    let named = directory_variable(source).and_then(|(variable, file)| {
        std::env::var_os(variable).filter(|at| !at.is_empty()).map(|at| Path::new(&at).join(file))
    });
    let mut paths: Vec<PathBuf> = Vec::new();
    for path in named.into_iter().chain(in_config_home).chain(in_home).chain(in_project) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let found = |path: PathBuf| {
        let servers = match text(&path) {
            Ok(None) => return None,
            Ok(Some(text)) => import::read(source, &text, here.as_deref()),
            Err(reason) => Err(reason),
        };
        Some(FoundFile { source: source.name(), path, servers })
    };
    paths.into_iter().filter_map(found).collect()
}

/// Returns the environment variable that changes the configuration directory of a program, and the name of the file in
/// that directory.
pub(super) fn directory_variable(source: ImportSource) -> Option<(&'static str, &'static str)> {
    match source {
        ImportSource::ClaudeCode => Some(("CLAUDE_CONFIG_DIR", ".claude.json")),
        ImportSource::Codex => Some(("CODEX_HOME", "config.toml")),
        ImportSource::ClaudeDesktop
        | ImportSource::Cursor
        | ImportSource::VsCode
        | ImportSource::Windsurf
        | ImportSource::Cline
        | ImportSource::Gemini
        | ImportSource::Opencode
        | ImportSource::Goose => None,
    }
}

fn current_directory() -> Option<PathBuf> {
    std::env::current_dir().ok()
}

/// Returns the text of a file; `None` if it does not exist.
fn text(path: &Path) -> Result<Option<String>, String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= IMPORT_BYTES_MAX => {}
        Ok(found) if !found.is_file() => return Err("the path is not a regular file".to_owned()),
        Ok(_) => return Err(format!("the file is too large; the limit is {IMPORT_BYTES_MAX} bytes")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    }
    std::fs::read_to_string(path).map(Some).map_err(|error| error.to_string())
}

/// The servers to add, and the servers and settings that are left out.
struct ImportPlan {
    files: Vec<PlannedFile>,
    added: Vec<ImportedServer>,
}

struct PlannedFile {
    source: &'static str,
    path: PathBuf,
    added: Vec<ImportedServer>,
    skipped: Vec<(String, String)>,
}

impl ImportPlan {
    /// Decides which servers are added. Of servers with the same name, only the first one is added. `program` is the
    /// path of the running haft. An entry that starts this program is left out, because haft would start itself as a
    /// server.
    fn of(found: Vec<FoundFile>, is_known: impl Fn(&str) -> bool, program: Option<&Path>) -> Self {
        let mut taken: BTreeMap<String, &'static str> = BTreeMap::new();
        let mut files = Vec::new();
        for FoundFile { source, path, servers } in found {
            let mut planned = PlannedFile { source, path, added: Vec::new(), skipped: Vec::new() };
            match servers {
                Err(reason) => planned.skipped.push(("the file".into(), reason)),
                Ok(mut found) => {
                    found.skip_own(program);
                    found.skip_invalid(&haft_config::environment);
                    let ImportedServers { servers, skipped } = found;
                    planned.skipped = skipped;
                    for server in servers {
                        let name = server.name.clone();
                        if is_known(&name) {
                            planned.skipped.push((name, "haft already has a server with this name".into()));
                        } else if let Some(other) = taken.get(&name) {
                            planned.skipped.push((name, format!("{other} has a server with this name")));
                        } else {
                            taken.insert(name, source);
                            planned.added.push(server);
                        }
                    }
                }
            }
            files.push(planned);
        }
        let added = files.iter().flat_map(|file| file.added.iter().cloned()).collect();
        Self { files, added }
    }

    /// Returns the entries of an added server, both in the list of its file and in the list of all added servers.
    fn entries_of(&mut self, name: &str) -> impl Iterator<Item = &mut Map<String, Value>> {
        let of_files = self.files.iter_mut().flat_map(|file| &mut file.added);
        let servers = of_files.chain(&mut self.added).filter(move |server| server.name == name);
        servers.map(|server| &mut server.entry)
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            let _ = writeln!(text, "{}  {}", file.source, printable(&file.path.to_string_lossy()));
            for server in &file.added {
                let _ = writeln!(text, "  + {}  {}", printable(&server.name), printable(&target(server)));
                for line in variable_lines(server).iter().chain(&server.notes) {
                    let _ = writeln!(text, "      {}", printable(line));
                }
            }
            for (name, reason) in &file.skipped {
                let _ = writeln!(text, "  - {}: {}", printable(name), printable(reason));
            }
        }
        text
    }

    fn json(&self, written: Option<&str>, missing: &[NeededSocket]) -> Value {
        let file = |file: &PlannedFile| {
            let added = |server: &ImportedServer| json!({ "name": server.name, "server": server.entry, "notes": server.notes });
            let skipped = |(name, reason): &(String, String)| json!({ "name": name, "reason": reason });
            json!({
                "program": file.source,
                "path": file.path,
                "servers": file.added.iter().map(added).collect::<Vec<_>>(),
                "skipped": file.skipped.iter().map(skipped).collect::<Vec<_>>(),
            })
        };
        json!({
            "file": written,
            "found": self.files.iter().map(file).collect::<Vec<_>>(),
            "missing": missing.iter().map(NeededSocket::missing_json).collect::<Vec<_>>(),
        })
    }
}

/// Reads the servers in a file that `--mcp-config` names. They apply only to this command.
pub(crate) fn servers_of(path: &Path) -> Result<serde_json::Map<String, Value>, CliError> {
    let refused = |reason: String| CliError::input(format!("`{}`: {reason}", path.display()));
    let text = text(path).map_err(refused)?.ok_or_else(|| refused("the file does not exist".into()))?;
    let mut found = import::read_any(&text, path, current_directory().as_deref()).map_err(refused)?;
    found.skip_own(std::env::current_exe().ok().as_deref());
    for (name, reason) in &found.skipped {
        terminal::warn(&format!("haft ignores MCP server `{name}` of `{}`: {reason}", path.display()));
    }
    let mut servers = serde_json::Map::new();
    for server in found.servers {
        // Of servers with the same name, only the first one is used, as `haft mcp import` does.
        servers.entry(server.name).or_insert(Value::Object(server.entry));
    }
    Ok(servers)
}
