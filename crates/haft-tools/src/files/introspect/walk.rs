//! Collects the files that may be shown, level by level, so that a limit cuts off the deepest ones first.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};

use super::excluded::is_excluded;
use super::ignored::{IgnoreRules, is_ignored, rules_above, rules_inside};
use super::omitted::{OmissionReason, OmittedEntry};

/// The maximum number of directory entries that a walk keeps. A directory that would exceed the limit is left out
/// completely: the kernel lists entries in no fixed order, so a part of the list would be random.
const ENTRIES_MAX: usize = 20_000;
/// The maximum number of directory entries that a walk reads, including the entries of directories that were too large
/// to keep.
const ENTRIES_SCANNED_MAX: usize = 10 * ENTRIES_MAX;
const DEPTH_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct IntrospectTree {
    pub(super) directories: Vec<Directory>,
    pub(super) left_out: Vec<OmittedEntry>,
}

/// A directory with its path from the root and the sorted names of its files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) files: Vec<OsString>,
}

impl Directory {
    pub(super) fn file_paths(&self) -> impl Iterator<Item = PathBuf> {
        self.files.iter().map(|name| self.path.join(name))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Directory,
}

pub(super) fn walk(root: &Path) -> IntrospectTree {
    walk_within(root, WalkLimit { entries: ENTRIES_MAX, scans: ENTRIES_SCANNED_MAX })
}

fn walk_within(root: &Path, budget: WalkLimit) -> IntrospectTree {
    let mut walk = IntrospectWalk { root, budget, pending: VecDeque::new(), tree: IntrospectTree::default() };
    match rules_above(root) {
        Ok(rules) => walk.pending.push_back(PendingDirectory { path: PathBuf::new(), depth: 0, rules }),
        Err(_) => walk.leave_out(PathBuf::new(), OmissionReason::RulesUnusable),
    }
    while let Some(pending) = walk.pending.pop_front() {
        walk.visit(pending);
    }
    walk.tree
}

/// The number of entries that the walk may still keep, and the number that it may still read.
#[derive(Debug, Clone, Copy)]
struct WalkLimit {
    entries: usize,
    scans: usize,
}

struct IntrospectWalk<'a> {
    root: &'a Path,
    budget: WalkLimit,
    pending: VecDeque<PendingDirectory>,
    tree: IntrospectTree,
}

struct PendingDirectory {
    path: PathBuf,
    depth: usize,
    rules: IgnoreRules,
}

impl IntrospectWalk<'_> {
    fn visit(&mut self, pending: PendingDirectory) {
        let path = pending.path.clone();
        if let Err(reason) = self.list(pending) {
            self.leave_out(path, reason);
        }
    }

    fn list(
        &mut self,
        PendingDirectory { path, depth, rules }: PendingDirectory,
    ) -> Result<(), OmissionReason> {
        if depth > DEPTH_MAX {
            return Err(OmissionReason::TooDeep);
        }
        let absolute = self.root.join(&path);
        let rules = rules_inside(&absolute, rules).map_err(|_| OmissionReason::RulesUnusable)?;
        let mut entries = self.budget.entries_of(&absolute)?;
        entries.retain(|(name, kind)| {
            !is_excluded(name, *kind) && !is_ignored(&rules, &absolute.join(name), *kind)
        });
        let (files, directories) = entries.into_iter().partition(|(_, kind)| *kind == EntryKind::File);
        self.pending.extend(names(directories).map(|name| PendingDirectory {
            path: path.join(name),
            depth: depth + 1,
            rules: rules.clone(),
        }));
        self.tree.directories.push(Directory { path, files: names(files).collect() });
        Ok(())
    }

    fn leave_out(&mut self, path: PathBuf, reason: OmissionReason) {
        self.tree.left_out.push(OmittedEntry { path, reason });
    }
}

type NamedEntry = (OsString, EntryKind);

fn names(entries: Vec<NamedEntry>) -> impl Iterator<Item = OsString> {
    entries.into_iter().map(|(name, _)| name)
}

impl WalkLimit {
    /// Returns the files and directories in a directory, sorted by name.
    fn entries_of(&mut self, directory: &Path) -> Result<Vec<NamedEntry>, OmissionReason> {
        let room = self.entries.min(self.scans);
        let found: Vec<DirEntry> = fs::read_dir(directory)
            .and_then(|entries| entries.take(room + 1).collect())
            .map_err(|_| OmissionReason::Unreadable)?;
        self.scans -= found.len().min(self.scans);
        if found.len() > room {
            return Err(OmissionReason::TooManyEntries);
        }
        self.entries -= found.len();
        let mut entries: Vec<NamedEntry> = found.iter().filter_map(entry).collect();
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(entries)
    }
}

/// Returns the name and kind of an entry. Skips links, which the walk does not follow, and special files, which have no
/// text to show.
fn entry(found: &DirEntry) -> Option<NamedEntry> {
    let kind = found.file_type().ok()?;
    if kind.is_dir() {
        Some((found.file_name(), EntryKind::Directory))
    } else if kind.is_file() {
        Some((found.file_name(), EntryKind::File))
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
