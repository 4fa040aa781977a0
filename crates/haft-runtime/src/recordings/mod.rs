//! Recordings of whole runs: what models, tools and clocks said, so that the same run can be seen again.
//!
//! A recording is the file that `haft-models` writes of models, with lines of more kinds in it: how each run began, the one that
//! was asked and those that worked for it, what its clock and meters read at each step, what tools did, in which order all
//! that was seen, and how long it took. [`RunRecorder`] writes them, [`RunPlayer`] gives them back to the same driver that a
//! live run has. Nothing here asks a model or makes a call.

mod left;
mod line;
mod order;
mod player;
mod recorder;

pub use left::{beginning, order};
pub use line::{Beginning, Which};
pub use player::{Played, RunPlayer};
pub use recorder::{Recorded, RunRecorder};
