//! The real `claude` command that tests ask, from the registry of npm, beside the build products.

use std::fs;

use crate::step::{run, tools_directory};

/// The package with its version.
const PACKAGE: &str = "crates/haft-cli/tests/claude_code/package.json";

/// Installs anew unless exactly what is listed is there. Its own script puts the program for this machine in place.
pub(crate) fn install() -> Result<(), String> {
    let directory = tools_directory().join("claude");
    let wanted = fs::read_to_string(PACKAGE).map_err(|error| format!("{PACKAGE}: {error}"))?;
    // Written last, so that an installation that was interrupted does not count.
    let stamp = directory.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).map_err(failed)?;
    fs::write(directory.join("package.json"), &wanted).map_err(failed)?;
    let place = directory.to_string_lossy().into_owned();
    run("npm", &["install", "--silent", "--no-fund", "--no-audit", "--prefix", &place])?;
    fs::write(stamp, wanted).map_err(failed)
}
