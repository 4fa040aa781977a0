//! Tables of whole runs, with the model's replies and the expected steps of each run.

mod compaction;
mod endings;
mod fixture;
mod limits;
mod properties;
mod tools;
