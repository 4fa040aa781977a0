//! Finds the directories inside a git directory that control other directories: linked worktrees and submodules.
//!
//! `worktrees/NAME/commondir` contains the path of the configuration that git uses in a linked worktree, which may be
//! anywhere. A submodule has its own git directory below `modules`, and git uses any git directory that it finds there.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

/// The maximum number of worktrees, and of submodules, that haft looks for in one git directory.
const PARTS_MAX: usize = 64;

/// The maximum number of directories below `modules` that are entered. Submodule names may have several components.
const DIRECTORIES_MAX: usize = 1000;

/// The linked worktrees and submodules of one git directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GitParts {
    pub(crate) worktrees: Vec<PathBuf>,
    pub(crate) modules: Vec<PathBuf>,
    /// True if there are more parts than the limits allow.
    pub(crate) is_cut: bool,
}

impl GitParts {
    /// Inspects a git directory. Treats `modules` as a submodule if it is a link, because git follows the link.
    pub(crate) fn of(git_dir: &Path) -> Self {
        let mut found = Self { worktrees: directories_in(&git_dir.join("worktrees")), ..Self::default() };
        found.is_cut = found.worktrees.len() > PARTS_MAX;
        found.worktrees.truncate(PARTS_MAX);
        let mut waiting = VecDeque::from([git_dir.join("modules")]);
        let mut entered = 0;
        while let Some(directory) = waiting.pop_front() {
            entered += 1;
            if entered > DIRECTORIES_MAX || found.modules.len() >= PARTS_MAX {
                found.is_cut = true;
                break;
            }
            let is_git_dir = fs::symlink_metadata(directory.join("HEAD")).is_ok();
            if is_git_dir || directory.is_symlink() {
                found.modules.push(directory.clone());
            }
            let below = if is_git_dir { directory.join("modules") } else { directory };
            waiting.extend(directories_in(&below));
        }
        found
    }
}

/// Lists the subdirectories of a directory, without links, sorted by name.
fn directories_in(directory: &Path) -> Vec<PathBuf> {
    if directory.is_symlink() {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut found: Vec<PathBuf> = directories.map(|entry| entry.path()).take(DIRECTORIES_MAX).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worktrees_and_submodules_are_found_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        let file = |name: &str| {
            fs::create_dir_all(git.join(name).parent().unwrap()).unwrap();
            fs::write(git.join(name), "x").unwrap();
        };
        assert_eq!(GitParts::of(&git), GitParts::default());
        for name in
            ["worktrees/w/commondir", "modules/a/HEAD", "modules/b/c/HEAD", "modules/a/modules/d/HEAD"]
        {
            file(name);
        }
        file("modules/a/objects/e/HEAD");
        std::os::unix::fs::symlink(git.join("modules/a"), git.join("modules/link")).unwrap();
        let named = |names: &[&str]| names.iter().map(|name| git.join(name)).collect::<Vec<_>>();
        let modules = named(&["modules/a", "modules/a/modules/d", "modules/b/c"]);
        let mut found = GitParts::of(&git);
        found.modules.sort();
        assert_eq!(found, GitParts { worktrees: named(&["worktrees/w"]), modules, is_cut: false });

        (0..=PARTS_MAX).for_each(|number| file(&format!("modules/m{number}/HEAD")));
        assert!(GitParts::of(&git).is_cut);
        fs::rename(git.join("modules"), git.join("other")).unwrap();
        std::os::unix::fs::symlink(git.join("other"), git.join("modules")).unwrap();
        assert_eq!(GitParts::of(&git).modules, [git.join("modules")]);
    }
}
