//! A fingerprint: a number that changes when the directories behind a plan are replaced.
//!
//! The mounts and Landlock rules of a confined worker refer to files, not to paths. If another file is now at one of
//! the paths, a new sandbox with the same paths would differ from the sandbox of the worker.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::path::is_within;

/// Computes the fingerprint from the writable directories, and from the directory entries next to the hidden paths.
pub(crate) fn fingerprint(writable: &[PathBuf], hidden: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for directory in writable {
        fs::metadata(directory).map_or((0, 0), |about| (about.dev(), about.ino())).hash(&mut hasher);
    }
    let is_covered = |path: &Path| hidden.iter().any(|hidden| is_within(path, hidden));
    let is_writable = |path: &Path| writable.iter().any(|root| is_within(path, root));
    let parents: BTreeSet<&Path> = hidden.iter().flat_map(|path| path.ancestors().skip(1)).collect();
    for directory in parents.into_iter().filter(|path| !is_covered(path) && !is_writable(path)) {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let visible = entries.filter(|entry| !is_covered(&entry.path()));
        let mut files: Vec<(u64, PathBuf)> = visible.map(|entry| (entry.ino(), entry.path())).collect();
        files.sort();
        files.hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_directory_or_new_sibling_changes_the_fingerprint() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["ws", "user/.ssh"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        let now = || fingerprint(&[path("ws")], &[path("user/.ssh")]);
        let first = now();
        fs::write(path("ws/file"), "").unwrap();
        fs::write(path("user/.ssh/key"), "").unwrap();
        assert_eq!(now(), first, "changes in the workspace or in a secret keep the fingerprint");
        fs::write(path("user/note"), "").unwrap();
        assert_ne!(now(), first);
        // Use no hidden paths in this test, because the entries next to them change together with the directory.
        let of_workspace = || fingerprint(&[path("ws")], &[]);
        let before = of_workspace();
        fs::rename(path("ws"), path("old")).unwrap();
        fs::create_dir(path("ws")).unwrap();
        assert_ne!(of_workspace(), before);
    }
}
