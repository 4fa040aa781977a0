//! Licences, sources and bans of dependencies, by cargo-deny.

use std::path::PathBuf;

use crate::step::{exists, run, tools_directory};

/// The version the configuration is written for.
const VERSION: &str = "0.20.2";

/// Runs cargo-deny, installing it beside the build products when it is not there. Advisories are left out: their
/// database is fetched from a place that a build machine need not reach.
pub(crate) fn deny() -> Result<(), String> {
    let program = if exists("cargo-deny") { PathBuf::from("cargo-deny") } else { installed()? };
    run(&program.to_string_lossy(), &["--locked", "check", "licenses", "bans", "sources"])
}

fn installed() -> Result<PathBuf, String> {
    let root = tools_directory();
    let program = root.join("bin/cargo-deny");
    if !program.is_file() {
        let root = root.to_string_lossy().into_owned();
        // A debug build is a third of the wait, and checks a few hundred packages in a second all the same.
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
