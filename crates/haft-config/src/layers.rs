//! Merges configuration files: for each key, the file with higher precedence is used, and lists are replaced as a
//! whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::position::child;
use super::read::ConfigLayer;

/// The sections whose entries contain both an address and the credentials for it.
const PLACES: [&str; 4] = ["mcpServers", "openapiSpecs", "providers", "restTools"];

/// The keys, at any depth of an entry, that determine where haft sends the values of the entry. Some do so indirectly:
/// `args` and `cwd` determine which script an interpreter runs, `env` which code and which proxy a program uses
/// (`PATH`, `NODE_OPTIONS`, `HTTPS_PROXY`), `assertionFile` which file haft sends, `caFile` which servers haft accepts
/// as genuine, and `kind` the default address of a provider.
const REACHED_BY: [&str; 12] = [
    "args",
    "assertionFile",
    "baseUrl",
    "caFile",
    "command",
    "cwd",
    "env",
    "issuer",
    "kind",
    "spec",
    "tokenUrl",
    "url",
];

/// The key whose value may be any JSON.
const ANY_JSON: &str = "toolSchemas";

/// The position in a file that set a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigOrigin {
    pub file: Arc<Path>,
    pub line: usize,
    pub column: usize,
}

/// All files merged, and the position that set each key.
#[derive(Debug, Default)]
pub(super) struct ConfigLayers {
    pub(super) value: Map<String, Value>,
    origins: BTreeMap<String, ConfigOrigin>,
}

impl ConfigLayers {
    /// Merges one more file, which takes precedence over the earlier ones.
    pub(super) fn add(&mut self, file: &Path, layer: ConfigLayer) {
        let file: Arc<Path> = file.into();
        for section in PLACES {
            self.drop_readdressed_entries(section, &layer.value);
        }
        merge(&mut self.value, layer.value);
        let key_positions = layer.key_positions.into_iter();
        self.origins.extend(
            key_positions
                .map(|(path, (line, column))| (path, ConfigOrigin { file: file.clone(), line, column })),
        );
    }

    /// Drops an entry of a file with lower precedence if this file sets the address or the program of the entry.
    /// Otherwise credentials from one file would be sent to a URL or a program that another file names.
    fn drop_readdressed_entries(&mut self, section: &str, above: &Map<String, Value>) {
        let entries = above.get(section).and_then(Value::as_object).into_iter().flatten();
        for (name, _) in entries.filter(|(_, entry)| sets_address(entry)) {
            let below = self.value.get_mut(section).and_then(Value::as_object_mut);
            if below.and_then(|below| below.remove(name)).is_some() {
                let path = child(section, name);
                self.origins.retain(|key, _| !is_inside(key, &path));
            }
        }
    }

    /// Returns the position in a file at which a key was set.
    pub(super) fn origin(&self, path: &str) -> Option<&ConfigOrigin> {
        self.origins.get(path)
    }

    /// Builds an error at the position that set a key.
    pub(super) fn error(&self, path: &str, message: String) -> ConfigError {
        let origin = self.origin(path);
        ConfigError {
            file: origin.map_or_else(PathBuf::new, |origin| origin.file.to_path_buf()),
            at: origin.map(|origin| (origin.line, origin.column)),
            key: path.to_owned(),
            message,
            hint: None,
        }
    }
}

fn sets_address(entry: &Value) -> bool {
    let Some(entry) = entry.as_object() else { return false };
    let mut keys = entry.iter().filter(|(key, _)| *key != ANY_JSON);
    keys.any(|(key, value)| REACHED_BY.contains(&key.as_str()) || sets_address(value))
}

/// Returns true if a key is `path` or is inside it.
pub(super) fn is_inside(key: &str, path: &str) -> bool {
    key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn merge(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::read::read;

    #[test]
    fn higher_config_layer_overrides_keys_and_replaces_lists() {
        let mut layers = ConfigLayers::default();
        let files = [
            (
                "/low",
                r#"{"toolTimeout": 1, "tools": {"bash": {"timeout": 2, "maxBytes": 3}}, "toolsDenied": ["a", "b"]}"#,
            ),
            ("/high", r#"{"tools": {"bash": {"timeout": 4}, "read": {}}, "toolsDenied": ["c"]}"#),
        ];
        for (file, text) in files {
            layers.add(Path::new(file), read(Path::new(file), text, &|_| None).unwrap());
        }
        let expected = json!({
            "toolTimeout": 1, "tools": {"bash": {"timeout": 4, "maxBytes": 3}, "read": {}}, "toolsDenied": ["c"],
        });
        assert_eq!(Value::Object(layers.value.clone()), expected);
        let check = |path: &str, file: &str| {
            assert_eq!(layers.origin(path).map(|origin| &*origin.file), Some(Path::new(file)), "{path}");
        };
        check("toolTimeout", "/low");
        check("tools.bash.timeout", "/high");
        check("tools.bash.maxBytes", "/low");
        check("toolsDenied", "/high");
    }

    #[test]
    fn server_with_new_endpoint_inherits_nothing_from_lower_layers() {
        let check = |above: Value, expected: Value| {
            let mut layers = ConfigLayers::default();
            let below = r#"{"mcpServers": {"a": {"url": "https://mine", "headers": {"k": "secret"}}, "a.b": {"command": "x"}}}"#;
            for (file, text) in
                [("/low", below.to_owned()), ("/high", json!({"mcpServers": {"a": above}}).to_string())]
            {
                layers.add(Path::new(file), read(Path::new(file), &text, &|_| None).unwrap());
            }
            assert_eq!(layers.value["mcpServers"], json!({"a": expected, "a.b": {"command": "x"}}));
            let is_kept = layers.origin("mcpServers.a.headers.k").is_some();
            assert_eq!(is_kept, expected["headers"].is_object(), "{expected}");
            assert!(layers.origin("mcpServers[\"a.b\"].command").is_some());
        };
        check(json!({"url": "https://theirs"}), json!({"url": "https://theirs"}));
        check(json!({"command": "theirs"}), json!({"command": "theirs"}));
        let switched_off = json!({"url": "https://mine", "headers": {"k": "secret"}, "enabled": false});
        check(json!({"enabled": false}), switched_off);
    }

    #[test]
    fn credentials_are_not_inherited_for_a_url_set_by_another_file() {
        let check = |section: &str, below: Value, above: Value, expected: Value| {
            let mut layers = ConfigLayers::default();
            for (file, entry) in [("/low", below), ("/high", above)] {
                let text = json!({section: {"a": entry}}).to_string();
                layers.add(Path::new(file), read(Path::new(file), &text, &|_| None).unwrap());
            }
            assert_eq!(layers.value[section]["a"], expected);
        };
        let theirs = json!({"baseUrl": "https://theirs"});
        check("providers", json!({"apiKey": "secret"}), theirs.clone(), theirs);
        let slower = json!({"maxAttempts": 1});
        check(
            "providers",
            json!({"apiKey": "secret"}),
            slower,
            json!({"apiKey": "secret", "maxAttempts": 1}),
        );
        let login = json!({"url": "https://mine", "oauth": {"clientId": "me", "clientSecret": "secret"}});
        let theirs = json!({"oauth": {"issuer": "https://theirs"}});
        check("mcpServers", login, theirs.clone(), theirs);
        let program = json!({"command": "node", "args": ["mine.js"], "env": {"TOKEN": "secret"}});
        let of_env = json!({"env": {"NODE_OPTIONS": "--require /theirs.js"}});
        for theirs in [json!({"args": ["theirs.js"]}), json!({"cwd": "/theirs"}), of_env] {
            check("mcpServers", program.clone(), theirs.clone(), theirs);
        }
        let schema = json!({"toolSchemas": {"a": {"properties": {"url": {}, "args": {}}}}});
        let mut both = program.clone();
        both["toolSchemas"] = schema["toolSchemas"].clone();
        check("mcpServers", program, schema, both);
        let theirs = json!({"caFile": "/theirs.pem"});
        check("providers", json!({"apiKey": "secret"}), theirs.clone(), theirs);
        let theirs = json!({"kind": "openrouter"});
        check("providers", json!({"kind": "openai", "apiKey": "secret"}), theirs.clone(), theirs);
        let described = json!({"spec": "a.json", "headers": {"k": "secret"}});
        let theirs = json!({"spec": "/theirs.json"});
        check("openapiSpecs", described, theirs.clone(), theirs);
        let tool =
            json!({"description": "d", "method": "GET", "url": "https://mine", "headers": {"k": "secret"}});
        let theirs = json!({"description": "d", "method": "GET", "url": "https://theirs"});
        check("restTools", tool, theirs.clone(), theirs);
    }
}
