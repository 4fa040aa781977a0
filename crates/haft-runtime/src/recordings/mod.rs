//! Recordings of whole runs: the output of models, tools and clocks, so that the same run can be replayed.
//!
//! A recording is the file that `haft-models` writes of model traffic, with the journals of all its runs in it (of the
//! root run and of its sub-agents), as `haft-store` writes them into sessions. It also has its own lines: the events
//! and results of tools, the order of all events, and the total duration. [`RunRecorder`] writes these lines.
//! [`RunPlayer`] feeds them to the same driver that a live run uses, and [`past`] reads a journal out of it. Nothing here
//! calls a model or a tool.

mod call_event;
mod journal;
mod line;
mod order;
mod player;
mod recorder;
mod remaining;

pub(crate) use journal::JournalSinks;
pub use journal::{past, root};
pub use line::{RecordedCallId, RecordedStart, RunStartLine};
pub use player::{ReplayOutcome, RunPlayer};
pub use recorder::{RecordingSink, RunRecorder};
pub use remaining::{beginning, order};
