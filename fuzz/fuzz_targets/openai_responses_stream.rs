//! Fuzzes streamed replies in the format `openai_responses`.
#![no_main]

use haft_models::openai_responses::OPENAI_RESPONSES;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::stream(&OPENAI_RESPONSES, bytes));
