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

/// The options of a call, except its tool and arguments.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    /// The context of the run that makes the call. The default is the local principal without an approver.
    pub context: Arc<RunContext>,
    /// The time limit for this call. It can only shorten the limits of tool, queue and operator.
    pub timeout: Option<Duration>,
    /// The priority of the call, unless the operator sets one for the tool.
    pub priority: Priority,
    /// Selects whether a cached output may answer the call.
    pub cache: CacheUse,
    /// The session and turn of the call, for its events.
    pub place: RunPosition,
    /// The context window of the run, from which outputs reserve tokens. If `None`, only size limits apply.
    pub budget: Option<Arc<ContextWindow>>,
    /// Selects whether the call waits for a slot in its tool's queue.
    pub concurrency: Concurrency,
    /// The tools that the request selected. The orchestrator refuses calls to other tools.
    pub selection: ToolFilter,
    /// The journal that records the call before the tool runs. If `None`, the call is not recorded.
    pub journal: Option<Arc<dyn RunJournal>>,
    /// The run that pays for the call. Its meter receives the call's events instead of the sink in `context`.
    pub scope: Option<Arc<RunScope>>,
    /// The tools that the run shows and the tools that it may search; `None` if the run has no search.
    pub search: Option<Arc<SearchScope>>,
    /// Selects the server instructions that searches may show.
    pub instructions: InstructionPolicy,
}

/// Selects the server instructions that a run's searches show when they first define a tool of that server.
#[derive(Debug, Clone, Default)]
pub enum InstructionPolicy {
    /// Searches show no instructions.
    #[default]
    Withheld,
    /// Searches show all instructions, except those that differ from the locked ones.
    Given(Option<Arc<ToolLock>>),
}

/// The part of a run's tool exposure that its searches need.
#[derive(Debug, Default)]
pub struct SearchScope {
    /// The exposed names of the tools that the model sees.
    pub shown: HashSet<String>,
    /// The only tools that the run may call; `None` if it may call all.
    pub allowed: Option<HashSet<String>>,
    /// The names of tools that searches in earlier turns defined and that are still in the conversation.
    pub defined: HashSet<String>,
    /// The sources whose instructions have been shown by searches in this turn.
    pub instructed: Mutex<HashSet<String>>,
}

/// Selects whether a call waits for a slot in its tool's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Concurrency {
    /// The call waits until its queue has a free slot.
    #[default]
    Queued,
    /// The call takes no slot. This is for a call that only makes other calls, such as a batch: the inner calls wait
    /// for slots, so an outer call that held one could cause a deadlock.
    Bypass,
}
