//! Calls and model requests on record, with their outcome and cost: one line of JSON each, in haft's own data.
//!
//! [`AccountingJournal`] writes the lines as a fold over events, [`summarize`] sums them up.

mod file_parts;
mod journal;
mod journal_file;
mod latencies;
mod model_stats;
mod partial;
mod quick_event;
mod record;
mod stats;
mod summary;

pub use journal::{AccountingJournal, model_record, now_ms, record};
pub use model_stats::ModelStats;
pub use record::{
    AccountingLine, LostRecord, ModelRecord, ToolRecord, ToolRecordAudit, ToolRecordPosition,
    ToolRecordSource,
};
pub use stats::ToolStats;
pub use summary::{AccountingSummary, summarize};
