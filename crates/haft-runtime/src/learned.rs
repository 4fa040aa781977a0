//! What was learned about models and is known to the next process: which of them need their tools in the prompt.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use haft_sandbox::Home;
use serde::{Deserialize, Serialize};

use haft_tools::private_file;

/// A model may learn to call tools, so after this long it is asked natively again.
const KEPT_SECONDS: u64 = 30 * 24 * 60 * 60;

/// How many models are remembered; the oldest are forgotten first.
const MODELS_MAX: usize = 1000;

/// The largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is known of the models of one provider.
#[derive(Debug, Clone)]
pub(crate) struct Learned {
    path: PathBuf,
    provider: String,
}

/// As it stands in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Written {
    /// By `provider/model`, the second since 1970 in which it was found.
    prompted: BTreeMap<String, u64>,
}

impl Learned {
    pub(crate) fn of(home: &Home, provider: &str) -> Self {
        Self { path: home.data().join("tool-calling.json"), provider: provider.to_owned() }
    }

    /// The models that are known to need their tools in the prompt.
    pub(crate) fn prompted(&self) -> Vec<String> {
        let written = self.read(now());
        let own =
            written.prompted.keys().filter_map(|name| name.strip_prefix(&format!("{}/", self.provider)));
        own.map(str::to_owned).collect()
    }

    /// Two processes that learn at the same moment may forget one of it; it is learned again.
    pub(crate) fn remember(&self, model: &str) {
        let mut written = self.read(now());
        written.prompted.insert(format!("{}/{model}", self.provider), now());
        while written.prompted.len() > MODELS_MAX {
            let oldest =
                written.prompted.iter().min_by_key(|(_, found)| **found).map(|(name, _)| name.clone());
            oldest.and_then(|name| written.prompted.remove(&name));
        }
        let text = serde_json::to_vec_pretty(&written).unwrap_or_default();
        let made = self.path.parent().map_or(Ok(()), std::fs::create_dir_all);
        // What cannot be kept costs the next process one request.
        let _ = made.and_then(|()| private_file::replace(&self.path, &text));
    }

    /// A file that cannot be read is none: what it held is learned again.
    fn read(&self, now: u64) -> Written {
        let mut text = String::new();
        let read =
            File::open(&self.path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        let mut written: Written =
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
    fn what_was_learned_is_known_until_it_is_old_or_unreadable() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let (ollama, other) = (Learned::of(&home, "ollama"), Learned::of(&home, "other"));
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
