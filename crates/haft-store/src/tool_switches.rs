//! The tools and groups that an administrator turned off: one private file, replaced as a whole under a lock.

use std::io;
use std::path::PathBuf;

use haft_core::home::Home;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};

use crate::grants::lock;

/// The version of the file format. haft reads no other version.
const VERSION: u32 = 1;

/// The file of all switches.
#[derive(Debug, Clone)]
pub struct ToolSwitchStore {
    path: PathBuf,
}

/// All tools and groups that are turned off.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSwitches {
    pub tools: Vec<TurnedOffTool>,
    pub groups: Vec<TurnedOffGroup>,
}

/// A tool that is turned off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedOffTool {
    /// The name by which models called the tool when it was turned off.
    pub name: String,
    /// The name of the provider kind, the namespace of the provider, and the name of the tool there.
    pub kind: String,
    pub namespace: String,
    pub tool: String,
    #[serde(flatten)]
    pub by: SwitchedBy,
}

/// A group that is turned off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnedOffGroup {
    pub name: String,
    #[serde(flatten)]
    pub by: SwitchedBy,
}

/// The administrator who turned a tool or a group off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchedBy {
    /// The principal as `TENANT/SUBJECT`.
    pub principal: String,
    /// The time, in milliseconds since 1970.
    pub at_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct SwitchesFile {
    version: u32,
    #[serde(flatten)]
    switches: StoredSwitches,
}

impl ToolSwitchStore {
    /// Returns the store in haft's data directory. The first change creates the file.
    pub fn of(home: &Home) -> Self {
        Self { path: home.data().join("tool-switches.json") }
    }

    /// Reads all switches. A damaged file is an error, because a tool that was turned off must not become active again
    /// silently.
    pub fn load(&self) -> io::Result<StoredSwitches> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(StoredSwitches::default()),
            Err(error) => return Err(error),
        };
        let problem = |text: String| io::Error::other(format!("{}: {text}", self.path.display()));
        let file: SwitchesFile =
            serde_json::from_slice(&bytes).map_err(|error| problem(error.to_string()))?;
        if file.version != VERSION {
            let found = file.version;
            return Err(problem(format!(
                "the file of turned-off tools has version {found}; this version of haft reads version \
                 {VERSION}"
            )));
        }
        Ok(file.switches)
    }

    /// Changes the switches, and returns the new ones after they are on the disk.
    pub fn change(&self, change: impl FnOnce(&mut StoredSwitches)) -> io::Result<StoredSwitches> {
        let _lock = lock(&self.path.with_extension("lock"))?;
        let mut switches = self.load()?;
        change(&mut switches);
        let file = SwitchesFile { version: VERSION, switches };
        private_file::replace(&self.path, &serde_json::to_vec(&file)?)?;
        Ok(file.switches)
    }

    /// Replaces the name of a principal. Does not create the file.
    pub(crate) fn rename(&self, principal: &str, pseudonym: &str) -> io::Result<()> {
        let names = |switches: &StoredSwitches| {
            let tools = switches.tools.iter().map(|tool| &tool.by);
            tools.chain(switches.groups.iter().map(|group| &group.by)).any(|by| by.principal == principal)
        };
        if !names(&self.load()?) {
            return Ok(());
        }
        self.change(|switches| {
            let tools = switches.tools.iter_mut().map(|tool| &mut tool.by);
            let all = tools.chain(switches.groups.iter_mut().map(|group| &mut group.by));
            for by in all.filter(|by| by.principal == principal) {
                pseudonym.clone_into(&mut by.principal);
            }
        })
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_switches_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let store = ToolSwitchStore::of(&Home::at(directory.path()));
        assert_eq!(store.load().unwrap(), StoredSwitches::default());
        let by = SwitchedBy { principal: "acme/anna".into(), at_ms: 7 };
        let group = TurnedOffGroup { name: "web".into(), by };
        let changed = store.change(|switches| switches.groups.push(group.clone())).unwrap();
        assert_eq!((&changed.groups[..], store.load().unwrap()), (&[group][..], changed.clone()));
        store.rename("acme/anna", "acme/deleted-1").unwrap();
        assert_eq!(store.load().unwrap().groups[0].by.principal, "acme/deleted-1");
        std::fs::write(&store.path, r#"{"version": 2, "tools": [], "groups": []}"#).unwrap();
        assert!(store.load().unwrap_err().to_string().contains("version 2"));
        std::fs::write(&store.path, "{").unwrap();
        assert!(store.load().is_err() && store.change(|_| {}).is_err());
    }
}
