//! Installs the real `claude` command that tests call, from the npm registry, next to the build products.

use std::fs;

use crate::step::{run, tools_directory};

/// The file that lists the package and its version.
const PACKAGE: &str = "crates/haft-cli/tests/claude_code/package.json";

/// Reinstalls the package unless exactly the listed version is installed. Install scripts stay enabled, because the
/// package's script installs the program for this machine.
pub(crate) fn install() -> Result<(), String> {
    let directory = tools_directory().join("claude");
    let wanted = fs::read_to_string(PACKAGE).map_err(|error| format!("{PACKAGE}: {error}"))?;
    // The stamp is written last, so that an interrupted installation is repeated.
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
