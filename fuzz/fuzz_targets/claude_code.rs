//! Fuzzes the output of the `claude` command.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::claude_code(bytes));
