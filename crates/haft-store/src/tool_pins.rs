//! Pins the definitions of tools when haft first sees them, to report a change once. haft uses a lock file instead, if
//! there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::PathBuf;

use haft_core::home::Home;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};

/// The digests of definitions, by source and tool.
pub type ToolDigests = BTreeMap<String, BTreeMap<String, String>>;

/// The file of pinned definitions.
#[derive(Debug, Clone)]
pub struct ToolPins {
    path: PathBuf,
}

/// A definition that differs from the pinned one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPins {
    /// The key of the source, as in a lock file.
    pub source: String,
    /// The tools whose definitions changed.
    pub changed: Vec<String>,
    /// The tools that the source did not have when haft last saw it.
    pub added: Vec<String>,
}

#[derive(Serialize, Deserialize, Default)]
struct PinsFile {
    sources: ToolDigests,
}

impl ToolPins {
    /// Returns the pins in haft's data directory, without reading the file.
    pub fn of(home: &Home) -> Self {
        Self { path: home.data().join("tool-pins.json") }
    }

    /// Compares the definitions with the pinned ones, and then pins the new ones. Sources that are not in `found` keep
    /// their pins. Treats an unreadable file as empty.
    pub fn renew(&self, found: &ToolDigests) -> io::Result<Vec<ChangedPins>> {
        let mut file: PinsFile = fs::read(&self.path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let changes = changes(&file.sources, found);
        let is_pinned = |(source, tools): (&String, &BTreeMap<String, String>)| {
            file.sources.get(source).is_some_and(|pinned| pinned == tools)
        };
        if !found.iter().all(is_pinned) {
            file.sources.extend(found.iter().map(|(source, tools)| (source.clone(), tools.clone())));
            private_file::replace(&self.path, &serde_json::to_vec(&file)?)?;
        }
        Ok(changes)
    }
}

/// Returns the changes of sources that were pinned before. The tools of a new source are not reported as a change.
fn changes(pinned: &ToolDigests, found: &ToolDigests) -> Vec<ChangedPins> {
    let of_source = |(source, tools): (&String, &BTreeMap<String, String>)| {
        let before = pinned.get(source)?;
        let differs = |name: &&String| before.get(*name).is_some_and(|digest| *digest != tools[*name]);
        let changed: Vec<String> = tools.keys().filter(differs).cloned().collect();
        let known: BTreeSet<&String> = before.keys().collect();
        let added: Vec<String> = tools.keys().filter(|name| !known.contains(name)).cloned().collect();
        let is_empty = changed.is_empty() && added.is_empty();
        (!is_empty).then(|| ChangedPins { source: source.clone(), changed, added })
    };
    found.iter().filter_map(of_source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(source: &str, tools: &[(&str, &str)]) -> ToolDigests {
        let tools = tools.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect();
        [(source.to_owned(), tools)].into()
    }

    #[test]
    fn tool_changes_of_a_known_source_are_reported_once() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path());
        fs::create_dir_all(home.data()).unwrap();
        let pins = ToolPins::of(&home);
        assert_eq!(pins.renew(&digests("mcp/a", &[("t", "1")])).unwrap(), []);
        assert_eq!(pins.renew(&digests("mcp/b", &[("t", "9")])).unwrap(), []);
        let now = digests("mcp/a", &[("t", "2"), ("u", "1")]);
        let expected =
            ChangedPins { source: "mcp/a".into(), changed: vec!["t".into()], added: vec!["u".into()] };
        assert_eq!(pins.renew(&now).unwrap(), [expected]);
        assert_eq!(pins.renew(&now).unwrap(), []);
        assert_eq!(pins.renew(&digests("mcp/b", &[("t", "9")])).unwrap(), []);
    }

    #[test]
    fn damaged_tool_pin_file_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path());
        fs::create_dir_all(home.data()).unwrap();
        let pins = ToolPins::of(&home);
        fs::write(&pins.path, "{").unwrap();
        assert_eq!(pins.renew(&digests("mcp/a", &[("t", "1")])).unwrap(), []);
        assert_eq!(pins.renew(&digests("mcp/a", &[("t", "2")])).unwrap().len(), 1);
    }
}
