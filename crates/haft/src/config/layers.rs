//! Files on top of each other: the higher one wins key by key, lists are replaced as a whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::error::ConfigError;
use super::read::Layer;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub file: Arc<Path>,
    pub line: usize,
    pub column: usize,
}

/// All files as one, every key with the place that set it.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) value: Map<String, Value>,
    origins: BTreeMap<String, Origin>,
}

impl Layers {
    /// Puts one more file on top.
    pub(super) fn add(&mut self, file: &Path, layer: Layer) {
        let file: Arc<Path> = file.into();
        merge(&mut self.value, layer.value);
        let places = layer.places.into_iter();
        self.origins
            .extend(places.map(|(path, (line, column))| (path, Origin { file: file.clone(), line, column })));
    }

    /// The place that set a key.
    pub(super) fn origin(&self, path: &str) -> Option<&Origin> {
        self.origins.get(path)
    }

    /// An error at the place that set a key.
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
    use crate::config::read::read;

    #[test]
    fn the_higher_file_wins_key_by_key_and_lists_are_replaced() {
        let mut layers = Layers::default();
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
}
