//! Tests of HTTP tools, through the real binary.

mod bad_servers;
mod cached;
mod canned;
mod commands;
mod oauth;
mod origins;
mod rebinding;
mod shop;
