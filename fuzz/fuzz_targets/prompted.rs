//! Fuzzes the parser for tool calls in the text of a model.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::prompted(bytes));
