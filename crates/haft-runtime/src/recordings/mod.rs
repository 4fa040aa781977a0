//! Recordings of whole runs: the output of models, tools and clocks, so that the same run can be replayed.
//!
//! A recording is the file that `haft-models` writes of model traffic, with more kinds of lines in it: the start of
//! each run (the root run and its sub-agents), the readings of clock and meters at each step, the events of tools, the
//! order of all events, and the total duration. [`RunRecorder`] writes these lines. [`RunPlayer`] feeds them to the
//! same driver that a live run uses. Nothing here calls a model or a tool.

mod left;
mod line;
mod order;
mod player;
mod recorder;

pub use left::{beginning, order};
pub use line::{Beginning, Which};
pub use player::{Played, RunPlayer};
pub use recorder::{Recorded, RunRecorder};
