//! Changes one entry in the configuration file of another program, and keeps its comments and order.

use std::fs;
use std::path::{Path, PathBuf};

use haft_fs::private_file;
use serde_json::Value;

use crate::edit::{self, ConfigEntry, EditError};
use crate::file;

/// The maximum size of a file of another program that haft changes, in bytes.
const FOREIGN_BYTES_MAX: u64 = 16 << 20;

/// The suffix of the copy that is made before the first change.
const BACKUP_SUFFIX: &str = "haft-backup";

/// A file of another program, with the content that haft read.
#[derive(Debug)]
pub struct ForeignFile {
    /// The path with links resolved, so that a link is not replaced by a file.
    path: PathBuf,
    /// The content; `None` if the file does not exist.
    text: Option<String>,
}

impl ForeignFile {
    /// Reads a configuration file of another program.
    pub fn read(path: &Path) -> Result<Self, EditError> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let text = content(&path)?;
        Ok(Self { path, text })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file's text with an entry of a JSON section added or replaced.
    pub fn with_json_entry(&self, entry: ConfigEntry<'_>, value: &Value) -> Result<String, EditError> {
        edit::put_into(&self.path, self.text.as_deref().unwrap_or("{}\n"), entry, value)
    }

    /// Returns the file's text without an entry of a JSON section.
    pub fn without_json_entry(&self, entry: ConfigEntry<'_>) -> Result<String, EditError> {
        edit::removed(&self.path, self.text.as_deref().unwrap_or("{}\n"), entry)
    }

    /// Returns the file's text with a TOML table at its end, which replaces an earlier table with the same name.
    /// `lines` are the keys of the table.
    pub fn with_toml_table(&self, table: ConfigEntry<'_>, lines: &str) -> Result<String, EditError> {
        let rest = without_table(self.text.as_deref().unwrap_or_default(), table).unwrap_or_else(|text| text);
        let gap = if rest.is_empty() || rest.ends_with("\n\n") { "" } else { "\n" };
        let end = if rest.is_empty() || rest.ends_with('\n') { "" } else { "\n" };
        let text = format!("{rest}{end}{gap}{}\n{lines}", heading(table));
        self.checked_toml(text)
    }

    /// Returns the file's text without a TOML table.
    pub fn without_toml_table(&self, table: ConfigEntry<'_>) -> Result<String, EditError> {
        let ConfigEntry { section, name } = table;
        let absent = |_| EditError::Absent { section: section.to_owned(), name: name.to_owned() };
        let text = without_table(self.text.as_deref().unwrap_or_default(), table).map_err(absent)?;
        self.checked_toml(text)
    }

    fn checked_toml(&self, text: String) -> Result<String, EditError> {
        match toml::from_str::<toml::Table>(&text) {
            Ok(_) => Ok(text),
            Err(error) => Err(EditError::Unreadable(self.path.clone(), error.to_string())),
        }
    }

    /// Replaces the file atomically, if its content has not changed since haft read it. Returns the path of the backup
    /// copy of the old file.
    pub fn replace(&self, changed: &str) -> Result<Option<PathBuf>, EditError> {
        let unwritable = |error| EditError::Unwritable(self.path.clone(), error);
        if content(&self.path)? != self.text {
            return Err(EditError::Changed(self.path.clone()));
        }
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory).map_err(unwritable)?;
        }
        let backup = self.back_up().map_err(unwritable)?;
        let permissions = fs::metadata(&self.path).map(|metadata| metadata.permissions()).ok();
        let changed = changed.as_bytes();
        let replaced = match permissions {
            Some(permissions) => private_file::replace_with_permissions(&self.path, changed, permissions),
            None => private_file::replace(&self.path, changed),
        };
        replaced.map_err(unwritable)?;
        Ok(backup)
    }

    fn back_up(&self) -> std::io::Result<Option<PathBuf>> {
        let Some(text) = &self.text else { return Ok(None) };
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{BACKUP_SUFFIX}"));
        let backup = PathBuf::from(name);
        private_file::replace(&backup, text.as_bytes())?;
        Ok(Some(backup))
    }
}

fn content(path: &Path) -> Result<Option<String>, EditError> {
    let unreadable = |error: super::ConfigError| EditError::Unreadable(path.to_owned(), error.message);
    let Some(bytes) = file::bytes_up_to(path, FOREIGN_BYTES_MAX).map_err(unreadable)? else {
        return Ok(None);
    };
    file::text(path, bytes).map(Some).map_err(unreadable)
}

fn heading(ConfigEntry { section, name }: ConfigEntry<'_>) -> String {
    format!("[{section}.{name}]")
}

/// Removes the lines of a table and of the tables inside it. Returns the text unchanged if the text has no such table.
fn without_table(text: &str, table: ConfigEntry<'_>) -> Result<String, String> {
    let heading = heading(table);
    let inner = format!("{}.", heading.trim_end_matches(']'));
    let (mut kept, mut is_inside, mut found) = (String::new(), false, false);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            is_inside = trimmed.starts_with(&heading) || trimmed.starts_with(&inner);
            found |= is_inside;
        }
        if !is_inside {
            kept.push_str(line);
        }
    }
    if found { Ok(kept.trim_end_matches('\n').to_owned() + "\n") } else { Err(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const JSON: ConfigEntry<'_> = ConfigEntry { section: "mcpServers", name: "haft" };
    const TOML: ConfigEntry<'_> = ConfigEntry { section: "mcp_servers", name: "haft" };

    #[test]
    fn json_entry_is_added_and_removed_without_losing_comments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp.json");
        let before = "{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" }\n  }\n}\n";
        fs::write(&path, before).unwrap();
        let file = ForeignFile::read(&path).unwrap();
        let changed = file.with_json_entry(JSON, &json!({ "command": "haft" })).unwrap();
        let backup = file.replace(&changed).unwrap().unwrap();
        assert_eq!(fs::read_to_string(backup).unwrap(), before);
        assert!(
            changed.starts_with("{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" }"),
            "{changed}"
        );
        let file = ForeignFile::read(&path).unwrap();
        let back = file.without_json_entry(JSON).unwrap();
        assert!(back.contains("// mine") && back.contains("\"a\"") && !back.contains("haft"), "{back}");
        file.replace(&back).unwrap();
        assert!(ForeignFile::read(&path).unwrap().without_json_entry(JSON).is_err());
    }

    #[test]
    fn toml_table_is_added_replaced_and_removed_without_losing_comments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let before = "# mine\nmodel = \"m\"\n\n[mcp_servers.a]\ncommand = \"x\"\n";
        fs::write(&path, before).unwrap();
        let file = ForeignFile::read(&path).unwrap();
        let changed = file.with_toml_table(TOML, "command = \"haft\"\n").unwrap();
        assert_eq!(changed, format!("{before}\n[mcp_servers.haft]\ncommand = \"haft\"\n"));
        let more = format!("{changed}[mcp_servers.haft.env]\nA = \"b\"\n\n[other]\nb = 1\n");
        fs::write(&path, &more).unwrap();
        let file = ForeignFile::read(&path).unwrap();
        let again = file.with_toml_table(TOML, "command = \"new\"\n").unwrap();
        assert_eq!(again.matches("[mcp_servers.haft]").count(), 1, "{again}");
        assert!(again.contains("[other]") && !again.contains("A = \"b\""), "{again}");
        let back = file.without_toml_table(TOML).unwrap();
        assert!(back.starts_with(before) && back.contains("[other]") && !back.contains("haft"), "{back}");
        fs::write(&path, before).unwrap();
        assert!(ForeignFile::read(&path).unwrap().without_toml_table(TOML).is_err());
        fs::write(&path, "[broken").unwrap();
        assert!(ForeignFile::read(&path).unwrap().with_toml_table(TOML, "a = 1\n").is_err());
    }

    #[test]
    fn foreign_file_that_changed_since_it_was_read_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp.json");
        fs::write(&path, "{}").unwrap();
        let file = ForeignFile::read(&path).unwrap();
        fs::write(&path, "{ }").unwrap();
        assert!(matches!(file.replace("{\"a\": 1}"), Err(EditError::Changed(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "{ }");
        let absent = dir.path().join("new/mcp.json");
        let file = ForeignFile::read(&absent).unwrap();
        let text = file.with_json_entry(JSON, &json!({})).unwrap();
        assert_eq!(file.replace(&text).unwrap(), None);
        assert!(fs::read_to_string(&absent).unwrap().contains("haft"));
    }
}
