//! Executes tool calls: takes what was asked and always gives a result, on the record.
//!
//! Start reading at [`orchestrator`], where the order of the stages stands once; each stage is a file in `stage/`.
//! This crate knows no wire format, no transport and no tool: it meets those only as a `ToolProvider`.

pub mod authority;
pub mod cache;
pub mod catalog;
pub mod options;
pub mod orchestrator;
pub mod order;
pub mod policy;
mod progress;
pub mod queue;
mod record;
mod size;
mod stage;

pub use authority::{Authority, Memory};
pub use cache::{Cache, CacheConfig, CacheUse};
pub use catalog::{Catalog, CatalogEntry, ResolvedTool};
pub use options::CallOptions;
pub use orchestrator::{Capture, Orchestrator, OrchestratorConfig};
pub use order::{EffectOrder, Turn};
pub use policy::{Policies, UncheckedSchemas};
pub use queue::{Priority, QueueConfig, QueueSnapshot, Queues, UndefinedQueue};
pub use stage::ANSWER_TOKENS_MIN;
