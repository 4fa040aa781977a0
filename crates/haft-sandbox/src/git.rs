//! Finds the parts of the workspace's git directory that must stay read-only.
//!
//! A git hook, or a filter named in the git configuration, would run outside the sandbox at the user's next git
//! command.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::git_parts::GitParts;
use crate::path::{is_within, resolve};
use crate::plan::PlanError;
use crate::workspace_scan::WorkspaceScan;

/// The paths to make read-only, and the paths that must not be renamed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GitPaths {
    /// Directories that are mounted onto themselves and stay writable. The mount prevents a rename, because a mount
    /// point cannot be renamed.
    pub(crate) pinned: Vec<PathBuf>,
    pub(crate) frozen: Vec<PathBuf>,
    /// The number of repositories that haft does not protect.
    pub(crate) left_out: usize,
}

/// The names in a git directory that determine which code git runs. Each has a placeholder that is created if the name
/// is missing, because only an existing path can be made read-only. The placeholders do not change git's behaviour: git
/// creates the first two in every repository, reads the third only if the second enables it, and uses the content of
/// the last as its default.
pub(crate) const GIT_NAMES: [(&str, Placeholder); 4] = [
    ("hooks", Placeholder::Directory),
    ("config", Placeholder::File("")),
    ("config.worktree", Placeholder::File("")),
    ("commondir", Placeholder::File(".\n")),
];

/// The names in the git directory of a linked worktree that determine which code git runs. git reads everything else
/// from the directory in the `commondir` file.
const WORKTREE_NAMES: [(&str, Placeholder); 2] =
    [("commondir", Placeholder::File("../..\n")), ("config.worktree", Placeholder::File(""))];

/// The file or directory to create in place of a missing name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Placeholder {
    Directory,
    File(&'static str),
}

/// Inspects `.git` in the workspace and in the other granted directories.
pub(crate) fn root_git_paths(roots: &[PathBuf], writable_roots: &[PathBuf]) -> Result<GitPaths, PlanError> {
    let mut all = GitPaths::default();
    for root in roots {
        all.add(git_paths(root, writable_roots)?);
    }
    Ok(all)
}

/// Inspects `.git` at the root of a directory. An empty `.git` directory is not a repository yet and is ignored.
fn git_paths(workspace: &Path, writable_roots: &[PathBuf]) -> Result<GitPaths, PlanError> {
    let dot_git = workspace.join(".git");
    let mut paths = GitPaths::default();
    let git_dir = match fs::symlink_metadata(&dot_git) {
        Err(_) => return Ok(paths),
        Ok(meta) if meta.is_symlink() => {
            return Err(PlanError::DotGitSymlink { target: resolve(&dot_git), path: dot_git });
        }
        Ok(meta) if meta.is_dir() => dot_git,
        Ok(_) => {
            let Some(target) = pointer(&dot_git, "gitdir: ") else { return Ok(paths) };
            paths.frozen.push(dot_git);
            resolve(&workspace.join(target))
        }
    };
    let common_dir = pointer(&git_dir.join("commondir"), "").map(|target| resolve(&git_dir.join(target)));
    let mut directories: Vec<PathBuf> = [Some(git_dir), common_dir].into_iter().flatten().collect();
    directories.dedup();
    for directory in directories {
        let writable = writable_roots.iter().any(|root| is_within(&directory, root));
        if writable && !is_empty(&directory) {
            paths.add(freeze(&directory, &GIT_NAMES)?);
            paths.add(freeze_parts(&directory));
        }
    }
    Ok(paths)
}

/// Makes the configuration of linked worktrees and submodules in a git directory read-only. If haft cannot protect a
/// worktree or submodule, it only counts it in `left_out`. If this were an error, a command could create such a
/// directory and make every later call fail.
fn freeze_parts(git_dir: &Path) -> GitPaths {
    let parts = GitParts::of(git_dir);
    let worktrees = parts.worktrees.iter().map(|directory| freeze(directory, &WORKTREE_NAMES));
    let modules = parts.modules.iter().map(|directory| freeze(directory, &GIT_NAMES));
    let mut paths = GitPaths { left_out: usize::from(parts.is_cut), ..GitPaths::default() };
    for frozen in worktrees.chain(modules) {
        match frozen {
            Ok(frozen) if frozen.is_utf8() => paths.add(frozen),
            Ok(_) | Err(_) => paths.left_out += 1,
        }
    }
    paths
}

/// The maximum number of nested repositories in the granted directories that haft protects.
pub(crate) const REPOSITORIES_MAX: usize = 64;

/// Inspects the repositories below the workspace and the other granted directories. A repository that cannot be
/// protected, for example behind a symlink or below a name that is not UTF-8, is left out: if it were an error, a
/// command could make every later call fail.
pub(crate) fn nested_git_paths(roots: &[PathBuf], writable_roots: &[PathBuf]) -> GitPaths {
    let scan = WorkspaceScan::of(roots);
    let is_root = |directory: &Path| roots.iter().any(|root| root == directory);
    let nested: Vec<&Path> = scan.repositories().filter(|directory| !is_root(directory)).collect();
    let found: Vec<GitPaths> = nested
        .iter()
        .filter_map(|directory| git_paths(directory, writable_roots).ok())
        .filter(GitPaths::is_utf8)
        .take(REPOSITORIES_MAX)
        .collect();
    let of_parts: usize = found.iter().map(|paths| paths.left_out).sum();
    let left_out = nested.len() - found.len() + of_parts;
    // Remove duplicates, because submodules and worktrees may share directories.
    let unique = |paths: fn(&GitPaths) -> &[PathBuf]| {
        found.iter().flat_map(paths).cloned().collect::<BTreeSet<PathBuf>>().into_iter().collect()
    };
    GitPaths { pinned: unique(|paths| &paths.pinned), frozen: unique(|paths| &paths.frozen), left_out }
}

impl GitPaths {
    fn add(&mut self, other: Self) {
        self.pinned.extend(other.pinned);
        self.frozen.extend(other.frozen);
        self.left_out += other.left_out;
    }

    /// Returns true if all paths are UTF-8. The plan is JSON, so it cannot contain other paths.
    fn is_utf8(&self) -> bool {
        self.pinned.iter().chain(&self.frozen).all(|path| path.to_str().is_some())
    }
}

fn freeze(git_dir: &Path, names: &[(&str, Placeholder)]) -> Result<GitPaths, PlanError> {
    let directory = open_without_links(git_dir).map_err(|error| unprotected(git_dir, &error))?;
    let mut paths = GitPaths { pinned: vec![git_dir.to_path_buf()], ..GitPaths::default() };
    for (name, placeholder) in names {
        let path = git_dir.join(name);
        make(directory.as_fd(), name, *placeholder).map_err(|error| unprotected(&path, &error))?;
        let kind = statat(&directory, *name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        if kind.is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::Symlink) {
            return Err(PlanError::GitSymlink { path });
        }
        paths.frozen.push(path);
    }
    Ok(paths)
}

fn unprotected(path: &Path, error: &io::Error) -> PlanError {
    match Errno::from_io_error(error) {
        Some(Errno::LOOP | Errno::NOTDIR) => PlanError::GitSymlink { path: path.to_path_buf() },
        _ => PlanError::GitUnprotected { path: path.to_path_buf(), reason: error.to_string() },
    }
}

/// Opens a directory by its real path, one component after the other, and fails on a symlink. A command that runs at
/// the same time may replace a directory by a link. haft itself is not confined, so it would write outside the
/// workspace through the link.
fn open_without_links(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | PASS_THROUGH;
    let names = path.components().filter(|component| matches!(component, Component::Normal(_)));
    let mut directory = openat(CWD, "/", flags, Mode::empty())?;
    for name in names {
        directory = openat(&directory, name.as_os_str(), flags, Mode::empty())?;
    }
    Ok(directory)
}

/// The flags to open a directory only for traversal. On Linux such an open needs no permission to list the directory.
#[cfg(target_os = "linux")]
const PASS_THROUGH: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS_THROUGH: OFlags = OFlags::RDONLY;

/// Creates the placeholder in the open directory, unless an entry with its name exists.
fn make(directory: BorrowedFd<'_>, name: &str, placeholder: Placeholder) -> io::Result<()> {
    let made = match placeholder {
        Placeholder::Directory => mkdirat(directory, name, Mode::from_raw_mode(0o777)),
        Placeholder::File(content) => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(directory, name, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => return File::from(file).write_all(content.as_bytes()),
                Err(errno) => Err(errno),
            }
        }
    };
    match made {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).map_or(true, |mut entries| entries.next().is_none())
}

/// The maximum size of a pointer file, in bytes. It equals git's own limit: if haft's limit were lower, git could use a
/// repository that haft does not find and protect.
const POINTER_BYTES_MAX: u64 = 1 << 20;

/// Reads the path in a small pointer file, such as the `.git` file of a worktree. Like git, removes only line ends from
/// the end, because a path may end with a space.
fn pointer(file: &Path, prefix: &str) -> Option<PathBuf> {
    let meta = fs::symlink_metadata(file).ok()?;
    if !meta.is_file() || meta.len() > POINTER_BYTES_MAX {
        return None;
    }
    let text = fs::read(file).ok()?;
    let path = text.strip_prefix(prefix.as_bytes())?;
    let end = path.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'))?;
    Some(PathBuf::from(OsStr::from_bytes(&path[..=end])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for (name, content) in files {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), content).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn git_config_hooks_and_commondir_are_read_only() {
        let (_dir, ws) = place(&[(".git/HEAD", "ref: x"), (".git/config", "kept")]);
        let paths = git_paths(&ws, std::slice::from_ref(&ws)).unwrap();
        assert_eq!(paths.pinned, [ws.join(".git")]);
        assert_eq!(paths.frozen, GIT_NAMES.map(|(name, _)| ws.join(".git").join(name)));
        assert!(ws.join(".git/hooks").is_dir(), "a missing directory is created, so that it can be frozen");
        assert_eq!(fs::read_to_string(ws.join(".git/config")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(ws.join(".git/commondir")).unwrap(), ".\n");
        assert_eq!(
            git_paths(&ws, std::slice::from_ref(&ws)).unwrap(),
            paths,
            "a second inspection returns the same paths"
        );
    }

    #[test]
    fn repository_without_head_is_still_protected() {
        let (_dir, ws) = place(&[(".git/config", "")]);
        assert!(!git_paths(&ws, std::slice::from_ref(&ws)).unwrap().frozen.is_empty());
    }

    #[test]
    fn directory_without_a_repository_has_no_git_paths() {
        let (_dir, ws) = place(&[("file", ""), ("sub/.git/HEAD", "")]);
        assert_eq!(git_paths(&ws, std::slice::from_ref(&ws)).unwrap(), GitPaths::default());
        fs::create_dir(ws.join(".git")).unwrap();
        assert_eq!(git_paths(&ws, std::slice::from_ref(&ws)).unwrap(), GitPaths::default());
    }

    #[test]
    fn nested_repositories_are_protected_and_broken_ones_are_skipped() {
        let (_dir, ws) = place(&[("a/b/.git/HEAD", "x"), ("c/.git/HEAD", "x"), ("evil/config", "x")]);
        fs::create_dir(ws.join("d")).unwrap();
        std::os::unix::fs::symlink(ws.join("evil"), ws.join("d/.git")).unwrap();
        let paths = nested_git_paths(std::slice::from_ref(&ws), std::slice::from_ref(&ws));
        assert_eq!(paths.pinned, [ws.join("a/b/.git"), ws.join("c/.git")]);
        assert_eq!(paths.frozen.len(), 2 * GIT_NAMES.len());
        assert_eq!(paths.left_out, 1);
    }

    #[test]
    fn repository_below_a_non_utf8_name_does_not_block_commands() {
        let (_dir, ws) = place(&[("a/.git/HEAD", "x")]);
        let odd = ws.join(OsStr::from_bytes(b"odd\xff"));
        fs::create_dir_all(odd.join(".git")).unwrap();
        fs::write(odd.join(".git/HEAD"), "x").unwrap();
        let paths = nested_git_paths(std::slice::from_ref(&ws), std::slice::from_ref(&ws));
        assert_eq!((paths.pinned, paths.left_out), (vec![ws.join("a/.git")], 1));
    }

    #[test]
    fn number_of_unprotected_repositories_is_counted() {
        let (_dir, ws) = place(&[]);
        for number in 0..REPOSITORIES_MAX + 3 {
            fs::create_dir_all(ws.join(format!("r{number}/.git"))).unwrap();
            fs::write(ws.join(format!("r{number}/.git/HEAD")), "x").unwrap();
        }
        let paths = nested_git_paths(std::slice::from_ref(&ws), std::slice::from_ref(&ws));
        assert_eq!((paths.pinned.len(), paths.left_out), (REPOSITORIES_MAX, 3));
    }

    #[test]
    fn gitdir_pointer_is_followed_and_made_read_only() {
        let (_dir, root) = place(&[
            ("ws/.git", "gitdir: ../main/.git/worktrees/ws\n"),
            ("main/.git/HEAD", "x"),
            ("main/.git/config", ""),
            ("main/.git/worktrees/ws/HEAD", "x"),
            ("main/.git/worktrees/ws/commondir", "../..\n"),
        ]);
        let paths = git_paths(&root.join("ws"), std::slice::from_ref(&root)).unwrap();
        assert!(paths.frozen.contains(&root.join("ws/.git")));
        assert!(paths.frozen.contains(&root.join("main/.git/hooks")));
        assert!(paths.frozen.contains(&root.join("main/.git/worktrees/ws/commondir")));
        let outside = git_paths(&root.join("ws"), &[root.join("ws")]).unwrap();
        assert_eq!(outside.frozen, [root.join("ws/.git")], "paths outside the writable roots are not frozen");
    }

    /// git accepts pointer files in these forms. If haft did not parse them in the same way, the repository would be
    /// unprotected.
    #[test]
    fn gitdir_pointer_is_parsed_like_git_does() {
        let padded = format!("gitdir: ../main{}", "\n".repeat(5000));
        for (content, target) in [(padded.as_str(), "main"), ("gitdir: ../end \r\n", "end ")] {
            let (_dir, root) = place(&[("ws/.git", content), ("main/HEAD", ""), ("end /HEAD", "")]);
            let paths = git_paths(&root.join("ws"), std::slice::from_ref(&root)).unwrap();
            assert!(paths.frozen.contains(&root.join("ws/.git")), "{target}");
            assert_eq!(paths.pinned, [root.join(target)]);
        }
    }

    /// Another process replaces the directory between the check of `.git` and the creation of the placeholders.
    #[test]
    fn git_protection_creates_no_file_through_a_link() {
        let (_dir, root) = place(&[("ws/file", ""), ("outside/file", "")]);
        std::os::unix::fs::symlink(root.join("outside"), root.join("ws/.git")).unwrap();
        let refused = freeze(&root.join("ws/.git"), &GIT_NAMES);
        assert!(matches!(refused, Err(PlanError::GitSymlink { .. })), "{refused:?}");
        std::os::unix::fs::symlink(root.join("ws"), root.join("link")).unwrap();
        assert!(freeze(&root.join("link"), &GIT_NAMES).is_err());
        assert_eq!(fs::read_dir(root.join("outside")).unwrap().count(), 1);
    }

    #[test]
    fn worktrees_and_submodules_are_made_read_only_and_broken_ones_counted() {
        let (_dir, ws) = place(&[
            (".git/HEAD", "x"),
            (".git/worktrees/w/commondir", "../.."),
            (".git/modules/m/HEAD", "x"),
            (".git/worktrees/odd/HEAD", "x"),
        ]);
        std::os::unix::fs::symlink("../w/commondir", ws.join(".git/worktrees/odd/commondir")).unwrap();
        let paths = git_paths(&ws, std::slice::from_ref(&ws)).unwrap();
        for name in
            ["worktrees/w/commondir", "worktrees/w/config.worktree", "modules/m/config", "modules/m/hooks"]
        {
            assert!(paths.frozen.contains(&ws.join(".git").join(name)), "{name}: {paths:?}");
        }
        assert!(paths.pinned.contains(&ws.join(".git/worktrees/w")));
        assert_eq!(paths.left_out, 1);
    }

    #[test]
    fn symlink_inside_git_directory_is_refused() {
        let (_dir, ws) = place(&[(".git/HEAD", "x"), (".git/config", ""), ("evil/x", "")]);
        std::os::unix::fs::symlink(ws.join("evil"), ws.join(".git/hooks")).unwrap();
        assert!(matches!(git_paths(&ws, std::slice::from_ref(&ws)), Err(PlanError::GitSymlink { .. })));
    }
}
