//! Installs the real MCP servers that tests call, from npm and PyPI, next to the build products.

use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{run, tools_directory};

/// The file that lists the npm packages and their versions.
const NPM: &str = "crates/haft-cli/tests/mcp_servers/package.json";

/// The file that lists the Python packages and their versions.
const PYTHON: &str = "crates/haft-cli/tests/mcp_servers/requirements.txt";

/// Reinstalls the servers unless exactly the listed versions are installed.
pub(crate) fn install() -> Result<(), String> {
    let directory = tools_directory().join("mcp");
    let wanted = format!("{}{}", text(NPM)?, text(PYTHON)?);
    if fs::read_to_string(stamp(&directory)).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    // Remove the old directory, so that no package of an earlier list remains.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    fs::copy(NPM, directory.join("package.json")).map_err(|error| format!("{NPM}: {error}"))?;
    let place = directory.to_string_lossy().into_owned();
    run("npm", &["install", "--silent", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", &place])?;
    let python = directory.join("python").to_string_lossy().into_owned();
    run("python3", &["-m", "venv", "--clear", &python])?;
    let python = format!("{python}/bin/python3");
    run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", PYTHON])?;
    fs::write(stamp(&directory), wanted).map_err(|error| format!("{}: {error}", stamp(&directory).display()))
}

fn text(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

/// Returns the path of the stamp file. It is written last, so that an interrupted installation is repeated.
fn stamp(directory: &Path) -> PathBuf {
    directory.join("installed.txt")
}
