//! The trait of stores that hold cached outputs of calls, so that other processes and later ones can use them.

use std::fmt;

use futures_util::future::BoxFuture;

use crate::digest::Digest;
use crate::output_store::StoreError;
use crate::stored::StoredToolOutput;

/// The key of a cached output. The tenant comes first, so that no query can reach another tenant's entries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    /// The tenant of the call's principal.
    pub tenant: String,
    /// The digest of the call and of everything else that its output depends on.
    pub call: Digest,
}

/// A cached output and the wall-clock time of its expiry, in milliseconds since 1970. Processes share no other clock.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheEntry {
    /// The output in its stored form.
    pub output: StoredToolOutput,
    /// The first millisecond at which the entry is no longer used.
    pub expires_ms: u64,
}

/// The capacity of a cache, over all tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// The largest number of entries.
    pub entries_max: u64,
    /// The largest size of all entries, in bytes.
    pub bytes_max: u64,
}

/// The right to make a call whose output will be cached. Dropping it lets the next caller make the call.
pub struct CacheLease {
    _held: Option<Box<dyn Send + Sync>>,
}

impl CacheLease {
    /// Creates a lease that frees the call when this value is dropped.
    pub fn holding(held: impl Send + Sync + 'static) -> Self {
        Self { _held: Some(Box::new(held)) }
    }

    /// Creates a lease that excludes no other caller.
    pub fn shared() -> Self {
        Self { _held: None }
    }
}

impl fmt::Debug for CacheLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CacheLease")
    }
}

/// Keeps cached outputs until they expire, within limits. A store may drop an entry at any time.
pub trait CacheStore: Send + Sync {
    /// Returns the entry under a key; `None` if there is none, if it has expired, or if it cannot be understood.
    fn get(&self, key: CacheKey) -> BoxFuture<'_, Result<Option<CacheEntry>, StoreError>>;

    /// Stores an entry, in place of an earlier one. An entry that does not fit the limits is not stored, and that is no
    /// error.
    fn put(&self, key: CacheKey, entry: CacheEntry) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Waits while another caller, also one of another process, makes the call with this key. Then returns the right to
    /// make it. The caller reads the store again, because the other caller may have stored the output.
    fn lease(&self, key: CacheKey) -> BoxFuture<'_, Result<CacheLease, StoreError>>;
}
