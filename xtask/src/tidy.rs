//! Runs project checks for which no other tool exists.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{library_texts, markdown, named_tests};

/// Checks every file in the project, and reports all findings at once.
pub(crate) fn tidy() -> Result<(), String> {
    println!("==> tidy");
    let mut slips = Vec::new();
    let files = files(Path::new("."));
    for file in &files {
        check_name(file, &mut slips);
        if let Ok(text) = fs::read_to_string(file) {
            check_text(file, &text, &mut slips);
            library_texts::check(file, &text, &mut slips);
            markdown::check(file, &text, &mut slips);
        }
    }
    named_tests::check(&files, &mut slips);
    check_crates(&mut slips);
    check_arrows(&mut slips);
    if slips.is_empty() { Ok(()) } else { Err(format!("not tidy:\n  {}", slips.join("\n  "))) }
}

/// Rejects shell scripts, because such tasks belong in xtask. Also rejects file names that are too vague to keep
/// unrelated code out of the file.
fn check_name(file: &Path, slips: &mut Vec<String>) {
    let name = file.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let is_rust = file.extension().is_some_and(|extension| extension == "rs");
    if file.extension().is_some_and(|extension| extension == "sh") {
        slips.push(format!("{}: shell scripts are not allowed; write an xtask instead", file.display()));
    }
    if is_rust && ["utils", "util", "common", "helpers", "helper", "types", "misc"].contains(&name) {
        slips.push(format!(
            "{}: the file name is too vague; name the file after its one concept",
            file.display()
        ));
    }
}

fn check_text(file: &Path, text: &str, slips: &mut Vec<String>) {
    let is_rust = file.extension().is_some_and(|extension| extension == "rs");
    let in_tests =
        file.components().any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs");
    if is_rust && !in_tests && !text.trim_start().starts_with("//!") {
        slips.push(format!("{}: the file must begin with a `//!` comment", file.display()));
    }
    for (at, line) in text.lines().enumerate() {
        // Split the strings, so that this file does not match itself.
        let foreign = [concat!("/ho", "me/runner"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];
        let path =
            foreign.iter().find(|path| line.contains(**path) && !line.contains(concat!("/Us", "ers/u")));
        if let Some(path) = path {
            slips.push(format!(
                "{}:{}: the line contains a machine-specific path: {path}",
                file.display(),
                at + 1
            ));
        }
        if line.ends_with(' ') || line.contains('\t') && is_rust {
            slips.push(format!("{}:{}: the line contains a trailing space or a tab", file.display(), at + 1));
        }
    }
}

/// Checks that every crate has a description and uses the lints of the workspace. haft-sandbox has its own lints,
/// because it is the only crate that may use `unsafe`.
fn check_crates(slips: &mut Vec<String>) {
    let Ok(crates) = fs::read_dir("crates") else {
        return slips
            .push("xtask cannot find the directory `crates`; run xtask in the root of the project".into());
    };
    for entry in crates.flatten() {
        let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap_or_default();
        let name = entry.file_name().to_string_lossy().into_owned();
        let own_lints = name == "haft-sandbox" && manifest.contains("unsafe_code = \"deny\"");
        if !own_lints && !manifest.contains("[lints]\nworkspace = true") {
            slips.push(format!("crates/{name}: the manifest must contain `[lints]` with `workspace = true`"));
        }
        if !manifest.contains("description = ") {
            slips.push(format!("crates/{name}: the manifest has no `description`"));
        }
    }
}

/// The crates on which each crate may depend, except dev-dependencies. `haft-config`, `haft-store`, `haft-engine`,
/// `haft-models` and `haft-tools` do not depend on each other: `haft-runtime` combines them.
const ARROWS: [(&str, &[&str]); 14] = [
    ("haft-core", &[]),
    ("haft-fs", &[]),
    ("haft-sandbox", &["haft-core"]),
    ("haft-config", &["haft-core", "haft-fs"]),
    ("haft-store", &["haft-core", "haft-fs"]),
    ("haft-engine", &["haft-core"]),
    ("haft-models", &["haft-core"]),
    ("haft-tools", &["haft-core", "haft-fs", "haft-sandbox"]),
    ("haft-model-server", &["haft-core"]),
    ("haft-testkit", &["haft-core", "haft-tools"]),
    (
        "haft-runtime",
        &[
            "haft-config",
            "haft-core",
            "haft-engine",
            "haft-fs",
            "haft-model-server",
            "haft-models",
            "haft-sandbox",
            "haft-store",
            "haft-tools",
        ],
    ),
    ("haft-server", &["haft-config", "haft-core", "haft-engine", "haft-runtime", "haft-store", "haft-tools"]),
    (
        "haft",
        &[
            "haft-config",
            "haft-core",
            "haft-engine",
            "haft-models",
            "haft-runtime",
            "haft-sandbox",
            "haft-store",
            "haft-tools",
        ],
    ),
    (
        "haft-cli",
        &[
            "haft-config",
            "haft-core",
            "haft-engine",
            "haft-fs",
            "haft-models",
            "haft-runtime",
            "haft-sandbox",
            "haft-server",
            "haft-store",
            "haft-tools",
        ],
    ),
];

fn check_arrows(slips: &mut Vec<String>) {
    let Ok(crates) = fs::read_dir("crates") else { return };
    for entry in crates.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap_or_default();
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            slips.push(format!("crates/{name}: the crate is missing from `ARROWS` in xtask/src/tidy.rs"));
            continue;
        };
        for dependency in dependencies(&manifest).filter(|dependency| !allowed.contains(dependency)) {
            slips.push(format!("crates/{name}: the crate must not depend on {dependency}"));
        }
    }
}

/// Returns the haft crates in the `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let names =
        lines.take_while(|line| !line.starts_with('[')).filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("haft"))
}

pub(crate) fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_symlink() || [".git", "target"].contains(&name) {
            continue;
        }
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}
