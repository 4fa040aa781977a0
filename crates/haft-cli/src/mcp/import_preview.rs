//! The lines that show an imported server before a user agrees to add it: its program or URL, and the environment
//! variables and headers that it gets.

use haft_config::import::ImportedServer;
use haft_runtime::source_address::public_assignment;
use serde_json::Value;

/// Environment variables that make many programs load or fetch other code. A user who reads only the command line would
/// not expect this code.
const CODE_VARIABLES: [&str; 28] = [
    "BASH_ENV",
    "DYLD_INSERT_LIBRARIES",
    "DYLD_LIBRARY_PATH",
    "GIT_SSH_COMMAND",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NPM_CONFIG_REGISTRY",
    "PATH",
    "PERL5LIB",
    "PERL5OPT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_INDEX_URL",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "RUBYLIB",
    "RUBYOPT",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_INDEX",
    "UV_INDEX_URL",
    "_JAVA_OPTIONS",
];

/// Returns the program with its arguments, or the URL.
pub(super) fn target(server: &ImportedServer) -> String {
    let text = |key: &str| server.entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let args = server.entry.get("args").and_then(Value::as_array).into_iter().flatten();
    let words = args.filter_map(Value::as_str);
    match text("url") {
        "" => std::iter::once(text("command")).chain(words).collect::<Vec<_>>().join(" "),
        url => url.to_owned(),
    }
}

/// Returns one line for each environment variable and each header. Values that may be secrets are hidden.
pub(super) fn variable_lines(server: &ImportedServer) -> Vec<String> {
    let of = |key: &str| {
        let members = server.entry.get(key).and_then(Value::as_object).into_iter().flatten();
        members.map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
    };
    let variables = of("env").map(|(name, value)| {
        let mark = if runs_code(&name) { "  ! can make the program run other code" } else { "" };
        format!("env {}{mark}", public_assignment(&name, &value))
    });
    let headers = of("headers").map(|(name, value)| format!("header {}", public_assignment(&name, &value)));
    variables.chain(headers).collect()
}

fn runs_code(name: &str) -> bool {
    // npm also reads its variables in lower case.
    CODE_VARIABLES.contains(&name.to_ascii_uppercase().as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_and_headers_are_shown_without_secrets() {
        let entry = json!({
            "command": "npx",
            "env": {
                "API_TOKEN": "s3cret-value",
                "LOG_LEVEL": "debug",
                "NODE_OPTIONS": "--require ./x.js",
                "OTHER_TOKEN": "${OTHER_TOKEN}",
                "npm_config_registry": "https://me:pw@npm.example/",
            },
            "headers": {"Authorization": "Bearer s3cret-value", "X-Region": "eu"},
        });
        let server = ImportedServer {
            name: "a".into(),
            entry: entry.as_object().unwrap().clone(),
            notes: Vec::new(),
            asked: Vec::new(),
            engine: None,
        };
        let mark = "  ! can make the program run other code";
        let mut lines = variable_lines(&server);
        lines.sort();
        let expected = [
            "env API_TOKEN=(hidden)".to_owned(),
            "env LOG_LEVEL=debug".to_owned(),
            format!("env NODE_OPTIONS=--require ./x.js{mark}"),
            "env OTHER_TOKEN=${OTHER_TOKEN}".to_owned(),
            format!("env npm_config_registry=https://npm.example/ (partly hidden){mark}"),
            "header Authorization=(hidden)".to_owned(),
            "header X-Region=eu".to_owned(),
        ];
        assert_eq!(lines, expected);
    }
}
