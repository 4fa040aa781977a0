//! The address of an MCP server in a lock file: its command line with its directory and its environment variables, or
//! its URL, without secrets.
//!
//! The arguments belong to the address, because a program such as `npx`, `uvx` or `docker` runs the package that its
//! arguments name. The directory and the environment belong to it, because they decide where such a program finds this
//! package. References such as `${HOME}` stay as the configuration contains them, so that the address is equal on all
//! machines.

mod variable;

pub use variable::public_assignment;

use std::fmt::Write as _;

use haft_config::ResolvedConfig;
use haft_config::resolved::{McpEndpoint, McpServerSettings, WrittenTarget};
use haft_core::name::Namespace;
use haft_core::naming::ToolIdentity;
use haft_core::provider::ProviderKind;
use haft_core::redact::names_a_secret;

/// The text that replaces a value that may be a secret.
const HIDDEN: &str = "(hidden)";

/// Returns the MCP server that provides a tool.
pub(crate) fn server_of<'a>(
    config: &'a ResolvedConfig,
    identity: &ToolIdentity,
) -> Option<&'a McpServerSettings> {
    if identity.kind != ProviderKind::Mcp {
        return None;
    }
    let mut servers = config.mcp_servers.iter().filter(|(_, server)| server.enabled);
    servers.find(|(name, _)| Namespace::sanitize(name) == identity.namespace).map(|(_, server)| server)
}

/// Returns the address of the MCP server that provides a tool; `None` for a tool of another source.
pub(crate) fn source_address(config: &ResolvedConfig, identity: &ToolIdentity) -> Option<String> {
    server_of(config, identity).map(address)
}

/// Returns the address of an MCP server.
pub(crate) fn address(server: &McpServerSettings) -> String {
    let WrittenTarget { words, directory, env } = &server.written_target;
    let is_remote = match &server.reach {
        Ok(McpEndpoint::Remote { .. }) => true,
        Ok(McpEndpoint::Process { .. }) => false,
        // A variable of the server is not set, so haft does not know the kind of the server. Treat a single word with
        // `://` as a URL.
        Err(_) => matches!(words.as_slice(), [word] if word.contains("://")),
    };
    if is_remote {
        return words.first().map_or_else(String::new, |url| plain_url(url));
    }
    let mut line = String::new();
    // The directory and the variables come before the word `program`, so that no argument can pretend to be one.
    if let Some(directory) = directory {
        let _ = write!(line, "cwd {} ", quoted(directory));
    }
    if !env.is_empty() {
        line.push_str("env ");
    }
    for (name, value) in env {
        let _ = write!(line, "{} ", quoted(&variable::assignment(name, value)));
    }
    line + &command_line(words)
}

fn command_line(words: &[String]) -> String {
    let mut line = String::from("program");
    let mut before = "";
    for word in words {
        line.push(' ');
        line.push_str(&quoted(&plain_word(before, word)));
        before = word;
    }
    line
}

/// Returns an argument without the values that may be secrets. `before` is the argument before it.
fn plain_word(before: &str, word: &str) -> String {
    let is_variable = |text: &str| text.starts_with("${") && text.ends_with('}');
    if before.starts_with('-') && !before.contains('=') && !word.starts_with('-') && holds_secret(before) {
        return if is_variable(word) { word.to_owned() } else { HIDDEN.to_owned() };
    }
    match word.split_once('=') {
        Some((_, value)) if is_variable(value) => word.to_owned(),
        Some((name, _)) if holds_secret(name) => format!("{name}={HIDDEN}"),
        Some((name, value)) if is_variable_name(name) => variable::assignment(name, value),
        Some((name, value)) if name.starts_with('-') => format!("{name}={}", plain_word("", value)),
        Some(_) | None => plain_url(word),
    }
}

/// Returns true if an option may have a secret as its value. Headers contain credentials.
fn holds_secret(option: &str) -> bool {
    option.starts_with('-') && (names_a_secret(option) || matches!(option, "-H" | "--header"))
}

/// Returns true for the name of an environment variable, as in `-e NAME=VALUE`.
fn is_variable_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let name = name.strip_prefix("-e").unwrap_or(name);
    !name.is_empty() && name.chars().all(is_part)
}

/// Returns a URL without user information, query and fragment, or any other text unchanged.
fn plain_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// Quotes an argument that could be read as several.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && !matches!(c, '"' | '\'' | '\\');
    if !word.is_empty() && word.chars().all(is_plain) { word.to_owned() } else { format!("{word:?}") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(server: &Value, expected: &str) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), json!({"mcpServers": {"a": server}}).to_string()).unwrap();
        let sources = haft_config::ConfigSources { home: None, project: None, named: Some(file.path()) };
        let config = haft_config::load(sources, &|_| None).unwrap().resolved;
        assert_eq!(address(&config.mcp_servers["a"]), expected, "{server}");
    }

    #[test]
    fn address_of_a_server_names_the_package_and_no_secrets() {
        let command = |words: &[&str], expected: &str| {
            check(&json!({"command": words[0], "args": &words[1..]}), expected);
        };
        command(&["npx", "-y", "@a/b@1.2"], "program npx -y @a/b@1.2");
        command(&["uvx", "x", "--api-key", "s3cret"], "program uvx x --api-key (hidden)");
        command(&["uvx", "x", "--api-key=s3cret"], "program uvx x --api-key=(hidden)");
        command(&["uvx", "x", "--token", "--verbose"], "program uvx x --token --verbose");
        command(&["uvx", "x", "--token", "${TOKEN}"], "program uvx x --token ${TOKEN}");
        command(&["uvx", "x", "--token=${TOKEN}"], "program uvx x --token=${TOKEN}");
        command(
            &["npx", "mcp-remote", "-H", "Authorization: Bearer s3cret"],
            "program npx mcp-remote -H (hidden)",
        );
        let hidden = |name: &str| variable::assignment(name, "s3cret");
        command(
            &["docker", "run", "-e", "A=s3cret", "-eB=s3cret", "--env=C=s3cret", "-e", "D", "ghcr.io/a/b"],
            &format!(
                "program docker run -e \"{}\" \"{}\" \"--env={}\" -e D ghcr.io/a/b",
                hidden("A"),
                hidden("-eB"),
                hidden("C")
            ),
        );
        command(
            &["env", "UV_INDEX_URL=https://pypi.example.com/simple", "uvx", "x"],
            "program env UV_INDEX_URL=https://pypi.example.com/simple uvx x",
        );
        command(
            &["npx", "mcp-remote", "https://me:s3cret@example.com/mcp?key=s3cret"],
            "program npx mcp-remote https://example.com/mcp",
        );
        command(&["x", "a b", ""], "program x \"a b\" \"\"");
        command(&["${PROGRAM}", "x"], "program ${PROGRAM} x");
    }

    #[test]
    fn address_of_a_server_contains_its_directory_and_its_environment() {
        let index = "https://pypi.example.com/simple";
        check(
            &json!({"command": "uvx", "args": ["x"], "env": {"UV_INDEX_URL": index, "TOKEN": "${TOKEN}"}}),
            "env TOKEN=${TOKEN} UV_INDEX_URL=https://pypi.example.com/simple program uvx x",
        );
        check(&json!({"command": "x", "cwd": "${HOME}/my tools"}), "cwd \"${HOME}/my tools\" program x");
        check(&json!({"command": "x", "cwd": "a", "env": {"A": "b c"}}), "cwd a env \"A=b c\" program x");
        check(&json!({"command": "x", "args": ["cwd", "a"], "env": {}}), "program x cwd a");
        let secret = json!({"command": "x", "env": {"API_TOKEN": "s3cret"}});
        check(&secret, &format!("env \"{}\" program x", variable::assignment("API_TOKEN", "s3cret")));
    }

    #[test]
    fn address_of_a_remote_server_has_no_secrets() {
        check(&json!({"url": "https://me:s3cret@example.com/mcp?key=s3cret"}), "https://example.com/mcp");
        check(&json!({"url": "https://example.com/${KEY}/mcp"}), "https://example.com/${KEY}/mcp");
        check(&json!({"url": "https://example.com/@scope/mcp"}), "https://example.com/@scope/mcp");
    }
}
