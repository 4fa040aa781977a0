//! Keeps the number of dependencies small: every crate makes each user's first build slower.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::step::{cargo_tool, run};
use crate::tidy::files;

/// The version of cargo-machete. Another version may have different findings.
const MACHETE_VERSION: &str = "0.9.2";

/// The key in the root manifest for the maximum number of crates. A comment above it gives the reason for the last
/// increase.
const LIMIT_KEY: &str = "default-crates-max";

/// Fails if `cargo build` compiles more crates than the root manifest allows.
pub(crate) fn count() -> Result<(), String> {
    println!("==> crates of the default build");
    let manifest = fs::read_to_string("Cargo.toml").map_err(|error| format!("Cargo.toml: {error}"))?;
    let limit = limit(&manifest)?;
    let words =
        ["tree", "--locked", "-p", "haft-cli", "-e", "normal,build", "--prefix", "none", "--format", "{p}"];
    let output =
        Command::new("cargo").args(words).output().map_err(|error| format!("cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let crates = distinct(&String::from_utf8_lossy(&output.stdout));
    println!("{crates} crates; the limit is {limit}");
    if crates <= limit {
        return Ok(());
    }
    Err(format!(
        "the default build has {crates} crates, and `{LIMIT_KEY}` in Cargo.toml allows {limit}; \
         use fewer dependencies, put the new dependency behind a feature, or raise the limit and write the reason above it"
    ))
}

fn limit(manifest: &str) -> Result<usize, String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix(LIMIT_KEY));
    let value = line.and_then(|rest| rest.trim_start_matches([' ', '=']).parse().ok());
    value.ok_or_else(|| format!("Cargo.toml: expected a line `{LIMIT_KEY} = NUMBER`"))
}

/// Counts the distinct packages in the output of `cargo tree`, which repeats them.
fn distinct(tree: &str) -> usize {
    let packages = tree.lines().filter(|line| !line.is_empty());
    packages.map(|line| line.trim_end_matches(" (*)")).collect::<BTreeSet<_>>().len()
}

/// Fails if a manifest contains a dependency that its crate does not use.
pub(crate) fn unused() -> Result<(), String> {
    let program = cargo_tool("cargo-machete", MACHETE_VERSION, &[])?;
    run(&program.to_string_lossy(), &["crates", "xtask"])
}

/// Fails if the root manifest lists a dependency that no member uses. cargo-machete does not check this list.
pub(crate) fn unused_in_workspace() -> Result<(), String> {
    let read = |path: &Path| fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let root = read(Path::new("Cargo.toml"))?;
    let manifests = files(Path::new(".")).into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let members = manifests.map(|path| read(&path)).collect::<Result<Vec<_>, _>>()?;
    let unused = not_inherited(&root, &members);
    if unused.is_empty() {
        return Ok(());
    }
    Err(format!(
        "no member uses these dependencies of the workspace; remove them from Cargo.toml: {}",
        unused.join(", ")
    ))
}

/// Returns the names in `[workspace.dependencies]` that no manifest inherits.
fn not_inherited<'r>(root: &'r str, members: &[String]) -> Vec<&'r str> {
    let lines = root.lines().skip_while(|line| *line != "[workspace.dependencies]").skip(1);
    let listed = lines.take_while(|line| !line.starts_with('[')).filter(|line| !line.starts_with('#'));
    let names = listed.filter_map(|line| line.split_once([' ', '.', '=']).map(|(name, _)| name));
    let inherits = |line: &str, name: &str| {
        let rest = line.strip_prefix(name).unwrap_or_default();
        rest.starts_with(".workspace") || rest.starts_with(" = {") && rest.contains("workspace = true")
    };
    names
        .filter(|name| !members.iter().flat_map(|text| text.lines()).any(|line| inherits(line, name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_that_cargo_tree_lists_twice_counts_once() {
        assert_eq!(distinct("a v1.0.0\nb v1.0.0\na v1.0.0 (*)\n\na v2.0.0\n"), 3);
    }

    #[test]
    fn workspace_dependency_that_no_member_inherits_is_found() {
        let root = "[workspace.dependencies]\n# A comment.\na = \"1\"\nb-c = { version = \"1\" }\nd = \"1\"\n\n[profile.dev]\ne = 1\n";
        let members =
            ["[dependencies]\na.workspace = true\n".to_owned(), "b-c = { workspace = true }\n".to_owned()];
        assert_eq!(not_inherited(root, &members), ["d"]);
    }

    #[test]
    fn dependency_limit_is_read_from_the_manifest() {
        assert_eq!(limit("[a]\n# Reason.\ndefault-crates-max = 320\n"), Ok(320));
        assert!(limit("[a]\n").is_err());
    }
}
