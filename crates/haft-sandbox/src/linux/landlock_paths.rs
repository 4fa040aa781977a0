//! Computes the paths to which Landlock grants access.
//!
//! Landlock rules are a union: a narrow rule below a wide one does not remove rights. Therefore, if no mount covers a
//! protected path, no parent of this path is granted, only the other entries in each parent.

use std::path::{Path, PathBuf};

use crate::path::is_within;

/// The maximum number of entries in one directory to which Landlock grants access individually.
pub(super) const SIBLINGS_MAX: usize = 4096;

/// Returns the largest trees below `root` that contain no path in `excluded`. `list` returns the entries of a
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
    // The list may be empty or incomplete, because not every directory can be listed. Add the entries that lead to the
    // excluded paths, so that the siblings of these paths are granted too.
    let mut entries = list(root);
    entries.extend(excluded.iter().filter_map(|path| next_towards(root, path)));
    entries.sort();
    entries.dedup();
    entries.iter().flat_map(|entry| around(entry, excluded, list)).collect()
}

/// Returns the entry of `root` that contains `path`.
fn next_towards(root: &Path, path: &Path) -> Option<PathBuf> {
    let next = path.strip_prefix(root).ok()?.components().next()?;
    Some(root.join(next))
}

/// Lists the current entries of a directory. Skips symlinks, because a rule on a symlink would grant its target.
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
    fn landlock_grants_only_the_siblings_of_protected_paths() {
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
        check("/locked", &["/locked/u/.ssh", "/locked/v"], &[]);
    }

    /// A process can enter `/home` on a shared machine, but often cannot list it.
    #[test]
    fn landlock_grants_siblings_below_an_unlistable_directory() {
        let list =
            |directory: &Path| if directory == Path::new("/home") { Vec::new() } else { tree(directory) };
        let found = around(Path::new("/home"), &["/home/u/.haft".into()], &list);
        assert_eq!(found, [PathBuf::from("/home/u/project")]);
    }
}
