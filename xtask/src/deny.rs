//! Checks the licences, sources and bans of dependencies with cargo-deny.

use std::path::PathBuf;

use crate::step::{exists, run, tools_directory};

/// The cargo-deny version for which the configuration is written.
const VERSION: &str = "0.20.2";

/// Runs cargo-deny, and installs it next to the build products if it is missing. Skips advisories, because a build
/// machine may be unable to fetch their database.
pub(crate) fn deny() -> Result<(), String> {
    let program = if exists("cargo-deny") { PathBuf::from("cargo-deny") } else { installed()? };
    run(&program.to_string_lossy(), &["--locked", "check", "licenses", "bans", "sources"])
}

fn installed() -> Result<PathBuf, String> {
    let root = tools_directory();
    let program = root.join("bin/cargo-deny");
    if !program.is_file() {
        let root = root.to_string_lossy().into_owned();
        // A debug build takes a third of the time, and still checks a few hundred packages in a second.
        run(
            "cargo",
            &[
                "install",
                "cargo-deny",
                "--version",
                VERSION,
                "--locked",
                "--debug",
                "--no-default-features",
                "--root",
                &root,
            ],
        )?;
    }
    Ok(program)
}
