//! What the run decides about one call. The model never does.

use haft_core::place::Place;

use crate::cache::CacheUse;
use crate::queue::Priority;

/// How a call is carried out, beside what it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallOptions {
    pub priority: Priority,
    pub cache: CacheUse,
    /// Where in the work the call stands, for those who watch.
    pub place: Place,
}
