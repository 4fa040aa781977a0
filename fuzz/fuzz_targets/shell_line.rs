//! Fuzzes the parser for shell lines, and the permission rules that use it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::shell_line(bytes));
