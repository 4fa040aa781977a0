//! A least-recently-used cache, bounded in entries and bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use haft_core::digest::Digest;
use haft_core::output::{OutputContent, ToolOutput};
use tokio::time::Instant;

use super::CacheConfig;

/// A cached output with its size and expiry time.
#[derive(Debug, Clone)]
pub(super) struct CachedOutput {
    pub(super) output: SharedOutput,
    pub(super) bytes: usize,
    pub(super) expires: Instant,
}

/// An output whose clones share its content. Most outputs are a single text, which takes one allocation in this form
/// instead of three.
#[derive(Debug, Clone)]
pub(super) enum SharedOutput {
    Text(Arc<str>),
    Any(Arc<ToolOutput>),
}

impl SharedOutput {
    pub(super) fn of(output: &ToolOutput) -> Self {
        if let ToolOutput { content, structured: None, raw: None } = output
            && let [OutputContent::Text(text)] = content.as_slice()
        {
            Self::Text(text.as_str().into())
        } else {
            Self::Any(Arc::new(output.clone()))
        }
    }

    pub(super) fn to_output(&self) -> ToolOutput {
        match self {
            Self::Text(text) => ToolOutput::text(&**text),
            Self::Any(output) => ToolOutput::clone(output),
        }
    }
}

impl CachedOutput {
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        now < self.expires
    }
}

/// The LRU cache. Callers pass the time in, so tests need no clock.
#[derive(Debug)]
pub(super) struct Lru {
    config: CacheConfig,
    entries: HashMap<Digest, LruEntry>,
    /// The keys, from the least to the most recently used.
    by_use: BTreeMap<u64, Digest>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct LruEntry {
    output: CachedOutput,
    used: u64,
}

impl Lru {
    pub(super) fn new(config: CacheConfig) -> Self {
        Self { config, entries: HashMap::new(), by_use: BTreeMap::new(), bytes: 0, uses: 0 }
    }

    pub(super) fn entries(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn get(&mut self, key: &Digest, now: Instant) -> Option<SharedOutput> {
        let entry = self.remove(key).filter(|output| output.is_fresh(now))?;
        let output = entry.output.clone();
        self.insert(*key, entry);
        Some(output)
    }

    /// Returns true if an output of this size fits into the empty cache.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        bytes <= self.config.bytes_max && self.config.entries_max > 0
    }

    /// Stores an output. An output larger than the whole cache is not stored.
    pub(super) fn put(&mut self, key: Digest, output: CachedOutput) {
        self.remove(&key);
        if !self.takes(output.bytes) {
            return;
        }
        while self.entries.len() >= self.config.entries_max
            || self.bytes + output.bytes > self.config.bytes_max
        {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.remove(&oldest);
        }
        self.insert(key, output);
    }

    fn insert(&mut self, key: Digest, output: CachedOutput) {
        self.uses += 1;
        self.bytes += output.bytes;
        self.by_use.insert(self.uses, key);
        self.entries.insert(key, LruEntry { output, used: self.uses });
    }

    fn remove(&mut self, key: &Digest) -> Option<CachedOutput> {
        let LruEntry { output, used } = self.entries.remove(key)?;
        self.by_use.remove(&used);
        self.bytes -= output.bytes;
        Some(output)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    /// Runs a script on a cache of three entries and ten bytes, then compares the remaining entries. In the script,
    /// `a5` puts five bytes as `a`, `?a` gets it, and `+` advances the clock by a second. Every entry expires after two
    /// seconds.
    fn check(script: &str, expected: &str) {
        let began = Instant::now();
        let mut lru = Lru::new(CacheConfig { entries_max: 3, bytes_max: 10 });
        let mut now = began;
        let key = |name: &str| Digest::of_value(&json!(name));
        for step in script.split(' ') {
            match step.split_at(1) {
                ("+", _) => now += Duration::from_secs(1),
                ("?", name) => drop(lru.get(&key(name), now)),
                (name, bytes) => {
                    let (bytes, expires) = (bytes.parse().unwrap(), now + Duration::from_secs(2));
                    let output = SharedOutput::of(&ToolOutput::default());
                    lru.put(key(name), CachedOutput { output, bytes, expires });
                }
            }
        }
        let left: String =
            ["a", "b", "c", "d"].into_iter().filter(|name| lru.get(&key(name), now).is_some()).collect();
        assert_eq!(left, expected, "{script}");
        let bytes: usize = lru.entries.values().map(|entry| entry.output.bytes).sum();
        assert_eq!((lru.bytes, lru.by_use.len()), (bytes, lru.entries.len()), "{script}");
    }

    #[test]
    fn shared_output_converts_back_to_an_equal_output() {
        let check = |output: ToolOutput| assert_eq!(SharedOutput::of(&output).to_output(), output);
        check(ToolOutput::default());
        check(ToolOutput::text("done"));
        check(ToolOutput { structured: Some(json!({"done": true})), ..ToolOutput::text("done") });
        let two = [OutputContent::Text("a".into()), OutputContent::Text("b".into())];
        check(ToolOutput { content: two.into(), ..ToolOutput::default() });
    }

    #[test]
    fn least_recently_used_entry_is_evicted_first() {
        check("a1 b1 c1", "abc");
        check("a1 b1 c1 d1", "bcd");
        check("a1 b1 c1 ?a d1", "acd");
        check("a1 b1 c1 a1 d1", "acd");
    }

    #[test]
    fn cache_evicts_to_stay_within_its_byte_limit() {
        check("a5 b5", "ab");
        check("a5 b5 c1", "bc");
        check("a5 b11", "a");
        check("a5 a11", "");
        check("a1 b1 c10", "c");
    }

    #[test]
    fn expired_entries_are_not_returned() {
        check("a1 + b1 +", "b");
        check("a1 + + ?a", "");
        check("a1 + a1 +", "a");
    }
}
