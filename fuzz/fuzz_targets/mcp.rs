//! Fuzzes messages, lists of tools and results of MCP servers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::mcp(bytes));
