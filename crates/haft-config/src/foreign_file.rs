//! Changes one entry in the configuration file of another program, and keeps its comments and order.

mod toml_table;

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

/// A copy of a file, made before haft's first change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBackup {
    pub path: PathBuf,
    pub state: BackupState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupState {
    /// haft made the copy for this change.
    New,
    /// haft made the copy for an earlier change.
    Earlier,
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

    /// Returns the file's text with these members of an entry in a JSON section, which is added if the file has none.
    /// Other members of the entry are kept.
    pub fn with_json_entry(
        &self,
        entry: ConfigEntry<'_>,
        members: &[(&str, Value)],
    ) -> Result<String, EditError> {
        edit::merged_into(&self.path, self.text.as_deref().unwrap_or("{}\n"), entry, members)
    }

    /// Returns the file's text without an entry of a JSON section.
    pub fn without_json_entry(&self, entry: ConfigEntry<'_>) -> Result<String, EditError> {
        edit::removed(&self.path, self.text.as_deref().unwrap_or("{}\n"), entry)
    }

    /// Returns the file's text with these values in a TOML table, which is added at the end if the file has none. The
    /// values are TOML texts. Other keys of the table are kept.
    pub fn with_toml_table(
        &self,
        table: ConfigEntry<'_>,
        values: &[(&str, String)],
    ) -> Result<String, EditError> {
        let unreadable = |error| EditError::Unreadable(self.path.clone(), error);
        let changed = toml_table::put(self.text.as_deref().unwrap_or_default(), table, values);
        self.checked_toml(changed.map_err(unreadable)?)
    }

    /// Returns the file's text without a TOML table.
    pub fn without_toml_table(&self, table: ConfigEntry<'_>) -> Result<String, EditError> {
        let ConfigEntry { section, name } = table;
        let unreadable = |error| EditError::Unreadable(self.path.clone(), error);
        let absent = || EditError::Absent { section: section.to_owned(), name: name.to_owned() };
        let changed = toml_table::remove(self.text.as_deref().unwrap_or_default(), table);
        self.checked_toml(changed.map_err(unreadable)?.ok_or_else(absent)?)
    }

    fn checked_toml(&self, text: String) -> Result<String, EditError> {
        match toml::from_str::<toml::Table>(&text) {
            Ok(_) => Ok(text),
            Err(error) => Err(EditError::Unreadable(self.path.clone(), error.to_string())),
        }
    }

    /// Replaces the file atomically, if its content has not changed since haft read it. Returns the backup copy, which
    /// was made before the first change; `None` if there was no file.
    pub fn replace(&self, changed: &str) -> Result<Option<FileBackup>, EditError> {
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

    /// Copies the file, unless an earlier change already did. A later copy would contain our own changes instead of the
    /// user's file.
    fn back_up(&self) -> std::io::Result<Option<FileBackup>> {
        let Some(text) = &self.text else { return Ok(None) };
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{BACKUP_SUFFIX}"));
        let path = PathBuf::from(name);
        if path.exists() {
            return Ok(Some(FileBackup { path, state: BackupState::Earlier }));
        }
        private_file::replace(&path, text.as_bytes())?;
        Ok(Some(FileBackup { path, state: BackupState::New }))
    }
}

fn content(path: &Path) -> Result<Option<String>, EditError> {
    let unreadable = |error: super::ConfigError| EditError::Unreadable(path.to_owned(), error.message);
    let Some(bytes) = file::bytes_up_to(path, FOREIGN_BYTES_MAX).map_err(unreadable)? else {
        return Ok(None);
    };
    file::text(path, bytes).map(Some).map_err(unreadable)
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
        let changed = file.with_json_entry(JSON, &[("command", json!("haft"))]).unwrap();
        let backup = file.replace(&changed).unwrap().unwrap();
        assert_eq!(backup.state, BackupState::New);
        assert_eq!(fs::read_to_string(&backup.path).unwrap(), before);
        assert!(
            changed.starts_with("{\n  // mine\n  \"mcpServers\": {\n    \"a\": { \"command\": \"x\" }"),
            "{changed}"
        );
        let file = ForeignFile::read(&path).unwrap();
        let back = file.without_json_entry(JSON).unwrap();
        assert!(back.contains("// mine") && back.contains("\"a\"") && !back.contains("haft"), "{back}");
        let second = file.replace(&back).unwrap().unwrap();
        assert_eq!(second, FileBackup { state: BackupState::Earlier, ..backup });
        assert_eq!(fs::read_to_string(second.path).unwrap(), before);
        assert!(ForeignFile::read(&path).unwrap().without_json_entry(JSON).is_err());
    }

    #[test]
    fn json_entry_keeps_members_that_are_not_set() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mcp.json");
        let before = "{\n  \"mcpServers\": {\n    \"haft\": {\n      // mine\n      \"env\": { \"A\": \"b\" },\n      \"command\": \"old\"\n    }\n  }\n}\n";
        fs::write(&path, before).unwrap();
        let file = ForeignFile::read(&path).unwrap();
        let changed =
            file.with_json_entry(JSON, &[("command", json!("new")), ("args", json!(["mcp"]))]).unwrap();
        assert!(changed.starts_with(&before[..before.find("old").unwrap()]), "{changed}");
        assert!(changed.contains("\"command\": \"new\"") && changed.contains("\"args\""), "{changed}");
        fs::write(&path, r#"{"mcpServers": {"haft": 7}}"#).unwrap();
        assert!(ForeignFile::read(&path).unwrap().with_json_entry(JSON, &[]).is_err());
    }

    #[test]
    fn toml_table_is_added_replaced_and_removed_without_losing_comments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let command = |program: &str| [("command", format!("\"{program}\""))];
        let before = "# mine\nmodel = \"m\"\n\n[mcp_servers.a]\ncommand = \"x\"\n";
        fs::write(&path, before).unwrap();
        let file = ForeignFile::read(&path).unwrap();
        let changed = file.with_toml_table(TOML, &command("haft")).unwrap();
        assert_eq!(changed, format!("{before}\n[mcp_servers.haft]\ncommand = \"haft\"\n"));
        let more = format!("{changed}[mcp_servers.haft.env]\nA = \"b\"\n\n[other]\nb = 1\n");
        fs::write(&path, &more).unwrap();
        let file = ForeignFile::read(&path).unwrap();
        let again = file.with_toml_table(TOML, &command("new")).unwrap();
        assert_eq!(again.matches("[mcp_servers.haft]").count(), 1, "{again}");
        assert!(again.contains("[other]") && again.contains("A = \"b\""), "{again}");
        assert!(again.contains("\"new\"") && !again.contains("\"haft\""), "{again}");
        let back = file.without_toml_table(TOML).unwrap();
        assert!(back.starts_with(before) && back.contains("[other]") && !back.contains("haft"), "{back}");
        fs::write(&path, before).unwrap();
        assert!(ForeignFile::read(&path).unwrap().without_toml_table(TOML).is_err());
        fs::write(&path, "[broken").unwrap();
        assert!(ForeignFile::read(&path).unwrap().with_toml_table(TOML, &command("x")).is_err());
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
        let text = file.with_json_entry(JSON, &[]).unwrap();
        assert_eq!(file.replace(&text).unwrap(), None);
        assert!(fs::read_to_string(&absent).unwrap().contains("haft"));
    }
}
