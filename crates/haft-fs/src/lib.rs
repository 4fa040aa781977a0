//! Files that only their owner can read, and locks between processes. haft-config, haft-store and haft-tools all keep
//! such files and do not depend on each other, so the code is here once.
//!
//! Start with [`private_file`]. This crate knows no path of haft and no file format.

pub mod file_lock;
pub mod private_file;
