//! Installs the JavaScript clients that the server tests use, next to the build products.

use std::fs;

use crate::step::{run, tools_directory};

/// The file that lists the npm packages and their versions.
const PACKAGES: &str = "crates/haft-server/tests/clients/package.json";

/// Reinstalls the clients unless exactly the listed versions are installed.
pub(crate) fn install() -> Result<(), String> {
    let directory = tools_directory().join("clients");
    let wanted = fs::read_to_string(PACKAGES).map_err(|error| format!("{PACKAGES}: {error}"))?;
    // The stamp is written last, so that an interrupted installation is repeated.
    let stamp = directory.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    // Remove the old directory, so that no package of an earlier list remains.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    fs::copy(PACKAGES, directory.join("package.json")).map_err(|error| format!("{PACKAGES}: {error}"))?;
    let place = directory.to_string_lossy().into_owned();
    run("npm", &["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", &place])?;
    fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))
}
