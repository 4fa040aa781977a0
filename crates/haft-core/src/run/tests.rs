//! Tables of whole runs: what the model says on the left, which steps follow on the right.

mod bench;
mod endings;
mod limits;
mod properties;
mod tools;
