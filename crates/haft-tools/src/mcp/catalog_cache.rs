//! A cache of an MCP server's tools on disk, so that haft knows the tools before the server runs.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use haft_fs::private_file;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::listing::{self, ToolSelection};
use super::session::ServerOffers;

/// The maximum size of a cache file that is read, in bytes.
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// A summary of the cache file of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogCacheSummary {
    /// The protocol version.
    pub version: String,
    /// The number of tools that the operator selects.
    pub tools: usize,
}

/// Reads the summary for the server with this namespace from `directory`; `None` if there is no cache file, or if the
/// server's configuration has changed.
pub fn catalog_cache_summary(
    directory: &Path,
    namespace: &str,
    digest: &str,
    wanted: &ToolSelection,
) -> Option<CatalogCacheSummary> {
    let found = CatalogCache::of(directory, namespace).load(digest)?;
    Some(CatalogCacheSummary {
        tools: listing::read(&found.tools, wanted).tools().len(),
        version: found.version,
    })
}

/// The cache file of one server.
#[derive(Debug, Clone)]
pub(super) struct CatalogCache {
    path: PathBuf,
}

/// The content of a cache file. It is valid only while the server's configuration stays the same.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CachedCatalog {
    pub(super) digest: String,
    /// The protocol version, from which `ProtocolEra` is derived.
    pub(super) version: String,
    pub(super) instructions: Option<String>,
    /// The server features other than tools; `None` in a cache file of an earlier haft version.
    #[serde(default)]
    pub(super) offers: Option<ServerOffers>,
    /// The tool definitions as the server sent them.
    pub(super) tools: Vec<Box<RawValue>>,
}

impl CatalogCache {
    /// Creates the handle without accessing the file. `namespace` is a valid name, so it is a valid file name too.
    pub(super) fn of(directory: &Path, namespace: &str) -> Self {
        Self { path: directory.join(format!("{namespace}.json")) }
    }

    /// Loads the cache if it belongs to the same configuration. Treats an unreadable file as no cache.
    pub(super) fn load(&self, digest: &str) -> Option<CachedCatalog> {
        self.read().filter(|found| found.digest == digest)
    }

    fn read(&self) -> Option<CachedCatalog> {
        let mut text = String::new();
        let file = std::fs::File::open(&self.path).ok()?;
        file.take(MEMORY_BYTES_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Saves the cache atomically, so that no reader sees a partial file.
    pub(super) fn save(&self, remembered: &CachedCatalog) -> io::Result<()> {
        private_file::create_parent_dir(&self.path)?;
        private_file::replace_unsynced(&self.path, &serde_json::to_vec(remembered)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_catalog_loads_only_for_the_same_server_digest() {
        let directory = tempfile::tempdir().unwrap();
        let memory = CatalogCache::of(&directory.path().join("mcp"), "time");
        assert!(memory.load("d").is_none());
        let tool = RawValue::from_string(r#"{"name":"now","x":1}"#.into()).unwrap();
        let remembered = CachedCatalog {
            digest: "d".into(),
            version: "2025-11-25".into(),
            instructions: None,
            offers: None,
            tools: vec![tool],
        };
        memory.save(&remembered).unwrap();
        assert_eq!(memory.load("d").unwrap().tools[0].get(), r#"{"name":"now","x":1}"#);
        assert!(memory.load("other").is_none());
        std::fs::write(&memory.path, "{").unwrap();
        assert!(memory.load("d").is_none());
    }
}
