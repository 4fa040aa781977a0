//! A persistent cache of model capabilities: the models that need their tools described in the prompt.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use haft_fs::private_file;
use haft_sandbox::Home;
use serde::{Deserialize, Serialize};

/// The lifetime of a cache entry. After this time, haft tries native tool calling with the model again, because a newer
/// version of the model may support it.
const KEPT_SECONDS: u64 = 30 * 24 * 60 * 60;

/// The maximum number of models in the cache; the oldest entries are removed first.
const MODELS_MAX: usize = 1000;

/// The maximum size of a cache file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The cached capabilities of one provider's models.
#[derive(Debug, Clone)]
pub(crate) struct CapabilityCacheFile {
    path: PathBuf,
    provider: String,
}

/// The content of the cache file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CapabilityCacheJson {
    /// The Unix time in seconds at which haft found that each `provider/model` needs its tools in the prompt.
    prompted: BTreeMap<String, u64>,
}

impl CapabilityCacheFile {
    pub(crate) fn of(home: &Home, provider: &str) -> Self {
        Self { path: home.data().join("tool-calling.json"), provider: provider.to_owned() }
    }

    /// Returns the models that need their tools in the prompt.
    pub(crate) fn prompted(&self) -> Vec<String> {
        let written = self.read(now());
        let own =
            written.prompted.keys().filter_map(|name| name.strip_prefix(&format!("{}/", self.provider)));
        own.map(str::to_owned).collect()
    }

    /// Adds a model. If two processes write at the same moment, one entry may be lost; a later run then tests that
    /// model again.
    pub(crate) fn remember(&self, model: &str) {
        let mut written = self.read(now());
        written.prompted.insert(format!("{}/{model}", self.provider), now());
        while written.prompted.len() > MODELS_MAX {
            let oldest =
                written.prompted.iter().min_by_key(|(_, found)| **found).map(|(name, _)| name.clone());
            oldest.and_then(|name| written.prompted.remove(&name));
        }
        let text = serde_json::to_vec_pretty(&written).unwrap_or_default();
        let created = private_file::create_parent_dir(&self.path);
        // Ignore errors: a lost entry costs the next process one request.
        let _ = created.and_then(|()| private_file::replace(&self.path, &text));
    }

    /// Reads the cache file. Treats an unreadable file as empty, because later runs test the models again.
    fn read(&self, now: u64) -> CapabilityCacheJson {
        let mut text = String::new();
        let read =
            File::open(&self.path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        let mut written: CapabilityCacheJson =
            read.ok().and_then(|_| serde_json::from_str(&text).ok()).unwrap_or_default();
        written.prompted.retain(|_, found| *found <= now && now - *found < KEPT_SECONDS);
        written
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capability_cache_drops_old_entries_and_ignores_a_damaged_file() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let (ollama, other) =
            (CapabilityCacheFile::of(&home, "ollama"), CapabilityCacheFile::of(&home, "other"));
        assert!(ollama.prompted().is_empty());
        ollama.remember("a/b");
        ollama.remember("c");
        assert_eq!(
            (ollama.prompted(), other.prompted()),
            (vec!["a/b".to_owned(), "c".to_owned()], Vec::new())
        );
        assert!(ollama.read(now() + KEPT_SECONDS).prompted.is_empty());
        std::fs::write(&ollama.path, "{garbage").unwrap();
        assert!(ollama.prompted().is_empty());
        other.remember("d");
        assert_eq!(other.prompted(), ["d"]);
    }
}
