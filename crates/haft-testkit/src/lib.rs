//! What haft's own tests share: a place to work in, users to work as, and a way to run the real binary there.
//!
//! Start reading at [`Place`]. This crate is for tests alone: no product crate may depend on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a fixture that fails is a failed test")]

mod place;
mod run;
mod user;

pub use place::Place;
pub use run::{Ran, Run, eventually};
pub use user::{User, users};
