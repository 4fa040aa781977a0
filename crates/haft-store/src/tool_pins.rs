//! Pins the definitions of tools when haft first sees them, to report a change once. haft uses a lock file instead, if
//! there is one.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use haft_core::home::Home;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};

/// The maximum number of sources with pins. A server for many principals has pins for each of them.
const SOURCES_MAX: usize = 4_096;

/// The digests of all tool sources, such as MCP servers, by source key.
pub type SourceDigests = BTreeMap<String, SourceDigest>;

/// The digests of one source's tool definitions and instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceDigest {
    /// The digests of the definitions, by tool.
    pub tools: BTreeMap<String, String>,
    /// The digest of the instructions for models; empty if there are none.
    pub instructions: String,
}

/// The file of pinned definitions.
#[derive(Debug, Clone)]
pub struct ToolPins {
    path: PathBuf,
}

/// The differences of one source from its pinned definitions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedPins {
    /// The key of the source.
    pub source: String,
    /// The tools whose definitions changed.
    pub changed: Vec<String>,
    /// The tools that the source did not have when haft last saw it.
    pub added: Vec<String>,
    /// The tools that the source does not have any more.
    pub removed: Vec<String>,
    /// True if the instructions for models changed.
    pub instructions: bool,
}

#[derive(Serialize, Deserialize, Default)]
struct PinsFile {
    sources: BTreeMap<String, BTreeMap<String, String>>,
    /// The digests of instructions. Files of earlier versions have none.
    #[serde(default)]
    instructions: BTreeMap<String, String>,
    /// The sources in the order of their last change, oldest first. Files of earlier versions have no order.
    #[serde(default)]
    order: Vec<String>,
}

impl PinsFile {
    fn pin(&mut self, source: &str, found: &SourceDigest) {
        self.sources.insert(source.to_owned(), found.tools.clone());
        self.instructions.insert(source.to_owned(), found.instructions.clone());
        self.order.retain(|other| other != source);
        self.order.push(source.to_owned());
    }

    /// Forgets the oldest sources, so that the file does not grow without a limit.
    fn limit(&mut self, sources_max: usize) {
        let excess = self.sources.len().saturating_sub(sources_max);
        if excess == 0 {
            return;
        }
        let without_order = self.sources.keys().filter(|source| !self.order.contains(source)).cloned();
        let oldest: Vec<String> = without_order.chain(self.order.iter().cloned()).take(excess).collect();
        for source in oldest {
            self.sources.remove(&source);
            self.instructions.remove(&source);
            self.order.retain(|other| *other != source);
        }
    }

    fn is_pinned(&self, source: &str, found: &SourceDigest) -> bool {
        self.sources.get(source) == Some(&found.tools)
            && self.instructions.get(source) == Some(&found.instructions)
    }
}

/// Makes comparisons of this process wait for each other. Otherwise, two clients of a gateway could report the same
/// change.
static RENEWING: Mutex<()> = Mutex::new(());

impl ToolPins {
    /// Returns the pins in haft's data directory, without reading the file.
    pub fn of(home: &Home) -> Self {
        Self { path: home.data().join("tool-pins.json") }
    }

    /// Compares the definitions with the pinned ones, and then pins the new ones. Sources that are not in `found` keep
    /// their pins. Treats an unreadable file as empty.
    pub fn renew(&self, found: &SourceDigests) -> io::Result<Vec<ChangedPins>> {
        let _renewing = RENEWING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file: PinsFile = fs::read(&self.path)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let changes = changes(&file, found);
        if !found.iter().all(|(source, found)| file.is_pinned(source, found)) {
            for (source, found) in found {
                file.pin(source, found);
            }
            file.limit(SOURCES_MAX);
            private_file::replace(&self.path, &serde_json::to_vec(&file)?)?;
        }
        Ok(changes)
    }
}

/// Returns the changes of sources that were pinned before. The tools of a new source are not reported as a change.
fn changes(pinned: &PinsFile, found: &SourceDigests) -> Vec<ChangedPins> {
    let of_source = |(source, found): (&String, &SourceDigest)| {
        let before = pinned.sources.get(source)?;
        let now = &found.tools;
        let differs = |name: &&String| before.get(*name).is_some_and(|digest| *digest != now[*name]);
        let instructions = pinned.instructions.get(source);
        let change = ChangedPins {
            source: source.clone(),
            changed: now.keys().filter(differs).cloned().collect(),
            added: now.keys().filter(|name| !before.contains_key(*name)).cloned().collect(),
            removed: before.keys().filter(|name| !now.contains_key(*name)).cloned().collect(),
            instructions: instructions.is_some_and(|before| *before != found.instructions),
        };
        let unchanged = ChangedPins { source: source.clone(), ..ChangedPins::default() };
        (change != unchanged).then_some(change)
    };
    found.iter().filter_map(of_source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(source: &str, tools: &[(&str, &str)]) -> SourceDigests {
        with_instructions(source, tools, "")
    }

    fn with_instructions(source: &str, tools: &[(&str, &str)], instructions: &str) -> SourceDigests {
        let tools = tools.iter().map(|(name, digest)| ((*name).to_owned(), (*digest).to_owned())).collect();
        [(source.to_owned(), SourceDigest { tools, instructions: instructions.to_owned() })].into()
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
        let expected = ChangedPins {
            source: "mcp/a".into(),
            changed: vec!["t".into()],
            added: vec!["u".into()],
            ..ChangedPins::default()
        };
        assert_eq!(pins.renew(&now).unwrap(), [expected]);
        assert_eq!(pins.renew(&now).unwrap(), []);
        assert_eq!(pins.renew(&digests("mcp/b", &[("t", "9")])).unwrap(), []);
    }

    #[test]
    fn removed_tools_and_changed_instructions_are_reported_once() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path());
        fs::create_dir_all(home.data()).unwrap();
        let pins = ToolPins::of(&home);
        let change = |removed: &[&str], instructions: bool| ChangedPins {
            source: "mcp/a".into(),
            removed: removed.iter().map(|name| (*name).to_owned()).collect(),
            instructions,
            ..ChangedPins::default()
        };
        let two = [("t", "1"), ("u", "1")];
        assert_eq!(pins.renew(&with_instructions("mcp/a", &two, "")).unwrap(), []);
        assert_eq!(pins.renew(&with_instructions("mcp/a", &two, "i")).unwrap(), [change(&[], true)]);
        assert_eq!(pins.renew(&with_instructions("mcp/a", &two[..1], "j")).unwrap(), [change(&["u"], true)]);
        assert_eq!(pins.renew(&with_instructions("mcp/a", &two[..1], "j")).unwrap(), []);
        assert_eq!(pins.renew(&with_instructions("mcp/a", &two[..1], "")).unwrap(), [change(&[], true)]);
    }

    #[test]
    fn missing_instructions_in_a_pin_file_are_added_without_a_report() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path());
        fs::create_dir_all(home.data()).unwrap();
        let pins = ToolPins::of(&home);
        fs::write(&pins.path, r#"{"sources": {"mcp/a": {"t": "1"}}}"#).unwrap();
        assert_eq!(pins.renew(&with_instructions("mcp/a", &[("t", "1")], "i")).unwrap(), []);
        assert_eq!(pins.renew(&with_instructions("mcp/a", &[("t", "1")], "j")).unwrap().len(), 1);
    }

    /// The key of a source also contains the address and the principal, because two projects can have different servers
    /// with the same name, and two principals can see different tools.
    #[test]
    fn sources_with_different_keys_are_compared_separately() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path());
        fs::create_dir_all(home.data()).unwrap();
        let pins = ToolPins::of(&home);
        let (one, other) =
            (digests("mcp/a 1", &[("t", "1")]), digests("mcp/a 2 x/y", &[("u", "1"), ("v", "1")]));
        for _ in 0..3 {
            assert_eq!(pins.renew(&one).unwrap(), []);
            assert_eq!(pins.renew(&other).unwrap(), []);
        }
        assert_eq!(pins.renew(&digests("mcp/a 1", &[("t", "2")])).unwrap().len(), 1);
        assert_eq!(pins.renew(&other).unwrap(), []);
        assert_eq!(pins.renew(&digests("mcp/a 1", &[("t", "2")])).unwrap(), []);
    }

    #[test]
    fn oldest_sources_are_forgotten_first() {
        let mut file: PinsFile =
            serde_json::from_str(r#"{"sources": {"former": {}}, "instructions": {"former": ""}}"#).unwrap();
        for source in ["b", "a", "c", "b"] {
            file.pin(source, &SourceDigest::default());
        }
        let left = |file: &PinsFile| file.sources.keys().cloned().collect::<Vec<_>>();
        file.limit(4);
        assert_eq!(left(&file), ["a", "b", "c", "former"]);
        file.limit(3);
        assert_eq!(left(&file), ["a", "b", "c"]);
        file.limit(1);
        assert_eq!((left(&file), file.instructions.len(), file.order.len()), (vec!["b".to_owned()], 1, 1));
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
