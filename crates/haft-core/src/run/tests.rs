//! Tables of whole runs: the model's replies on the left, the expected steps on the right.

mod bench;
mod endings;
mod limits;
mod properties;
mod tools;
