//! Fuzzes the import of OpenAPI documents.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| haft_fuzz::openapi(bytes));
