//! Recordings of whole runs: what models, tools and clocks said, so that the same run can be seen again.
//!
//! A recording is the file that `haft-models` writes of models, with lines of more kinds in it: how the run began, what its
//! clock and meters read at each step, what tools did and in which order, and how long it all took. [`RunRecorder`] writes
//! them, [`RunPlayer`] gives them back to the same driver that a live run has. Nothing here asks a model or makes a call.

mod line;
mod player;
mod recorder;

pub use line::{Beginning, KIND_END, KIND_RESULT, KIND_RUN, KIND_STEP, KIND_TOOL};
pub use player::RunPlayer;
pub use recorder::RunRecorder;
