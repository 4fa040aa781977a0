//! Runs a program as a step and prints its duration.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Runs a program. Fails if the program fails.
pub(crate) fn run(program: &str, words: &[&str]) -> Result<(), String> {
    run_with(program, words, &[])
}

pub(crate) fn run_with(program: &str, words: &[&str], variables: &[(&str, &str)]) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(words).envs(variables.iter().copied());
    finish(command, &format!("{program} {}", words.join(" ")))
}

/// Runs a program in the given directory.
pub(crate) fn run_in(directory: &Path, program: &str, words: &[&str]) -> Result<(), String> {
    let mut command = Command::new(program);
    command.args(words).current_dir(directory);
    finish(command, &format!("{program} {}", words.join(" ")))
}

fn finish(mut command: Command, line: &str) -> Result<(), String> {
    println!("==> {line}");
    let began = Instant::now();
    let status = command.status();
    println!("    {:.1} s", began.elapsed().as_secs_f32());
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{line}` failed: {status}")),
        Err(error) => Err(format!("xtask could not start `{line}`: {error}")),
    }
}

/// Returns true if a program is in PATH.
pub(crate) fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|place| place.join(program).is_file())
}

/// Returns the path of a tool of cargo: from PATH, or installed in this version next to the build products.
pub(crate) fn cargo_tool(name: &str, version: &str, options: &[&str]) -> Result<PathBuf, String> {
    if exists(name) {
        return Ok(PathBuf::from(name));
    }
    let root = tools_directory();
    let program = root.join("bin").join(name);
    if !program.is_file() {
        let root = root.to_string_lossy().into_owned();
        // Install a debug build: compiling it takes a third of the time, and the tool still checks a few hundred
        // packages in a second.
        let words = ["install", name, "--version", version, "--locked", "--debug", "--root", &root];
        run("cargo", &[&words, options].concat())?;
    }
    Ok(program)
}

/// Returns the directory for tools that the machine's package manager does not provide, next to the build products.
pub(crate) fn tools_directory() -> PathBuf {
    target_directory().join("tools")
}

/// Returns cargo's target directory.
pub(crate) fn target_directory() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}
