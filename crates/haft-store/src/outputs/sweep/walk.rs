//! Visits the files of a store in the order of their names, starting at any position.

use std::fs;
use std::path::{Path, PathBuf};

use haft_core::output_store::Handle;
use serde::{Deserialize, Serialize};

/// A position of a walk: a file, or the end of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WalkPosition {
    File { directory: String, name: String },
    End { directory: String },
}

/// The positions of a store that are not visited yet. The walk holds the names of all sessions, and the file names of
/// one session.
#[derive(Debug)]
pub(super) struct StoreWalk {
    root: PathBuf,
    directories: std::vec::IntoIter<String>,
    current: Option<(String, std::vec::IntoIter<String>)>,
}

impl StoreWalk {
    /// Starts after a position, or at the beginning. The walk is ordered by name, because the order of a directory
    /// listing changes when files are added or removed.
    pub(super) fn after(root: &Path, position: Option<&WalkPosition>) -> Self {
        let prefix = Handle::directory("");
        let mut directories = names(root);
        directories.retain(|name| name.starts_with(&prefix));
        let mut current = None;
        match position {
            None => {}
            Some(WalkPosition::End { directory }) => directories.retain(|name| name > directory),
            Some(WalkPosition::File { directory, name: last }) => {
                directories.retain(|name| name > directory);
                let mut files = names(&root.join(directory));
                files.retain(|name| name > last);
                current = Some((directory.clone(), files.into_iter()));
            }
        }
        Self { root: root.to_owned(), directories: directories.into_iter(), current }
    }
}

impl Iterator for StoreWalk {
    type Item = WalkPosition;

    fn next(&mut self) -> Option<WalkPosition> {
        if self.current.is_none() {
            let directory = self.directories.next()?;
            let files = names(&self.root.join(&directory)).into_iter();
            self.current = Some((directory, files));
        }
        let (directory, files) = self.current.as_mut()?;
        if let Some(name) = files.next() {
            return Some(WalkPosition::File { directory: directory.clone(), name });
        }
        let (directory, _) = self.current.take()?;
        Some(WalkPosition::End { directory })
    }
}

/// Lists the names in a directory, sorted. Skips names with characters other than letters and digits, which the store
/// never creates.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_walk_resumes_from_any_position() {
        let dir = tempfile::tempdir().unwrap();
        for (session, files) in [("session-b", 3), ("session-a", 2), ("session-c", 0), ("other", 1)] {
            fs::create_dir(dir.path().join(session)).unwrap();
            for file in 0..files {
                fs::write(dir.path().join(session).join(file.to_string()), "").unwrap();
            }
        }
        let whole: Vec<WalkPosition> = StoreWalk::after(dir.path(), None).collect();
        assert_eq!(whole.len(), 2 + 3 + 3, "{whole:?}");
        for (at, position) in whole.iter().enumerate() {
            let rest: Vec<WalkPosition> = StoreWalk::after(dir.path(), Some(position)).collect();
            assert_eq!(rest, whole[at + 1..], "after {position:?}");
        }
    }
}
