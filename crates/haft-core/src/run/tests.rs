//! Tables of whole runs: the model's replies on the left, the expected steps on the right.

mod compaction;
mod endings;
mod fixture;
mod limits;
mod properties;
mod tools;
