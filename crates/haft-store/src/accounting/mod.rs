//! Calls and model requests on record, with their outcome and cost: one line of JSON each, in haft's own data.
//!
//! [`Journal`] writes the lines as a fold over events, [`summarize`] sums them up.

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

pub use journal::{Journal, model_record, now_ms, record};
pub use model_stats::ModelStats;
pub use record::{Audit, Line, LostRecord, ModelRecord, Record, Source, Standing};
pub use stats::ToolStats;
pub use summary::{Summary, summarize};
