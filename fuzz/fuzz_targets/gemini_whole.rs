//! Fuzzes complete replies in the format `gemini`.
#![no_main]

use haft_models::gemini::GEMINI;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::whole(&GEMINI, bytes));
