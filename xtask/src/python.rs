//! Installs the Python packages that tests use, in environments next to the build products.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{run, tools_directory};

/// Every environment, with the file that lists its packages and their versions.
const ENVIRONMENTS: [(&str, &str); 2] = [
    ("python", "crates/haft-model-server/tests/sdk/requirements.txt"),
    ("python-api", "crates/haft-tools/tests/it/requirements.txt"),
];

/// The environment of the benchmark that compares `haft serve` with `LiteLLM`.
const LITELLM: (&str, &str) = ("python-litellm", "crates/haft-cli/benches/serve/requirements.txt");

/// The Debian package that provides `venv`, for systems whose Python lacks it.
pub(crate) const DEBIAN_PACKAGE: &str = "python3-venv";

pub(crate) fn install() -> Result<(), String> {
    ENVIRONMENTS.iter().try_for_each(|(name, packages)| environment(name, packages))
}

/// Installs `LiteLLM`. The tests do not need it, and it is large.
pub(crate) fn install_litellm() -> Result<(), String> {
    environment(LITELLM.0, LITELLM.1)
}

/// Recreates an environment unless it has exactly the listed packages.
fn environment(name: &str, packages: &str) -> Result<(), String> {
    let directory = tools_directory().join(name);
    let wanted = fs::read_to_string(packages).map_err(|error| format!("{packages}: {error}"))?;
    if fs::read_to_string(stamp(&directory)).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    let python = directory.join("bin/python3").to_string_lossy().into_owned();
    run("python3", &["-m", "venv", "--clear", &directory.to_string_lossy()])?;
    run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", packages])?;
    fs::write(stamp(&directory), wanted).map_err(|error| format!("{}: {error}", stamp(&directory).display()))
}

/// Returns true if Python can create environments.
pub(crate) fn can_install() -> bool {
    Command::new("python3")
        .args(["-c", "import ensurepip, venv"])
        .output()
        .is_ok_and(|ran| ran.status.success())
}

/// Returns the path of the stamp file. It is written last, so that an interrupted installation is repeated.
fn stamp(directory: &Path) -> PathBuf {
    directory.join("installed.txt")
}
