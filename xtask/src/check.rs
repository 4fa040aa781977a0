//! The checks that run cargo: formatting, lints, tests and benchmarks.

use crate::step::{run, run_with};
use crate::{install, python};

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
    run("cargo", &["test", "--workspace", "--locked", "--no-fail-fast"])
}

/// Tests races between a confined command and another program that replaces protected files, with 10,000 renames each.
pub(crate) fn races() -> Result<(), String> {
    let words = ["test", "--locked", "-p", "haft-cli", "--test", "it", "escape::renames"];
    run_with("cargo", &words, &[("HAFT_TEST_RENAMES", "10000")])
}

/// The file that lists the escape tests which fail at the level `landlock`, or which cannot run there.
const LANDLOCK_EXCEPTIONS: &str = "crates/haft-cli/tests/it/escape/landlock.txt";

/// Runs the escape tests at the sandbox level `landlock`. All tests must pass, except those on the list. The listed
/// tests must still fail, so that the list contains no test that passes.
pub(crate) fn landlock() -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{LANDLOCK_EXCEPTIONS}: {error}");
    let list = std::fs::read_to_string(LANDLOCK_EXCEPTIONS).map_err(wrong)?;
    let exceptions: Vec<&str> = list.lines().filter(|line| line.starts_with("escape::")).collect();
    let at_landlock = [("HAFT_TEST_SANDBOX_LEVEL", "landlock")];
    let test = ["test", "--locked", "-p", "haft-cli", "--test", "it", "--", "--exact"];
    for exception in &exceptions {
        // Skip this test: it waits for the end of a command that does not end at this level.
        if exception.ends_with("replacing_the_repository_ends_the_command") {
            continue;
        }
        let words = [&test[..], &[exception]].concat();
        if run_with("cargo", &words, &at_landlock).is_ok() {
            return Err(format!(
                "the test `{exception}` passes at the level landlock; remove it from {LANDLOCK_EXCEPTIONS}"
            ));
        }
    }
    let skipped = exceptions.iter().flat_map(|exception| ["--skip", exception]);
    let mut words = vec!["test", "--locked", "-p", "haft-cli", "--test", "it", "--", "escape::"];
    words.extend(skipped);
    run_with("cargo", &words, &at_landlock)
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

/// Loads `haft serve` with wrk, and compares it with `LiteLLM`.
pub(crate) fn long_bench() -> Result<(), String> {
    install::packages(&[("wrk", "wrk")])?;
    python::install_litellm()?;
    run("cargo", &["bench", "--locked", "-p", "haft-cli", "--bench", "serve", "--", "wrk", "litellm"])
}
