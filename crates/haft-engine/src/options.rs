//! What the run decides about one call. The model never does.

use std::sync::Arc;

use haft_core::budget::Budget;
use haft_core::place::Place;

use crate::cache::CacheUse;
use crate::queue::Priority;

/// How a call is carried out, beside what it asks.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    pub priority: Priority,
    pub cache: CacheUse,
    /// Where in the work the call stands, for those who watch.
    pub place: Place,
    /// What the run's context still holds; without it only sizes count.
    pub budget: Option<Arc<Budget>>,
}
