//! Runs every fuzz target for a limited time. The coverage that guides libFuzzer needs only compiler flags, not a
//! nightly compiler; with a nightly compiler, `cargo fuzz run TARGET` does the same with a sanitizer.

use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{run, run_with};

/// The time that each target runs in `cargo xtask test --long`, in seconds.
pub(crate) const SECONDS_DEFAULT: u32 = 600;

/// The memory limit of a target, in megabytes. No valid input needs more memory, so exceeding the limit is a finding.
const MEMORY_MEGABYTES_MAX: u32 = 1024;

/// The time limit for one input, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;

/// The same flags that `cargo fuzz --sanitizer none` sets.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing";

/// The target triple. If the triple is set explicitly, cargo builds build scripts and procedural macros without these
/// flags.
const MACHINE: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn fuzz(seconds: u32) -> Result<(), String> {
    let products = products();
    let place = products.to_string_lossy().into_owned();
    let words = ["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target", MACHINE];
    run_with("cargo", &words, &[("RUSTFLAGS", FLAGS), ("CARGO_TARGET_DIR", &place)])?;
    for target in targets(Path::new("."))? {
        run_target(&products, &target, seconds)?;
    }
    Ok(())
}

/// Runs one target. New inputs are written next to the build products; the corpus in the repository is only read.
fn run_target(products: &Path, target: &str, seconds: u32) -> Result<(), String> {
    let corpus = format!("fuzz/corpus/{target}");
    if !Path::new(&corpus).is_dir() {
        return Err(format!(
            "the directory {corpus} is missing; a fuzz target needs a corpus with a few inputs"
        ));
    }
    let found = products.join("found").join(target);
    fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
    let program = products.join(MACHINE).join("release").join(target);
    let words = arguments(&found.to_string_lossy(), &corpus, seconds);
    run(&program.to_string_lossy(), &words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the arguments of the fuzzer. It writes new inputs into the first directory and reads both directories, so it
/// also uses the inputs of earlier runs.
fn arguments(found: &str, corpus: &str, seconds: u32) -> Vec<String> {
    vec![
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={MEMORY_MEGABYTES_MAX}"),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        "-verbosity=0".to_owned(),
        format!("-artifact_prefix={found}-"),
        found.to_owned(),
        corpus.to_owned(),
    ]
}

fn targets(repository: &Path) -> Result<Vec<String>, String> {
    let wrong = |error: std::io::Error| format!("fuzz/fuzz_targets: {error}");
    let mut targets = Vec::new();
    for entry in fs::read_dir(repository.join("fuzz/fuzz_targets")).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        targets.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    targets.sort();
    Ok(targets)
}

fn products() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    target.join("fuzz")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parsers of untrusted input that must have a fuzz target. The parsers of model replies are not in this list.
    const READERS: [&str; 6] = ["agent", "config", "journal", "mcp", "openapi", "shell_line"];

    #[test]
    fn every_parser_of_untrusted_input_has_a_fuzz_target_and_a_corpus() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let targets = targets(&repository).unwrap();
        for reader in READERS {
            assert!(targets.iter().any(|target| target == reader), "no target for {reader}: {targets:?}");
        }
        for target in targets {
            let corpus = fs::read_dir(repository.join("fuzz/corpus").join(&target));
            assert!(corpus.is_ok_and(|mut inputs| inputs.next().is_some()), "{target}");
        }
    }

    #[test]
    fn fuzz_target_runs_ten_minutes_and_stores_inputs_outside_the_corpus() {
        let words = arguments("found/mcp", "fuzz/corpus/mcp", SECONDS_DEFAULT);
        assert_eq!(words[0], "-max_total_time=600");
        assert_eq!(words[words.len() - 2..], ["found/mcp", "fuzz/corpus/mcp"]);
    }
}
