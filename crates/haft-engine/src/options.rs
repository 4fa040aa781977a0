//! The options that a run sets for one call. The model never sets them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haft_core::budget::ContextWindow;
use haft_core::position::RunPosition;
use haft_core::priority::Priority;
use haft_core::run::context::RunContext;
use haft_core::run::scope::RunScope;
use haft_core::tool_lock::ToolLock;

use crate::cache::CacheUse;
use crate::selection::ToolFilter;
use haft_core::run::journal::RunJournal;

/// The options of a call, apart from its tool and arguments.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// The run that makes the call. By default: the local principal, with no approver.
    pub context: Arc<RunContext>,
    /// The longest time that this call may take. It can only shorten the limits of tool, queue and operator.
    pub timeout: Option<Duration>,
    /// The priority of the call, unless the operator sets one for the tool.
    pub priority: Priority,
    /// Decides if a cached output may answer the call.
    pub cache: CacheUse,
    /// The session and turn of the call, for its events.
    pub place: RunPosition,
    /// The remaining context tokens of the run; without it only size limits apply.
    pub budget: Option<Arc<ContextWindow>>,
    /// Decides if the call waits for a slot of its tool's queue.
    pub concurrency: Concurrency,
    /// The tools that the request selected. The orchestrator refuses calls of other tools.
    pub selection: ToolFilter,
    /// The journal that records the call before the tool runs; without it the call is not recorded.
    pub journal: Option<Arc<dyn RunJournal>>,
    /// The run that pays for the call. Its meter receives the call's events, in place of the sink in `context`.
    pub scope: Option<Arc<RunScope>>,
    /// The tools that the run shows and those that it may search; `None` if the run has no search.
    pub search: Option<Arc<SearchScope>>,
    /// Decides which instructions of servers searches may show.
    pub instructions: InstructionPolicy,
}

/// The instructions of servers that the searches of a run show when they first define a tool of a server.
#[derive(Debug, Clone, Default)]
pub enum InstructionPolicy {
    /// None.
    #[default]
    Withheld,
    /// All, unless they differ from the locked ones.
    Given(Option<Arc<ToolLock>>),
}

/// The part of a run's exposure that its searches need.
#[derive(Debug, Default)]
pub struct SearchScope {
    /// The exposed names of the tools that the model sees.
    pub shown: HashSet<String>,
    /// The only tools that the run may call; `None` permits all.
    pub allowed: Option<HashSet<String>>,
    /// The names of tools that searches of earlier turns defined and that are still in the conversation.
    pub defined: HashSet<String>,
    /// The sources whose instructions searches of this turn have shown.
    pub instructed: Mutex<HashSet<String>>,
}

/// Decides if a call waits for a slot of its tool's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Concurrency {
    /// The call waits until its queue has a free slot.
    #[default]
    Queued,
    /// For a call that only makes other calls, such as a batch. The inner calls wait for slots, so an outer call that
    /// held one could deadlock them.
    Bypass,
}
