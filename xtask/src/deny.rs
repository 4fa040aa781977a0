//! Checks the licences, sources and bans of dependencies with cargo-deny.

use crate::step::{cargo_tool, run};

/// The cargo-deny version for which the configuration is written.
const VERSION: &str = "0.20.2";

/// Runs cargo-deny. Skips advisories, because a build machine may be unable to fetch their database.
pub(crate) fn deny() -> Result<(), String> {
    run(&program()?, &["--locked", "check", "licenses", "bans", "sources"])
}

/// Returns the path of cargo-deny. Installs it next to the build products if it is missing.
pub(crate) fn program() -> Result<String, String> {
    let program = cargo_tool("cargo-deny", VERSION, &["--no-default-features"])?;
    Ok(program.to_string_lossy().into_owned())
}
