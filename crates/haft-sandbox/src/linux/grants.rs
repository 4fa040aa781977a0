//! Computes the paths that Landlock grants.
//!
//! Landlock rules are a union: a narrow rule below a wide one takes nothing away. Without a mount that covers a
//! protected path, the parents of that path are therefore never granted, only the other entries in them.

use std::path::{Path, PathBuf};

use crate::path::is_within;

/// The largest number of entries of one directory that are granted individually.
pub(super) const SIBLINGS_MAX: usize = 4096;

/// Returns the largest trees below `root` that contain no path of `excluded`. `list` returns the entries of a
/// directory.
pub(super) fn around(
    root: &Path,
    excluded: &[PathBuf],
    list: &dyn Fn(&Path) -> Vec<PathBuf>,
) -> Vec<PathBuf> {
    if excluded.iter().any(|path| is_within(root, path)) {
        return Vec::new();
    }
    if !excluded.iter().any(|path| is_within(path, root)) {
        return vec![root.to_path_buf()];
    }
    list(root).iter().flat_map(|entry| around(entry, excluded, list)).collect()
}

/// Lists the current entries of a directory. It skips symlinks, because a rule on a symlink would grant its target.
pub(super) fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(found) = std::fs::read_dir(directory) else { return Vec::new() };
    found
        .take(SIBLINGS_MAX)
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(directory: &Path) -> Vec<PathBuf> {
        let names: &[&str] = match directory.to_str().unwrap() {
            "/" => &["/etc", "/home", "/tmp"],
            "/home" => &["/home/u", "/home/v"],
            "/home/u" => &["/home/u/.haft", "/home/u/project"],
            "/home/u/.haft" => &["/home/u/.haft/data", "/home/u/.haft/skills"],
            _ => &[],
        };
        names.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn only_siblings_of_protected_paths_are_granted() {
        let check = |root: &str, excluded: &[&str], expected: &[&str]| {
            let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
            assert_eq!(around(Path::new(root), &paths(excluded), &tree), paths(expected));
        };
        check("/", &[], &["/"]);
        check(
            "/",
            &["/home/u/.haft/data"],
            &["/etc", "/home/u/.haft/skills", "/home/u/project", "/home/v", "/tmp"],
        );
        check("/home/u/project", &["/home/u/.haft/data"], &["/home/u/project"]);
        check("/home/u/.haft/data/x", &["/home/u/.haft/data"], &[]);
    }
}
