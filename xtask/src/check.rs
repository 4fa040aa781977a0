//! The checks that cargo itself does.

use crate::step::{run, run_with};

pub(crate) fn format() -> Result<(), String> {
    run("cargo", &["fmt", "--all", "--check"])
}

pub(crate) fn lint() -> Result<(), String> {
    run("cargo", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
}

/// Checks the lock file of the fuzz targets. They are outside the workspace and are seldom built, so no other step
/// would notice that their lock file is out of date.
pub(crate) fn fuzz_lock() -> Result<(), String> {
    run("cargo", &["fetch", "--quiet", "--locked", "--manifest-path", "fuzz/Cargo.toml"])
}

pub(crate) fn tests() -> Result<(), String> {
    run("cargo", &["test", "--workspace", "--locked"])
}

/// Tests races between a confined command and another program that replaces protected files, with 10,000 renames each.
pub(crate) fn races() -> Result<(), String> {
    let words = ["test", "--locked", "-p", "haft-cli", "--test", "it", "escape::renames"];
    run_with("cargo", &words, &[("HAFT_TEST_RENAMES", "10000")])
}

pub(crate) fn documents() -> Result<(), String> {
    let words = ["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"];
    run_with("cargo", &words, &[("RUSTDOCFLAGS", "-D warnings")])
}

pub(crate) fn bench() -> Result<(), String> {
    let programs = ["spawn", "mcp", "gateway", "loop", "serve"];
    for program in programs {
        run("cargo", &["bench", "--locked", "-p", "haft-cli", "--bench", program])?;
    }
    run("cargo", &["bench", "--locked", "-p", "haft-runtime", "--bench", "events"])?;
    run("cargo", &["bench", "--locked", "-p", "haft-models", "--bench", "encode"])?;
    run("cargo", &["bench", "--locked", "-p", "haft-tools", "--bench", "openapi"])
}
