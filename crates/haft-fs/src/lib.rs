//! Files that only their owner can read, and locks between processes. haft-config, haft-store and haft-tools all use
//! such files and do not depend on each other, so the code is in this crate.
//!
//! Start with [`private_file`]. This crate does not know the paths and file formats of haft.

pub mod file_lock;
pub mod private_file;
