//! How a provider says that its list of tools is another one now.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts changes. A provider keeps one and announces; whoever holds a snapshot compares.
///
/// A count instead of a callback: a provider may announce at any moment, also in the middle of a call or under a lock of
/// its own, and nothing of anybody else runs there. Clones share the count, so several providers may have one.
#[derive(Debug, Clone, Default)]
pub struct Changes(Arc<AtomicU64>);

impl Changes {
    /// Says that `tools()` gives another list from now on. The next call sees it.
    pub fn announce(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    /// How often it was announced. Read it before the list, so that no change is missed.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether both count the same.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
