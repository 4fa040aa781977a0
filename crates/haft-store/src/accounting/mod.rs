//! Usage records of calls and model requests, with their outcome and cost: one JSON line each.
//!
//! [`AccountingSink`] creates the lines from events. [`FileAccounting`] and [`MemoryAccounting`] are the stores.

mod file;
mod file_parts;
mod latencies;
mod line;
pub(crate) mod line_file;
mod memory;
mod model_stats;
mod partial;
mod quick_event;
mod record;
mod sink;
mod stats;
mod summary;

pub use file::FileAccounting;
pub use memory::MemoryAccounting;
pub use record::{
    ModelRecord, ToolRecord, ToolRecordAudit, ToolRecordPosition, ToolRecordSource, model_record, now_ms,
    record,
};
pub use sink::AccountingSink;

#[cfg(test)]
mod tests;
