//! Imports the `mcpServers` format, with the key names that different programs use, and the format of VS Code.

use std::path::Path;

use serde_json::{Map, Value};

use super::variables::{VariableStyle, rewrite, rewrite_map, rewrite_words, text_of, variable_name};
use super::{EntryBuilder, ImportSource, ImportedServer, ImportedServers, InputEcho, ServerDialect};

/// Reads `mcpServers`. The file of Claude Code also contains the servers of single projects: those of the project in
/// `directory` come first, because Claude Code prefers them, and the others are skipped.
pub(super) fn read(
    file: &Map<String, Value>,
    dialect: ServerDialect,
    directory: Option<&Path>,
) -> ImportedServers {
    let mut found = ImportedServers::default();
    let projects = file.get("projects").and_then(Value::as_object).into_iter().flatten();
    let is_current = |path: &str| directory.is_some_and(|directory| directory.starts_with(path));
    let (mut current, others): (Vec<_>, Vec<_>) = projects.partition(|(path, _)| is_current(path));
    // An inner project is more specific than the project that contains it.
    current.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    for (path, project) in current {
        of_project(path, project, dialect, &mut found);
    }
    of_section(file.get("mcpServers"), dialect, &mut found);
    for (path, project) in others {
        let servers = project.get("mcpServers").and_then(Value::as_object).into_iter().flatten();
        let reason = format!("the server belongs to the project `{path}`; import it in that directory");
        found.skipped.extend(servers.map(|(name, _)| (name.clone(), reason.clone())));
    }
    found
}

fn of_project(path: &str, project: &Value, dialect: ServerDialect, found: &mut ImportedServers) {
    let first = found.servers.len();
    of_section(project.get("mcpServers"), dialect, found);
    for server in &mut found.servers[first..] {
        server.notes.push(format!("the imported file defines this server only for the project `{path}`"));
    }
}

/// Returns true if the object has the program or the URL of one server.
pub(super) fn is_server(object: &Map<String, Value>) -> bool {
    let is_command = |value: &Value| value.is_string() || value.is_array();
    let is_url = |key: &str| object.get(key).is_some_and(Value::is_string);
    object.get("command").is_some_and(is_command) || ["url", "serverUrl", "httpUrl"].into_iter().any(is_url)
}

/// Reads a map of servers that no key encloses.
pub(super) fn read_unwrapped(file: Map<String, Value>, dialect: ServerDialect) -> ImportedServers {
    let mut found = ImportedServers::default();
    of_section(Some(&Value::Object(file)), dialect, &mut found);
    found
}

/// Reads a file that is a single server. Without a key `name`, the server gets the name of the file.
pub(super) fn read_one(
    mut server: Map<String, Value>,
    path: &Path,
    dialect: ServerDialect,
) -> ImportedServers {
    let own = server.remove("name").and_then(|name| name.as_str().map(str::to_owned));
    let of_file = || path.file_stem().map(|name| name.to_string_lossy().into_owned());
    let name = own.or_else(of_file).unwrap_or_default();
    let mut found = ImportedServers::default();
    of_server(&name, &server, dialect, &mut found);
    found
}

/// Returns the object with `servers` and `inputs` of VS Code: the file itself (`mcp.json`), `mcp` (`settings.json`), or
/// `customizations.vscode.mcp` (`devcontainer.json`). An object `servers` that is itself a server does not count: in the
/// `mcp` of opencode, it is a server with this name.
pub(super) fn vs_code_section(file: &Map<String, Value>) -> Option<&Map<String, Value>> {
    let of_container = file.get("customizations").and_then(|all| all["vscode"]["mcp"].as_object());
    let sections = [Some(file), file.get("mcp").and_then(Value::as_object), of_container];
    let has_servers = |section: &&Map<String, Value>| {
        let servers = section.get("servers").and_then(Value::as_object);
        servers.is_some_and(|servers| !is_server(servers))
    };
    sections.into_iter().flatten().find(has_servers)
}

/// Reads `servers` of VS Code.
pub(super) fn read_vs_code(file: &Map<String, Value>) -> ImportedServers {
    let mut found = ImportedServers::default();
    let Some(section) = vs_code_section(file) else { return found };
    of_section(section.get("servers"), ServerDialect::of(ImportSource::VsCode), &mut found);
    for input in section.get("inputs").and_then(Value::as_array).into_iter().flatten() {
        for server in &mut found.servers {
            apply_input(input, server);
        }
    }
    found
}

/// Applies the definition of an input to a server that uses it.
fn apply_input(input: &Value, server: &mut ImportedServer) {
    let (id, description) = (input["id"].as_str().unwrap_or_default(), input["description"].as_str());
    let is_command = input["type"] == "command";
    for note in server.notes.iter_mut().filter(|note| note.contains(&format!("the value `{id}`"))) {
        if is_command {
            let command = input["command"].as_str().unwrap_or_default();
            *note = format!(
                "haft does not support the input `{id}`, because the other program gets its value from its command \
                 `{command}`; set the environment variable `{}`",
                variable_name(id)
            );
        }
        if let Some(description) = description {
            *note = format!("{note} ({description})");
        }
    }
    if is_command {
        server.asked.retain(|asked| asked.id != id);
    }
    for asked in server.asked.iter_mut().filter(|asked| asked.id == id) {
        description.unwrap_or_default().clone_into(&mut asked.description);
        asked.echo = if input["password"] == true { InputEcho::Hidden } else { InputEcho::Shown };
        asked.default = input["default"].as_str().map(str::to_owned);
        asked.options = options(input);
    }
}

/// Returns the values of a `pickString` input. An option is a text or an object with a label.
fn options(input: &Value) -> Vec<String> {
    let options = input["options"].as_array().into_iter().flatten();
    let text = |option: &Value| option.as_str().or_else(|| option["value"].as_str()).map(str::to_owned);
    if input["type"] == "pickString" { options.filter_map(text).collect() } else { Vec::new() }
}

fn of_section(section: Option<&Value>, dialect: ServerDialect, found: &mut ImportedServers) {
    for (name, server) in section.and_then(Value::as_object).into_iter().flatten() {
        match server.as_object() {
            Some(server) => of_server(name, server, dialect, found),
            None => found.skipped.push((name.clone(), "the settings of the server are not an object".into())),
        }
    }
}

fn of_server(name: &str, server: &Map<String, Value>, dialect: ServerDialect, found: &mut ImportedServers) {
    let mut builder = EntryBuilder::default();
    for (key, value) in server {
        match key.as_str() {
            "timeout" => builder.time_limit("requestTimeout", key, value, dialect.timeouts),
            key => member(key, value, dialect.variables, &mut builder),
        }
    }
    builder.finish(name, found);
}

fn member(key: &str, value: &Value, style: VariableStyle, builder: &mut EntryBuilder) {
    match (key, value) {
        ("command" | "cwd", value) => match text_of(value) {
            Some(text) => {
                let text = rewrite(&text, style, builder);
                builder.set(key, text);
            }
            None => builder.malformed(key, value),
        },
        ("args", value) => {
            let words = rewrite_words(key, value, style, builder);
            builder.set("args", words);
        }
        ("env", Value::Object(map)) => {
            let map = rewrite_map(map, style, builder);
            builder.set("env", map);
        }
        ("headers" | "requestInit", Value::Object(map)) => {
            let map = map.get("headers").and_then(Value::as_object).unwrap_or(map);
            let map = rewrite_map(map, style, builder);
            builder.set("headers", map);
        }
        // Windsurf writes `serverUrl`. Gemini CLI writes `httpUrl` for streamable HTTP, in addition to `url` for SSE.
        ("url" | "serverUrl" | "httpUrl", Value::String(url)) => {
            let url = rewrite(url, style, builder);
            builder.set("url", url);
            if key == "httpUrl" {
                builder.set("type", "http");
            }
        }
        ("type" | "transport", Value::String(kind)) => transport(kind, builder),
        ("disabled", value) => builder.disabled_by(key, value),
        ("enabled", value) => builder.enabled_by(key, value),
        // Gemini CLI, GitHub Copilot CLI and VS Code name the tools that a model may use.
        (
            "includeTools" | "toolsAllowed" | "toolNamesAllowed" | "allowedTools" | "enabledTools" | "tools",
            names,
        ) => {
            builder.allow_tools(key, names);
        }
        // Gemini CLI, Windsurf and Roo Code name the tools that a model may not use.
        ("excludeTools" | "toolsDenied" | "disabledTools" | "disallowedTools", names) => {
            builder.deny_tools(key, names);
        }
        ("envFile", _) => builder.note("haft did not import the key `envFile`; copy the variables to `env`"),
        ("oauth" | "auth" | "authProviderType", _) => {
            builder.note("haft cannot import the login; log in to the server with haft");
        }
        ("autoApprove" | "alwaysAllow" | "trust", _) => builder.own_approvals(key),
        ("sandbox" | "sandboxEnabled", _) => {
            builder.note(format!(
                "haft did not import the key `{key}`: haft runs every server in its own sandbox"
            ));
        }
        ("description" | "dev" | "gallery" | "icon" | "metadata" | "name" | "version", _) => {
            builder.describing(key);
        }
        (
            "env" | "headers" | "requestInit" | "url" | "serverUrl" | "httpUrl" | "type" | "transport",
            value,
        ) => {
            builder.malformed(key, value);
        }
        (key, _) => builder.not_taken(key),
    }
}

fn transport(kind: &str, builder: &mut EntryBuilder) {
    match kind {
        "stdio" | "local" => builder.set("type", "stdio"),
        "http" | "streamable-http" | "streamableHttp" | "streamable_http" => builder.set("type", "http"),
        "sse" => builder.set("type", "sse"),
        "ws" | "websocket" => builder.set("type", "websocket"),
        other => builder.note(format!(
            "haft does not know the transport `{other}`, and infers the transport from the URL"
        )),
    }
}
