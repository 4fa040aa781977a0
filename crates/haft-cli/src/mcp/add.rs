//! `haft mcp add` and `haft mcp remove`: change one entry of a configuration file, and leave the rest unchanged.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use haft_core::tool::ToolDefinition;
use haft_sandbox::Home;
use serde_json::{Map, Value, json};
use url::Url;

use super::super::args::FileArgs;
use super::super::cli_error::CliError;
use super::super::settings;
use super::super::terminal::counted;
use super::super::tools::{search_note, tokens_by_length, tokens_text};
use super::args::{ConfigScopeArg, McpAddArgs, McpRemoveArgs, McpTransportArg};
use super::test::listed_tools;
use super::{McpCommandOutput, SECTION, directory, file_of, login, namespace};
use haft_config::edit::{self, ConfigEntry, EditError};
use haft_config::namespace_conflict::shares_namespace;
use haft_config::trust::{self, FileTrust, TrustRecord};
use haft_config::{self};

/// Parses an environment variable in the form `NAME=VALUE`.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected a variable as NAME=VALUE".into()),
    }
}

/// Parses a header in the form `NAME: VALUE`.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected a header as NAME: VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    match reqwest::header::HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) => Ok((name.to_owned(), value.to_owned())),
        Err(_) => Err(format!("`{name}` is not a valid header name")),
    }
}

/// The maximum time that `haft mcp add` waits for the tools of a new server. The first start takes longer if a package
/// manager downloads the server; `haft mcp test` waits for that.
const LIST_WAIT: Duration = Duration::from_secs(10);

/// Adds a server, and starts it once to report the token cost of its tools. The user has just typed the command or the
/// URL, so haft starts the server without asking for trust. It does not start the server if the project file is not
/// trusted.
pub(super) async fn add(args: &McpAddArgs) -> Result<McpCommandOutput, CliError> {
    let home = settings::home()?;
    if args.name.trim().is_empty() {
        return Err(CliError::usage(
            "the server name is empty; give a name, because it becomes the prefix of the tool names",
        ));
    }
    let value = value(args)?;
    let name = &args.name;
    let scope = args.options.scope.unwrap_or(ConfigScopeArg::User);
    let path = changed(&home, scope, |path| edit::add(path, ConfigEntry { section: SECTION, name }, &value))?;
    let mut text = format!("added `{name}` to {}", path.file);
    let mut json = json!({ "name": name, "file": path.file, "server": value });
    let tools =
        if path.hint.is_empty() { listed_tools(name, LIST_WAIT).await.map_err(Some) } else { Err(None) };
    tell_cost(name, tools, &mut text, &mut json);
    let namespace = namespace(name);
    if namespace != *name {
        let _ = write!(
            text,
            "\nthe tools of the server are named `{namespace}__…`, because `{name}` has characters that tool names cannot have"
        );
    }
    text.push_str(&path.hint);
    Ok(McpCommandOutput::new(text, json))
}

/// Adds a line about the token cost of the new server's tools to the output, or the reason why the cost is unknown.
/// Adds nothing if the server was not started.
fn tell_cost(
    name: &str,
    tools: Result<Vec<ToolDefinition>, Option<String>>,
    text: &mut String,
    json: &mut Value,
) {
    let reason = match tools {
        Ok(tools) => {
            let tokens = tokens_by_length(tools.iter());
            let (count, cost) = (counted(tools.len(), "tool"), tokens_text(tokens));
            let search = search_note(tools.len());
            let _ = write!(text, ": {count} ({cost})\n`haft mcp test {name}` lists the tools{search}");
            (json["tools"], json["tokens"]) = (json!(tools.len()), json!(tokens.count()));
            return;
        }
        Err(reason) => reason,
    };
    if let Some(reason) = reason {
        let reason = haft_config::printable(reason.lines().next().unwrap_or_default());
        let _ = write!(text, "\nhaft cannot list the tools of the server yet: {reason}");
    }
    let _ = write!(text, "\n`haft mcp test {name}` lists the tools with their tokens");
}

pub(super) async fn remove(args: &McpRemoveArgs) -> Result<McpCommandOutput, CliError> {
    let home = settings::home()?;
    let name = &args.name;
    let before = settings::configuration(&FileArgs::default());
    let is_shared = before.is_ok_and(|config| shares_namespace(&config.resolved.mcp_servers, name));
    // Look up the authorizer before the removal, because the token store is known only while the server is configured.
    let authorizer = login::authorizer_of(name);
    let path = changed(&home, args.scope, |path| edit::remove(path, ConfigEntry { section: SECTION, name }))?;
    // Another server with the same namespace stores its data under the same name, so keep the data.
    if !is_shared {
        if let Some(authorizer) = authorizer {
            // Ignore a failure: the server is removed even if its token cannot be removed.
            let _ = authorizer.forget().await;
        }
        forget(&home, name);
    }
    let text = format!("removed `{name}` from {}{}", path.file, path.hint);
    Ok(McpCommandOutput::new(text, json!({ "name": name, "file": path.file })))
}

/// Returns the entry of the server for the configuration file.
fn value(args: &McpAddArgs) -> Result<Value, CliError> {
    let mut server = Map::new();
    let options = &args.options;
    if let Some(transport) = options.transport {
        server.insert("type".into(), transport.key().into());
    }
    let [first, rest @ ..] = args.target.as_slice() else {
        return Err(CliError::usage("the URL or the command of the server is missing"));
    };
    if is_url(first) {
        check_address(first, options.transport)?;
        if let Some(word) = rest.first() {
            return Err(CliError::usage(format!("unexpected `{word}` after the URL"))
                .with_hint("to add a server by its command, put the command after --"));
        }
        if !options.env.is_empty() {
            return Err(CliError::usage("--env needs a command; for a URL use --header"));
        }
        server.insert("url".into(), first.as_str().into());
        insert_pairs(&mut server, "headers", &options.header);
    } else {
        if let Some(transport @ (McpTransportArg::Http | McpTransportArg::Sse | McpTransportArg::Websocket)) =
            options.transport
        {
            let way = transport.key();
            return Err(CliError::usage(format!(
                "--transport {way} needs a URL, but `{first}` is a command, which uses stdio"
            )));
        }
        if !options.header.is_empty() {
            return Err(CliError::usage("--header needs a URL; for a command use --env"));
        }
        server.insert("command".into(), first.as_str().into());
        if !rest.is_empty() {
            server.insert("args".into(), json!(rest));
        }
        insert_pairs(&mut server, "env", &options.env);
    }
    Ok(Value::Object(server))
}

const HTTP: [&str; 2] = ["http://", "https://"];
const WEBSOCKET: [&str; 2] = ["ws://", "wss://"];

pub(super) fn is_url(word: &str) -> bool {
    begins_with(word, &HTTP) || begins_with(word, &WEBSOCKET)
}

/// Compares the scheme of a URL, ignoring case, as URL schemes are case-insensitive.
fn begins_with(word: &str, schemes: &[&str]) -> bool {
    let word = word.to_ascii_lowercase();
    schemes.iter().any(|scheme| word.starts_with(scheme))
}

/// Rejects an address that can never be reached. Does not check an address with variables.
fn check_address(address: &str, transport: Option<McpTransportArg>) -> Result<(), CliError> {
    let fits = match transport {
        None => true,
        Some(McpTransportArg::Http | McpTransportArg::Sse) => begins_with(address, &HTTP),
        Some(McpTransportArg::Websocket) => begins_with(address, &WEBSOCKET),
        Some(McpTransportArg::Stdio) => false,
    };
    if let (Some(transport), false) = (transport, fits) {
        let message = format!("--transport {} does not match the URL `{address}`", transport.key());
        return Err(CliError::usage(message).with_hint("omit --transport"));
    }
    match Url::parse(address) {
        Err(error) if !address.contains("${") => {
            Err(CliError::usage(format!("`{address}` is not a valid URL: {error}")))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn insert_pairs(server: &mut Map<String, Value>, key: &str, pairs: &[(String, String)]) {
    if !pairs.is_empty() {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), Value::String(value.clone())));
        server.insert(key.into(), Value::Object(pairs.collect()));
    }
}

/// A configuration file that was changed.
pub(super) struct ChangedFile {
    pub(super) file: String,
    /// The next step for the user, on a separate line.
    hint: String,
}

/// Changes the file of a scope. If a project file was trusted before, it stays trusted, because the operator made this
/// change.
pub(super) fn changed(
    home: &Home,
    scope: ConfigScopeArg,
    change: impl FnOnce(&Path) -> Result<(), EditError>,
) -> Result<ChangedFile, CliError> {
    let path = file_of(scope, home)?;
    let trusted = match scope {
        ConfigScopeArg::User => true,
        ConfigScopeArg::Project => counts(home, &path),
    };
    change(&path).map_err(|error| refused(&path, &error))?;
    let hint = match (scope, trusted) {
        (ConfigScopeArg::User, _) => String::new(),
        (ConfigScopeArg::Project, true) => renew_trust(home, &path)?,
        (ConfigScopeArg::Project, false) => {
            "\nrun `haft trust` to review the whole file and trust it".to_owned()
        }
    };
    Ok(ChangedFile { file: path.display().to_string(), hint })
}

fn refused(path: &Path, error: &EditError) -> CliError {
    let hint = match error {
        EditError::Absent { .. } => Some(format!(
            "`haft config show` shows which file has the entry; this command changes only {}, and --scope selects another file",
            path.display()
        )),
        EditError::Exists { .. } => Some("choose another name, or remove the old entry first".to_owned()),
        EditError::Unreadable(..)
        | EditError::Invalid(_)
        | EditError::Unwritable(..)
        | EditError::Changed(_) => None,
    };
    CliError::input(error).with_optional_hint(hint)
}

fn counts(home: &Home, path: &Path) -> bool {
    let Some(found) = haft_config::digest_of(path) else { return !path.exists() };
    TrustRecord::load(home).is_ok_and(|record| match trust::decide(record.files.get(path), &found) {
        FileTrust::Trusted => true,
        FileTrust::Changed | FileTrust::Never => false,
    })
}

fn renew_trust(home: &Home, path: &Path) -> Result<String, CliError> {
    if let Some(digest) = haft_config::digest_of(path) {
        TrustRecord::change(home, |record| {
            record.files.insert(path.to_owned(), digest);
        })
        .map_err(|error| {
            CliError::internal(format!(
                "haft changed `{}`, but could not mark it as trusted: {error}",
                path.display()
            ))
        })?;
    }
    Ok(String::new())
}

/// Removes the stored data of a removed server. Ignores errors, because leftover files are harmless.
fn forget(home: &Home, name: &str) {
    let namespace = namespace(name);
    for kind in ["json", "log"] {
        let _ = std::fs::remove_file(directory(home).join(format!("{namespace}.{kind}")));
    }
    for kind in ["json", "lock"] {
        let _ = std::fs::remove_file(home.data().join("tokens").join(format!("{namespace}.{kind}")));
    }
    let _ = std::fs::remove_dir_all(home.cache(&namespace));
}
