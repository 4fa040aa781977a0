//! What the run decides about one call. The model never does.

use std::sync::Arc;
use std::time::Duration;

use haft_core::budget::Budget;
use haft_core::place::Place;
use haft_core::priority::Priority;
use haft_core::run::context::RunContext;
use haft_core::run::scope::RunScope;

use crate::cache::CacheUse;
use crate::selection::Selection;
use haft_core::run::chronicle::Chronicle;

/// How a call is carried out, beside what it asks.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// The run on whose behalf the call is made; by default the local principal, with no one to ask.
    pub context: Arc<RunContext>,
    /// The longest that this call may take. It only shortens the limits of tool, queue and operator.
    pub timeout: Option<Duration>,
    /// How urgent the call is, unless the operator says otherwise about the tool.
    pub priority: Priority,
    pub cache: CacheUse,
    /// Where in the work the call stands, for those who watch.
    pub place: Place,
    /// What the run's context still holds; without it only sizes count.
    pub budget: Option<Arc<Budget>>,
    pub concurrency: Concurrency,
    /// What the request is about; a call of any other tool is refused.
    pub selection: Selection,
    /// Where the call is put on record before it is made; without it nobody wants to know.
    pub chronicle: Option<Arc<dyn Chronicle>>,
    /// The run that the call is made for. Its meter sees the call, instead of whoever watches the orchestrator.
    pub scope: Option<Arc<RunScope>>,
}

/// Whether a call waits for a slot of its tool's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Concurrency {
    #[default]
    Queued,
    /// For a call that only makes other calls, such as a batch: those wait for slots, and one held while they do could
    /// be the one they wait for.
    Bypass,
}
