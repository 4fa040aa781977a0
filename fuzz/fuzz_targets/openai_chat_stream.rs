//! Fuzzes streamed replies in the format `openai_chat`.
#![no_main]

use haft_models::openai_chat::{OpenaiChat, dialect};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::stream(&OpenaiChat(&dialect::OPENROUTER), bytes));
