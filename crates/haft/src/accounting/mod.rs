//! What was called, how it went and what it cost: one line of JSON per call, in haft's own data.
//!
//! [`Journal`] writes the lines as a fold over events, [`stats()`] sums them up.

mod journal;
mod record;
mod stats;

pub use journal::{Journal, read};
pub use record::{Audit, Record, Source, Standing};
pub use stats::{ToolStats, stats};
