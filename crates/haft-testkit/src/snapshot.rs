//! The state of directory trees that a sandbox must not change.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A snapshot with one line per file: kind, mode, owner, modification time, attributes, content. Access times are left
/// out, because reading is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeSnapshot {
    files: BTreeMap<PathBuf, String>,
}

impl TreeSnapshot {
    /// Takes a snapshot of these trees, including their roots.
    pub fn of(trees: &[PathBuf]) -> Self {
        let mut files = BTreeMap::new();
        for tree in trees {
            walk(tree, &mut files);
        }
        Self { files }
    }

    /// Describes the differences, one entry per file. The text is empty if there are none.
    pub fn difference(&self, later: &TreeSnapshot) -> String {
        let mut text = String::new();
        for (path, was) in &self.files {
            let is = later.files.get(path).map_or("gone", String::as_str);
            if was != is {
                let _ = writeln!(text, "{}\n  was {was}\n  is  {is}", path.display());
            }
        }
        for (path, is) in later.files.iter().filter(|(path, _)| !self.files.contains_key(*path)) {
            let _ = writeln!(text, "{}\n  new {is}", path.display());
        }
        text
    }
}

/// Sets an extended attribute.
pub fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn walk(path: &Path, files: &mut BTreeMap<PathBuf, String>) {
    let Ok(meta) = path.symlink_metadata() else { return };
    let time = (meta.mtime(), meta.mtime_nsec());
    let owner = (meta.uid(), meta.gid(), meta.nlink());
    let (attributes, content) = (attributes(path), content(path, &meta));
    files.insert(
        path.into(),
        format!("mode {:o} owner {owner:?} time {time:?} xattr {attributes:?} {content}", meta.mode()),
    );
    if meta.is_dir() {
        for entry in fs::read_dir(path).unwrap().flatten() {
            walk(&entry.path(), files);
        }
    }
}

fn content(path: &Path, meta: &fs::Metadata) -> String {
    match meta.file_type() {
        kind if kind.is_file() => format!("{:?}", String::from_utf8_lossy(&fs::read(path).unwrap())),
        kind if kind.is_symlink() => format!("-> {}", fs::read_link(path).unwrap().display()),
        _ => format!("device {:x}", meta.rdev()),
    }
}

fn attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let Ok(length) = rustix::fs::llistxattr(path, names.as_mut_slice()) else { return Vec::new() };
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    let value = |name: &str| {
        let mut value = vec![0; 4096];
        let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice()).unwrap_or(0);
        value.truncate(length);
        (name.to_owned(), value)
    };
    names.split_terminator('\0').map(value).collect()
}
