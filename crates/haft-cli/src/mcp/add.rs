//! `haft mcp add` and `haft mcp remove`: change one entry of a configuration file and leave the rest as it is.

use std::fmt::Write as _;
use std::path::Path;

use haft_sandbox::Home;
use serde_json::{Map, Value, json};
use url::Url;

use super::super::args::FileArgs;
use super::super::exit::Exit;
use super::super::settings::{self, Refused};
use super::args::{AddArgs, RemoveArgs, Scope, Transport};
use super::{Answer, SECTION, directory, file_of, login, namespace};
use haft_config::edit::{self, EditError, Entry};
use haft_config::namesake::shares_its_name;
use haft_config::trust::{self, Record, Trust};
use haft_config::{self};

/// Parses `NAME=VALUE`.
pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        Some(_) | None => Err("expected NAME=VALUE".into()),
    }
}

/// Parses `NAME: VALUE`.
pub(crate) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    let (name, value) = (name.trim(), value.trim());
    match reqwest::header::HeaderName::from_bytes(name.as_bytes()) {
        Ok(_) => Ok((name.to_owned(), value.to_owned())),
        Err(_) => Err(format!("`{name}` is no name of a header")),
    }
}

pub(super) fn add(args: &AddArgs) -> Result<Answer, Refused> {
    let home = settings::home()?;
    if args.name.trim().is_empty() {
        return Err((Exit::Usage, "a server needs a name; its tools are called by it".into()));
    }
    let value = value(args).map_err(|message| (Exit::Usage, message))?;
    let name = &args.name;
    let path = changed(&home, args.scope, |path| edit::add(path, Entry { section: SECTION, name }, &value))?;
    let mut text = format!("added `{name}` to {}\n`haft mcp test {name}` tries it", path.file);
    let namespace = namespace(name);
    if namespace != *name {
        let _ = write!(
            text,
            "\nits tools are called `{namespace}__…`: names of tools cannot have all of `{name}`"
        );
    }
    text.push_str(&path.hint);
    Ok(Answer::new(text, json!({ "name": name, "file": path.file, "server": value })))
}

pub(super) async fn remove(args: &RemoveArgs) -> Result<Answer, Refused> {
    let home = settings::home()?;
    let name = &args.name;
    let before = settings::configuration(&FileArgs::default());
    let is_shared = before.is_ok_and(|config| shares_its_name(&config.resolved.mcp_servers, name));
    // Looked up before the removal, because the token store is known only while the server is configured.
    let authorizer = login::authorizer_of(name);
    let path = changed(&home, args.scope, |path| edit::remove(path, Entry { section: SECTION, name }))?;
    // Another server with the same namespace stores its data under the same name, so that data stays.
    if !is_shared {
        if let Some(authorizer) = authorizer {
            // A token that cannot be removed does not prevent the removal of the server.
            let _ = authorizer.forget().await;
        }
        forget(&home, name);
    }
    let text = format!("removed `{name}` from {}{}", path.file, path.hint);
    Ok(Answer::new(text, json!({ "name": name, "file": path.file })))
}

/// Returns the entry of the server for the configuration file.
fn value(args: &AddArgs) -> Result<Value, String> {
    let mut server = Map::new();
    if let Some(transport) = args.transport {
        server.insert("type".into(), transport.key().into());
    }
    let target: Vec<&String> = args.url.iter().chain(&args.command).collect();
    let [first, rest @ ..] = target.as_slice() else {
        return Err("a URL or a command is missing".into());
    };
    if is_url(first) {
        check_address(first, args.transport)?;
        if let Some(word) = rest.first() {
            return Err(format!(
                "a URL stands alone; found `{word}` after it\nhint: a command comes after --"
            ));
        }
        if !args.env.is_empty() {
            return Err("--env is for a command; a URL takes --header".into());
        }
        server.insert("url".into(), first.as_str().into());
        insert_pairs(&mut server, "headers", &args.header);
    } else {
        if let Some(transport @ (Transport::Http | Transport::Sse | Transport::Websocket)) = args.transport {
            let way = transport.key();
            return Err(format!("--transport {way} is for a URL; `{first}` is a command, which is stdio"));
        }
        if !args.header.is_empty() {
            return Err("--header is for a URL; a command takes --env".into());
        }
        server.insert("command".into(), first.as_str().into());
        if !rest.is_empty() {
            server.insert("args".into(), json!(rest));
        }
        insert_pairs(&mut server, "env", &args.env);
    }
    Ok(Value::Object(server))
}

const HTTP: [&str; 2] = ["http://", "https://"];
const WEBSOCKET: [&str; 2] = ["ws://", "wss://"];

fn is_url(word: &str) -> bool {
    begins_with(word, &HTTP) || begins_with(word, &WEBSOCKET)
}

/// URL schemes are case-insensitive.
fn begins_with(word: &str, schemes: &[&str]) -> bool {
    let word = word.to_ascii_lowercase();
    schemes.iter().any(|scheme| word.starts_with(scheme))
}

/// Rejects an address that can never be reached. An address with variables to expand is not checked.
fn check_address(address: &str, transport: Option<Transport>) -> Result<(), String> {
    let fits = match transport {
        None => true,
        Some(Transport::Http | Transport::Sse) => begins_with(address, &HTTP),
        Some(Transport::Websocket) => begins_with(address, &WEBSOCKET),
        Some(Transport::Stdio) => false,
    };
    if let (Some(transport), false) = (transport, fits) {
        return Err(format!(
            "--transport {} does not reach `{address}`\nhint: leave it out",
            transport.key()
        ));
    }
    match Url::parse(address) {
        Err(error) if !address.contains("${") => Err(format!("`{address}` cannot be read: {error}")),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn insert_pairs(server: &mut Map<String, Value>, key: &str, pairs: &[(String, String)]) {
    if !pairs.is_empty() {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), Value::String(value.clone())));
        server.insert(key.into(), Value::Object(pairs.collect()));
    }
}

/// A changed file.
struct Changed {
    file: String,
    /// The next step for the user, on a line of its own.
    hint: String,
}

/// Changes the file of a scope. A project file that was trusted before stays trusted, because the operator made this
/// change.
fn changed(
    home: &Home,
    scope: Scope,
    change: impl FnOnce(&Path) -> Result<(), EditError>,
) -> Result<Changed, Refused> {
    let path = file_of(scope, home)?;
    let trusted = match scope {
        Scope::User => true,
        Scope::Project => counts(home, &path),
    };
    change(&path).map_err(|error| refused(&path, &error))?;
    let hint = match (scope, trusted) {
        (Scope::User, _) => String::new(),
        (Scope::Project, true) => trust_again(home, &path)?,
        (Scope::Project, false) => {
            "\n`haft trust` shows what else is in the file and lets it count".to_owned()
        }
    };
    Ok(Changed { file: path.display().to_string(), hint })
}

fn refused(path: &Path, error: &EditError) -> Refused {
    let hint = match error {
        EditError::Absent { .. } => format!(
            "\nhint: `haft config show` tells which file has it; here only what stands in {} is removed, and --scope chooses another",
            path.display()
        ),
        EditError::Exists { .. } => "\nhint: choose another name, or remove it first".to_owned(),
        EditError::Unreadable(..) | EditError::Invalid(_) | EditError::Unwritable(..) => String::new(),
    };
    (Exit::Input, format!("{error}{hint}"))
}

fn counts(home: &Home, path: &Path) -> bool {
    let Some(found) = haft_config::digest_of(path) else { return !path.exists() };
    Record::load(home).is_ok_and(|record| match trust::decide(record.files.get(path), &found) {
        Trust::Trusted => true,
        Trust::Changed | Trust::Never => false,
    })
}

fn trust_again(home: &Home, path: &Path) -> Result<String, Refused> {
    if let Some(digest) = haft_config::digest_of(path) {
        Record::change(home, |record| {
            record.files.insert(path.to_owned(), digest);
        })
        .map_err(|error| (Exit::Internal, format!("the file was changed but is not trusted: {error}")))?;
    }
    Ok(String::new())
}

/// Removes the stored data of a removed server. Errors are ignored: leftover files are harmless.
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
