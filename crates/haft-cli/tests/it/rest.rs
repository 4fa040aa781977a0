//! Tools over HTTP, through the real binary.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a helper that fails is a failed test")]

mod bad_servers;
mod cached;
mod canned;
mod commands;
mod oauth;
mod rebinding;
mod shop;
