//! Fuzzes streamed replies in the format `anthropic`.
#![no_main]

use haft_models::anthropic::ANTHROPIC;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::stream(&ANTHROPIC, bytes));
