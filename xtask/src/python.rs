//! The Python packages that tests use, in an environment beside the build products.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{run, tools_directory};

/// Every package with its version.
const PACKAGES: &str = "crates/haft-model-server/tests/sdk/requirements.txt";

/// The Debian package that makes environments, where Python comes without it.
pub(crate) const DEBIAN_PACKAGE: &str = "python3-venv";

/// Makes the environment anew unless it has exactly the packages that are listed.
pub(crate) fn install() -> Result<(), String> {
    let directory = directory();
    let wanted = fs::read_to_string(PACKAGES).map_err(|error| format!("{PACKAGES}: {error}"))?;
    if fs::read_to_string(stamp(&directory)).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let python = directory.join("bin/python3").to_string_lossy().into_owned();
    run("python3", &["-m", "venv", "--clear", &directory.to_string_lossy()])?;
    run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PACKAGES])?;
    fs::write(stamp(&directory), wanted).map_err(|error| format!("{}: {error}", stamp(&directory).display()))
}

/// Whether environments can be made.
pub(crate) fn can_install() -> bool {
    Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .output()
        .is_ok_and(|ran| ran.status.success())
}

/// Where the tests look for it.
fn directory() -> PathBuf {
    tools_directory().join("python")
}

/// Written last, so that an installation that was interrupted does not count.
fn stamp(directory: &Path) -> PathBuf {
    directory.join("installed.txt")
}
