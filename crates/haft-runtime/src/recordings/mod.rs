//! Recordings of whole runs: the output of models, tools and clocks, so that a run can be replayed.
//!
//! A recording is the file of model traffic that `haft-models` writes. It also contains the journals of the root run
//! and its sub-agents, in the form in which `haft-store` writes them into sessions, and lines of its own: the events
//! and results of tools, the order of all events, and the total duration. [`RunRecorder`] writes these lines.
//! [`RunPlayer`] feeds them to the same driver that a live run uses, and [`past`] reads a journal from a recording.
//! This module calls no model and no tool.

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
