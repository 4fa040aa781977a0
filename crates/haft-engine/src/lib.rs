//! Executes tool calls. Every call returns a result and emits one final audit event.
//!
//! Start reading at [`orchestrator`], which defines the order of the stages; each stage is a file in `stage/`.
//! [`drive`] performs the actions that a run decides on. This crate contains no wire format, no transport and no
//! concrete tool: it calls tools only through `ToolProvider`.

#![warn(missing_docs)]

pub mod cache;
mod call_record;
pub mod catalog;
pub mod compact;
pub mod drive;
pub mod exposure;
pub mod observer;
pub mod options;
pub mod orchestrator;
pub mod order;
pub mod policy;
mod progress;
pub mod queue;
pub mod search;
pub mod selection;
mod size;
mod stage;
mod tool_finder;
mod toolset_version;

pub use cache::{Cache, CacheConfig, CacheUse};
pub use catalog::{
    Catalog, CatalogConfig, CatalogEntry, CatalogWarning, PROVIDERS_AT_ONCE_MAX, ResolvedTool,
    SharedDefinitions, Snapshot,
};
pub use drive::{DriveOutcome, RunDriver};
pub use haft_core::priority::Priority;
pub use haft_core::run::context::RunContext;
pub use haft_core::run::journal::{Durability, JournalError, RunJournal};
pub use haft_core::run::meter::Meter;
pub use haft_core::run::scope::RunScope;
pub use observer::{RunObserver, ToolListChange};
pub use options::{CallOptions, Concurrency, InstructionPolicy, SearchScope};
pub use orchestrator::{ContentCapture, OfferedTool, Orchestrator, OrchestratorConfig};
pub use order::{EffectOrder, EffectPermit};
pub use policy::{GovernedTool, Governor, InactiveReason, ToolActivity, ToolPolicies, UncheckedSchemas};
pub use queue::{QueueConfig, QueueSnapshot, Queues, SlotWait, UndefinedQueue};
pub use selection::{ToolFilter, ToolFilterItem};
pub use stage::{ANSWER_TOKENS_MIN, delimited_text, without_delimiters};
pub use toolset_version::ToolsetVersion;
