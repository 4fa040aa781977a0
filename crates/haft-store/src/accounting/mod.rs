//! What was called, how it went and what it cost: one line of JSON per call or request, in haft's own data.
//!
//! [`Journal`] writes the lines as a fold over events, [`stats()`] sums them up.

mod journal;
mod model_stats;
mod record;
mod stats;

pub use journal::{Journal, read};
pub use journal::{model_record, now_ms, record};
pub use model_stats::{ModelStats, model_stats};
pub use record::{Audit, Line, ModelRecord, Record, Source, Standing};
pub use stats::{ToolStats, stats};
