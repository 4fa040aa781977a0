//! Fuzzes complete replies in the format `ollama`.
#![no_main]

use haft_models::ollama::OLLAMA;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::whole(&OLLAMA, bytes));
