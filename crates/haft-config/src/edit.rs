//! Adds or removes an entry of a configuration file, and leaves the rest of the file unchanged.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use haft_fs::{file_lock, private_file};
use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

use super::error::ConfigErrors;
use super::{environment, file, read};

/// An entry of a section, for example the server `time` in `mcpServers`.
#[derive(Debug, Clone, Copy)]
pub struct ConfigEntry<'a> {
    pub section: &'a str,
    pub name: &'a str,
}

/// The reasons why an edit failed. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("the section `{section}` of the configuration already has an entry `{name}`")]
    Exists { section: String, name: String },
    #[error("the section `{section}` of the configuration has no entry `{name}`")]
    Absent { section: String, name: String },
    #[error("haft cannot change the file `{path}`: {1}", path = .0.display())]
    Unreadable(PathBuf, String),
    #[error("haft did not write the file, because the changed configuration would not be valid: {0}")]
    Invalid(ConfigErrors),
    #[error("haft cannot write the file `{path}`: {1}", path = .0.display())]
    Unwritable(PathBuf, std::io::Error),
    /// Another program changed the file after haft read it.
    #[error("haft did not change `{path}`, because another program has just written the file; try again", path = .0.display())]
    Changed(PathBuf),
}

/// The maximum wait for another haft process that edits the same file, and the pause between two attempts.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Adds an entry. Creates the file if there is none, and replaces it atomically.
pub fn add(path: &Path, entry: ConfigEntry<'_>, value: &Value) -> Result<(), EditError> {
    let _lock = lock(path)?;
    let text = text(path)?.unwrap_or_else(|| "{}\n".to_owned());
    let changed = added(path, &text, entry, value)?;
    read::read(path, &changed, &environment).map_err(|errors| EditError::Invalid(ConfigErrors(errors)))?;
    replace(path, &changed)
}

/// Writes an entry. Replaces an existing entry with the same name.
pub fn put(path: &Path, entry: ConfigEntry<'_>, value: &Value) -> Result<(), EditError> {
    let _lock = lock(path)?;
    let text = text(path)?.unwrap_or_else(|| "{}\n".to_owned());
    let changed = put_into(path, &text, entry, value)?;
    read::read(path, &changed, &environment).map_err(|errors| EditError::Invalid(ConfigErrors(errors)))?;
    replace(path, &changed)
}

/// Checks that no entry with this name exists, so that the entry can be added.
pub fn check_free(path: &Path, entry: ConfigEntry<'_>) -> Result<(), EditError> {
    let text = text(path)?.unwrap_or_else(|| "{}\n".to_owned());
    added(path, &text, entry, &Value::Null).map(|_| ())
}

/// Removes an entry of a section.
pub fn remove(path: &Path, entry: ConfigEntry<'_>) -> Result<(), EditError> {
    let _lock = lock(path)?;
    let text = text(path)?.ok_or_else(|| absent(entry))?;
    replace(path, &removed(path, &text, entry)?)
}

/// Takes a lock that the caller holds from reading to writing, so that two concurrent edits do not lose each other's
/// changes. Locks the directory, because the file itself is replaced.
fn lock(path: &Path) -> Result<File, EditError> {
    let unwritable = |error: std::io::Error| EditError::Unwritable(path.to_owned(), error);
    let directory = File::open(path.parent().unwrap_or(Path::new("/"))).map_err(unwritable)?;
    if file_lock::lock_within(&directory, LOCK_WAIT).map_err(unwritable)? {
        return Ok(directory);
    }
    Err(unwritable(std::io::Error::other("another haft process is changing the file; try again")))
}

fn text(path: &Path) -> Result<Option<String>, EditError> {
    let unreadable = |error: super::ConfigError| EditError::Unreadable(path.to_owned(), error.message);
    let Some(bytes) = file::bytes(path).map_err(unreadable)? else { return Ok(None) };
    file::text(path, bytes).map(Some).map_err(unreadable)
}

fn replace(path: &Path, text: &str) -> Result<(), EditError> {
    private_file::replace(path, text.as_bytes())
        .map_err(|error| EditError::Unwritable(path.to_owned(), error))
}

fn absent(ConfigEntry { section, name }: ConfigEntry<'_>) -> EditError {
    EditError::Absent { section: section.to_owned(), name: name.to_owned() }
}

fn top(path: &Path, text: &str) -> Result<(CstRootNode, CstObject), EditError> {
    let unreadable = |reason: String| EditError::Unreadable(path.to_owned(), reason);
    let root =
        CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| unreadable(error.to_string()))?;
    let top = root
        .object_value_or_create()
        .ok_or_else(|| unreadable("the file does not contain a JSON object".into()))?;
    Ok((root, top))
}

/// Sets members of an entry. Keeps the other members of an existing entry, because the user may have added them.
pub(super) fn merged_into(
    path: &Path,
    text: &str,
    entry: ConfigEntry<'_>,
    members: &[(&str, Value)],
) -> Result<String, EditError> {
    let (root, top) = top(path, text)?;
    let object = section(path, &top, entry.section)?;
    let target = object.object_value_or_create(entry.name).ok_or_else(|| {
        let name = format!("{}.{}", entry.section, entry.name);
        EditError::Unreadable(path.to_owned(), format!("the value of the key `{name}` is not an object"))
    })?;
    for (key, value) in members {
        match target.get(key) {
            Some(there) => there.set_value(written(value)),
            None => {
                target.append(key, written(value));
            }
        }
    }
    Ok(root.to_string())
}

fn put_into(path: &Path, text: &str, entry: ConfigEntry<'_>, value: &Value) -> Result<String, EditError> {
    let (root, top) = top(path, text)?;
    let object = section(path, &top, entry.section)?;
    match object.get(entry.name) {
        Some(there) => there.set_value(written(value)),
        None => {
            object.append(entry.name, written(value));
        }
    }
    Ok(root.to_string())
}

fn section(path: &Path, top: &CstObject, name: &str) -> Result<CstObject, EditError> {
    top.object_value_or_create(name).ok_or_else(|| {
        EditError::Unreadable(path.to_owned(), format!("the value of the key `{name}` is not an object"))
    })
}

fn added(path: &Path, text: &str, entry: ConfigEntry<'_>, value: &Value) -> Result<String, EditError> {
    let ConfigEntry { section, name } = entry;
    let (root, top) = top(path, text)?;
    let object = self::section(path, &top, section)?;
    if object.get(name).is_some() {
        return Err(EditError::Exists { section: section.to_owned(), name: name.to_owned() });
    }
    object.append(name, written(value));
    Ok(root.to_string())
}

pub(super) fn removed(path: &Path, text: &str, entry: ConfigEntry<'_>) -> Result<String, EditError> {
    let (root, top) = top(path, text)?;
    let found = top.object_value(entry.section).and_then(|section| section.get(entry.name));
    found.ok_or_else(|| absent(entry))?.remove();
    Ok(root.to_string())
}

fn written(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(value) => CstInputValue::Bool(*value),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(items) => CstInputValue::Array(items.iter().map(written).collect()),
        Value::Object(members) => {
            CstInputValue::Object(members.iter().map(|(key, value)| (key.clone(), written(value))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(name: &str) -> ConfigEntry<'_> {
        ConfigEntry { section: "mcpServers", name }
    }

    #[test]
    fn adding_and_removing_config_entries_preserves_comments() {
        let path = Path::new("/x");
        let text = "{\n  // why\n  \"toolTimeout\": 5, /* ms */\n}\n";
        let one = added(path, text, entry("time"), &json!({ "command": "uvx", "args": ["a"] })).unwrap();
        assert!(one.starts_with("{\n  // why\n  \"toolTimeout\": 5, /* ms */\n"), "{one}");
        let two = added(path, &one, entry("git"), &json!({ "command": "uvx" })).unwrap();
        assert!(matches!(added(path, &two, entry("git"), &json!({})), Err(EditError::Exists { .. })));
        let other = put_into(path, &two, entry("git"), &json!({ "command": "git" })).unwrap();
        assert_eq!(
            other,
            two.replacen(
                "\"git\": {\n      \"command\": \"uvx\"",
                "\"git\": {\n      \"command\": \"git\"",
                1
            )
        );
        assert_eq!(put_into(path, &one, entry("git"), &json!({ "command": "uvx" })).unwrap(), two);
        let back = removed(path, &two, entry("git")).unwrap();
        assert!(back.contains("// why") && back.contains("\"time\"") && !back.contains("\"git\""), "{back}");
        assert!(matches!(removed(path, &back, entry("git")), Err(EditError::Absent { .. })));
    }

    #[test]
    fn concurrent_edits_lose_no_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("haft.json");
        std::thread::scope(|scope| {
            for number in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    add(path, entry(&format!("s{number}")), &json!({ "command": "x" })).unwrap();
                });
            }
        });
        let written: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(written["mcpServers"].as_object().unwrap().len(), 8, "{written}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn edit_rejects_a_file_that_is_not_an_object() {
        for text in ["[1]", "{\"mcpServers\": 1}", "{"] {
            assert!(added(Path::new("/x"), text, entry("a"), &json!({})).is_err(), "{text}");
        }
    }
}
