//! Applies the ignore rules of git: the `.gitignore` files from the directory of a path up to the repository root, the
//! nearest first.
//!
//! The `ignore` crate interprets the rules. Its walker is not used, because it opens every `.gitignore` it finds, and
//! would block forever on a FIFO or on a link to `/dev/zero`.

use std::io;
use std::path::Path;
use std::rc::Rc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::walk::EntryKind;
use crate::files::text_file::{LoadError, SymlinkHandling, load_bytes};

/// The maximum size of a `.gitignore` file, in bytes. Real files are smaller, and every rule needs a matcher.
const RULES_BYTES_MAX: u64 = 128 * 1024;

/// The ignore rules that apply in a directory; `None` if no rule applies so far.
pub(super) type IgnoreRules = Option<Rc<DirectoryIgnoreRules>>;

#[derive(Debug)]
pub(super) struct DirectoryIgnoreRules {
    own: Gitignore,
    outer: IgnoreRules,
}

/// Ignore rules exist, but haft cannot read them, so it shows no file below this directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnusableRules;

/// Returns the rules that `root` inherits from the directories above it, up to the top of its git repository.
pub(super) fn rules_above(root: &Path) -> Result<IgnoreRules, UnusableRules> {
    let Some(top) = root.ancestors().find(|directory| directory.join(".git").exists()) else {
        return Ok(None);
    };
    let mut between: Vec<&Path> =
        root.ancestors().skip(1).take_while(|above| above.starts_with(top)).collect();
    between.reverse();
    between.into_iter().try_fold(None, |outer, directory| rules_inside(directory, outer))
}

/// Returns the rules inside a directory: first the rules of the directory itself, then the inherited rules.
pub(super) fn rules_inside(directory: &Path, outer: IgnoreRules) -> Result<IgnoreRules, UnusableRules> {
    let outer = with_rules_of(directory, ".git/info/exclude", outer)?;
    with_rules_of(directory, ".gitignore", outer)
}

pub(super) fn is_ignored(rules: &IgnoreRules, path: &Path, kind: EntryKind) -> bool {
    let mut rules = rules.as_ref();
    while let Some(of_directory) = rules {
        match of_directory.own.matched(path, kind == EntryKind::Directory) {
            Match::Ignore(_) => return true,
            Match::Whitelist(_) => return false,
            Match::None => rules = of_directory.outer.as_ref(),
        }
    }
    false
}

fn with_rules_of(directory: &Path, file: &str, outer: IgnoreRules) -> Result<IgnoreRules, UnusableRules> {
    match load_bytes(&directory.join(file), RULES_BYTES_MAX, SymlinkHandling::Follow) {
        Ok(bytes) => {
            let own = parse(directory, &String::from_utf8_lossy(&bytes))?;
            Ok(Some(Rc::new(DirectoryIgnoreRules { own, outer })))
        }
        Err(LoadError::Io(error)) if is_absent(&error) => Ok(outer),
        Err(_) => Err(UnusableRules),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Parses rules. Skips lines that are not valid patterns, as git does.
fn parse(directory: &Path, text: &str) -> Result<Gitignore, UnusableRules> {
    let mut builder = GitignoreBuilder::new(directory);
    for line in text.trim_start_matches('\u{feff}').lines() {
        let _ = builder.add_line(None, line);
    }
    builder.build().map_err(|_| UnusableRules)
}
