//! Finds repositories in the workspace and the other granted directories, and files in them that other programs run.
//!
//! The scan is limited and goes level by level, so that one deep directory cannot hide the others. The listing of a
//! directory is cached until the directory changes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::git_parts::GitParts;
use crate::path::{is_within, resolve};

/// The maximum number of directories that one scan enters.
const DIRECTORIES_MAX: usize = 4000;

/// The maximum number of entries that one scan reads in one directory.
const ENTRIES_MAX: usize = 10_000;

/// The maximum depth below the workspace that a scan reaches.
const DEPTH_MAX: usize = 10;

/// The maximum number of directories whose listings are cached.
const REMEMBERED_MAX: usize = 20_000;

/// A directory's listing is cached only if the directory last changed at least this long ago. A directory that changed
/// more recently may change again with the same timestamp.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// Files that build tools, editors, shells and other agents run or read settings from.
const RUN_FILES: [&str; 132] = [
    ".babelrc.js",
    ".bazelrc",
    ".clinerules",
    ".cursorrules",
    ".dir-locals.el",
    ".drone.yml",
    ".env",
    ".envrc",
    ".eslintrc.cjs",
    ".eslintrc.js",
    ".exrc",
    ".gdbinit",
    ".gitattributes",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".irbrc",
    ".lefthook.yml",
    ".lldbinit",
    ".lvimrc",
    ".mcp.json",
    ".mise.toml",
    ".npmrc",
    ".nvim.lua",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".prettierrc.js",
    ".pryrc",
    ".tool-versions",
    ".travis.yml",
    ".vimrc",
    ".windsurfrules",
    ".woodpecker.yml",
    ".yarnrc.yml",
    "AGENTS.md",
    "BUILD.bazel",
    "Brewfile",
    "CLAUDE.md",
    "CMakeLists.txt",
    "Cargo.toml",
    "Containerfile",
    "Dockerfile",
    "Earthfile",
    "Fastfile",
    "GEMINI.md",
    "GNUmakefile",
    "Gemfile",
    "Gruntfile.js",
    "Jenkinsfile",
    "Justfile",
    "MODULE.bazel",
    "Makefile",
    "Package.swift",
    "Podfile",
    "Procfile",
    "Rakefile",
    "SConstruct",
    "Setup.hs",
    "Snakefile",
    "Taskfile.yaml",
    "Taskfile.yml",
    "Tiltfile",
    "Vagrantfile",
    "WORKSPACE",
    "autogen.sh",
    "azure-pipelines.yml",
    "babel.config.js",
    "bitbucket-pipelines.yml",
    "build.gradle",
    "build.gradle.kts",
    "build.rs",
    "build.sbt",
    "build.xml",
    "build.zig",
    "bunfig.toml",
    "compose.yaml",
    "compose.yml",
    "configure",
    "conftest.py",
    "deno.json",
    "docker-compose.yaml",
    "docker-compose.yml",
    "dodo.py",
    "eslint.config.js",
    "eslint.config.mjs",
    "fabfile.py",
    "flake.nix",
    "go.work",
    "gradle-wrapper.properties",
    "gradle.properties",
    "gradlew",
    "gulpfile.js",
    "haft.json",
    "haft.lock",
    "hgrc",
    "jest.config.js",
    "jest.config.ts",
    "justfile",
    "lefthook.yml",
    "makefile",
    "manage.py",
    "meson.build",
    "mise.toml",
    "mix.exs",
    "mvnw",
    "next.config.js",
    "noxfile.py",
    "opencode.json",
    "package.json",
    "playwright.config.ts",
    "pnpm-workspace.yaml",
    "pom.xml",
    "postcss.config.js",
    "pyproject.toml",
    "rollup.config.js",
    "rust-toolchain",
    "rust-toolchain.toml",
    "settings.gradle",
    "settings.gradle.kts",
    "setup.cfg",
    "setup.py",
    "shell.nix",
    "sitecustomize.py",
    "svelte.config.js",
    "tailwind.config.js",
    "tasks.py",
    "tox.ini",
    "vite.config.js",
    "vite.config.ts",
    "vitest.config.ts",
    "webpack.config.js",
    "wscript",
    "xmake.lua",
];

/// The steps of a rebase in progress. `git rebase --continue` runs the steps that start with `exec`.
const REBASE_TODO: &str = ".git/rebase-merge/git-rebase-todo";

/// Directories in which every file is run or used by other programs.
const RUN_DIRECTORIES: [&str; 19] = [
    ".cargo",
    ".circleci",
    ".claude",
    ".clinerules",
    ".codex",
    ".cursor",
    ".devcontainer",
    ".gemini",
    ".githooks",
    ".github",
    ".husky",
    ".idea",
    ".kiro",
    ".mise",
    ".mvn",
    ".vscode",
    ".windsurf",
    ".yarn",
    ".zed",
];

/// The sets of entries that make git treat a directory as a repository although it is not named `.git`. With
/// `commondir`, objects, references and configuration are in another directory (`get_common_dir` in git's `setup.c`).
const BARE_REPOSITORIES: [&[&str]; 2] = [&["HEAD", "objects", "refs"], &["HEAD", "commondir"]];

/// The repositories and files that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkspaceScan {
    repositories: BTreeSet<PathBuf>,
    /// Repositories without a `.git` directory. A plain `git status` inside one uses its configuration.
    bare_repositories: BTreeSet<PathBuf>,
    run_files: BTreeMap<PathBuf, FileStamp>,
    is_incomplete: bool,
}

/// Distinguishes two versions of a file. A command can set the modification time, but not the change time (ctime).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl WorkspaceScan {
    /// Scans directories and everything below them. Entries that cannot be read are left out.
    pub fn of(roots: &[PathBuf]) -> Self {
        Self::at(roots, SystemTime::now())
    }

    fn at(roots: &[PathBuf], now: SystemTime) -> Self {
        let mut found = Self::default();
        // Skip a root inside another root, because the scan of the outer root reaches it.
        let is_below = |root: &PathBuf| roots.iter().any(|other| other != root && is_within(root, other));
        let outermost = roots.iter().filter(|root| !is_below(root)).collect::<BTreeSet<_>>();
        let mut waiting: VecDeque<(PathBuf, usize, ScanPlace)> =
            outermost.into_iter().map(|root| (root.clone(), 0, ScanPlace::Ordinary)).collect();
        let mut entered = 0;
        while let Some((directory, depth, place)) = waiting.pop_front() {
            entered += 1;
            if entered > DIRECTORIES_MAX {
                found.is_incomplete = true;
                break;
            }
            let listing = listing(&directory, place, now);
            found.add_repository(&directory, &listing);
            found.is_incomplete |= listing.is_cut || depth == DEPTH_MAX && !listing.directories.is_empty();
            for path in listing.run_files.iter().map(|name| directory.join(name)) {
                found.add_run_file(path);
            }
            if depth < DEPTH_MAX {
                let below = listing.directories.iter();
                waiting.extend(below.map(|name| (directory.join(name), depth + 1, place.below(name))));
            }
        }
        found
    }

    /// Scans only a file and the directories between the file and its root, for a tool that writes one file. The file
    /// may not exist yet. The result is empty for a file outside the roots.
    pub fn around(roots: &[PathBuf], file: &Path) -> Self {
        let file = resolve(file);
        let mut found = Self::default();
        let mut place = ScanPlace::Ordinary;
        let root = roots.iter().filter(|root| is_within(&file, root)).min();
        let mut directory = root.cloned().unwrap_or_default();
        for name in root.and_then(|root| file.strip_prefix(root).ok()).into_iter().flatten() {
            found.add_repository(&directory, &listing(&directory, place, SystemTime::now()));
            directory.push(name);
            if directory != file {
                place = place.below(name);
            } else if place.counts(name) {
                found.add_run_file(file.clone());
            }
        }
        found
    }

    fn add_repository(&mut self, directory: &Path, listing: &DirectoryListing) {
        if listing.has_dot_git && is_used_by_git(&directory.join(".git")) {
            self.repositories.insert(directory.to_path_buf());
            let parts = GitParts::of(&directory.join(".git"));
            self.bare_repositories.extend(parts.modules);
            self.is_incomplete |= parts.is_cut;
            self.add_run_file(directory.join(REBASE_TODO));
        } else if listing.is_bare_repository {
            self.bare_repositories.insert(directory.to_path_buf());
        }
    }

    fn add_run_file(&mut self, path: PathBuf) {
        self.run_files.extend(stamp(&path).map(|stamp| (path, stamp)));
    }

    /// Returns the directories that are repositories, sorted by path.
    pub fn repositories(&self) -> impl Iterator<Item = &Path> {
        self.repositories.iter().map(PathBuf::as_path)
    }

    /// Returns the repositories that an earlier scan did not find, including those without a `.git` directory.
    pub fn new_repositories(&self, earlier: &Self) -> Vec<PathBuf> {
        let new = self.repositories.difference(&earlier.repositories);
        let mut found: Vec<PathBuf> =
            new.chain(self.bare_repositories.difference(&earlier.bare_repositories)).cloned().collect();
        found.sort();
        found
    }

    /// Returns true if there are more directories than a scan enters. The command may then have created files in
    /// directories that were not scanned.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// Returns the files that were created or changed since an earlier scan.
    pub fn changed_run_files(&self, earlier: &Self) -> Vec<PathBuf> {
        let changed =
            self.run_files.iter().filter(|(path, stamp)| earlier.run_files.get(*path) != Some(stamp));
        changed.map(|(path, _)| path.clone()).collect()
    }
}

/// Selects which files in a directory a scan reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanPlace {
    Ordinary,
    /// All files are reported, because the directory is inside one of [`RUN_DIRECTORIES`].
    AllRun,
}

impl ScanPlace {
    fn below(self, name: &OsStr) -> Self {
        if RUN_DIRECTORIES.iter().any(|run| name == *run) { Self::AllRun } else { self }
    }

    fn counts(self, name: &OsStr) -> bool {
        self == Self::AllRun || RUN_FILES.iter().any(|run| name == *run)
    }
}

/// The entries of one directory that a scan uses.
#[derive(Debug, Default)]
struct DirectoryListing {
    has_dot_git: bool,
    is_bare_repository: bool,
    /// True if the directory has more entries than were read.
    is_cut: bool,
    directories: Vec<OsString>,
    run_files: Vec<OsString>,
}

#[derive(Debug)]
struct RememberedListing {
    stamp: FileStamp,
    listing: Arc<DirectoryListing>,
}

static REMEMBERED: LazyLock<Mutex<HashMap<PathBuf, RememberedListing>>> = LazyLock::new(Mutex::default);

fn listing(directory: &Path, place: ScanPlace, now: SystemTime) -> Arc<DirectoryListing> {
    let Some(stamp) = stamp(directory) else { return Arc::default() };
    let mut remembered = REMEMBERED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = remembered.get(directory)
        && known.stamp == stamp
    {
        return Arc::clone(&known.listing);
    }
    let listing = Arc::new(read(directory, place));
    if is_settled(stamp, now) {
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered
            .insert(directory.to_path_buf(), RememberedListing { stamp, listing: Arc::clone(&listing) });
    }
    listing
}

fn read(directory: &Path, place: ScanPlace) -> DirectoryListing {
    let mut listing = DirectoryListing::default();
    let parts: BTreeSet<&str> = BARE_REPOSITORIES.concat().into_iter().collect();
    let mut of_bare: BTreeSet<&str> = BTreeSet::new();
    let mut entries = fs::read_dir(directory).into_iter().flatten();
    for entry in entries.by_ref().take(ENTRIES_MAX).flatten() {
        let name = entry.file_name();
        of_bare.extend(parts.iter().copied().filter(|part| name == *part));
        match entry.file_type() {
            Ok(_) if name == ".git" => listing.has_dot_git = true,
            Ok(kind) if kind.is_dir() => listing.directories.push(name),
            Ok(_) if place.counts(&name) => listing.run_files.push(name),
            Ok(_) | Err(_) => {}
        }
    }
    listing.is_bare_repository =
        BARE_REPOSITORIES.iter().any(|parts| parts.iter().all(|part| of_bare.contains(part)));
    listing.is_cut = entries.next().is_some();
    listing.directories.sort();
    listing
}

/// Returns false for an empty `.git` directory, which git ignores until it has content. The cached listing of the
/// parent directory cannot tell, because adding content to `.git` does not change that listing.
fn is_used_by_git(dot_git: &Path) -> bool {
    fs::read_dir(dot_git).map_or(true, |mut entries| entries.next().is_some())
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let about = fs::symlink_metadata(path).ok()?;
    Some(FileStamp {
        inode: about.ino(),
        bytes: about.size(),
        modified: (about.mtime(), about.mtime_nsec()),
        changed: (about.ctime(), about.ctime_nsec()),
    })
}

/// Returns true if the directory last changed long enough ago for its scan to be cached. Uses the change time (ctime),
/// which a command cannot set.
fn is_settled(stamp: FileStamp, now: SystemTime) -> bool {
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(stamp.changed.0).is_ok_and(|changed| changed + SETTLED_AFTER.as_secs() < now.as_secs())
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        (dir, root)
    }

    /// Returns a time at which new directories are old enough to be cached by a scan.
    fn later() -> SystemTime {
        SystemTime::now() + Duration::from_hours(1)
    }

    fn file(path: PathBuf, content: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn repositories_and_run_files_are_found_and_compared() {
        let (_dir, root) = place();
        file(root.join("a/b/.git/HEAD"), "x");
        file(root.join("tree/.git"), "gitdir: x");
        file(root.join("Makefile"), "all:");
        let before = WorkspaceScan::of(slice::from_ref(&root));
        assert_eq!(before.repositories().collect::<Vec<_>>(), [root.join("a/b"), root.join("tree")]);
        file(root.join("new/.git/HEAD"), "x");
        file(root.join(".vscode/tasks.json"), "{}");
        file(root.join(".claude/commands/x.md"), "x");
        file(root.join("Makefile"), "all: evil");
        file(root.join("plain.txt"), "x");
        let after = WorkspaceScan::of(slice::from_ref(&root));
        assert_eq!(after.new_repositories(&before), [root.join("new")]);
        let changed = [".claude/commands/x.md", ".vscode/tasks.json", "Makefile"].map(|name| root.join(name));
        assert_eq!(after.changed_run_files(&before), changed);
    }

    #[test]
    fn cached_directory_is_scanned_again_after_a_change() {
        let (_dir, root) = place();
        file(root.join("a/.git/HEAD"), "x");
        assert_eq!(
            WorkspaceScan::at(slice::from_ref(&root), later()),
            WorkspaceScan::at(slice::from_ref(&root), later())
        );
        fs::remove_dir_all(root.join("a/.git")).unwrap();
        file(root.join("b/.git/HEAD"), "x");
        assert_eq!(
            WorkspaceScan::of(slice::from_ref(&root)).repositories().collect::<Vec<_>>(),
            [root.join("b")]
        );
    }

    /// A command can set the modification time of its files and directories.
    #[test]
    fn restored_modification_time_does_not_hide_a_change() {
        let (_dir, root) = place();
        let old = SystemTime::now() - Duration::from_hours(1);
        let age = |path: &Path| fs::File::open(path).unwrap().set_modified(old).unwrap();
        file(root.join("Makefile"), "all: good");
        fs::create_dir(root.join("sub")).unwrap();
        for path in [root.join("Makefile"), root.join("sub"), root.clone()] {
            age(&path);
        }
        let before = WorkspaceScan::at(slice::from_ref(&root), later());
        fs::write(root.join("Makefile"), "all: evil").unwrap();
        file(root.join("sub/.git/HEAD"), "x");
        for path in [root.join("Makefile"), root.join("sub"), root.clone()] {
            age(&path);
        }
        let after = WorkspaceScan::of(slice::from_ref(&root));
        assert_eq!(after.changed_run_files(&before), [root.join("Makefile")]);
        assert_eq!(after.new_repositories(&before), [root.join("sub")]);
    }

    #[test]
    fn recently_changed_directory_is_not_cached() {
        let now = SystemTime::now();
        let seconds = |time: SystemTime| {
            i64::try_from(time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()).unwrap()
        };
        let (old, new) = (seconds(now - Duration::from_hours(1)), seconds(now));
        let check = |modified: i64, changed: i64, expected: bool| {
            let stamp = FileStamp { inode: 1, bytes: 1, modified: (modified, 0), changed: (changed, 0) };
            assert_eq!(is_settled(stamp, now), expected, "{modified} {changed}");
        };
        check(old, old, true);
        check(old, new, false);
        check(new, old, true);
    }

    /// Without this rule, a command could create an empty `.git` in one call and fill it unnoticed in the next.
    #[test]
    fn filled_dot_git_directory_is_a_new_repository() {
        let (_dir, root) = place();
        fs::create_dir_all(root.join("a/.git")).unwrap();
        let before = WorkspaceScan::of(slice::from_ref(&root));
        assert_eq!(before.repositories().count(), 0);
        file(root.join("a/.git/config"), "x");
        assert_eq!(WorkspaceScan::of(slice::from_ref(&root)).new_repositories(&before), [root.join("a")]);
    }

    #[test]
    fn scan_around_a_file_finds_new_repositories_and_changed_run_files() {
        let (_dir, root) = place();
        let check = |name: &str, repositories: &[&str], run_files: &[&str]| {
            let before = WorkspaceScan::around(slice::from_ref(&root), &root.join(name));
            file(root.join(name), "x");
            let after = WorkspaceScan::around(slice::from_ref(&root), &root.join(name));
            let named = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
            assert_eq!(after.new_repositories(&before), named(repositories), "{name}");
            assert_eq!(after.changed_run_files(&before), named(run_files), "{name}");
        };
        check("sub/HEAD", &[], &[]);
        check("sub/objects/x", &[], &[]);
        check("sub/refs/x", &["sub"], &[]);
        check("sub/config", &[], &[]);
        check("a/b/.git/config", &["a/b"], &[]);
        check("a/b/.git/hooks/x", &[], &[]);
        check("a/b/.git/rebase-merge/git-rebase-todo", &[], &["a/b/.git/rebase-merge/git-rebase-todo"]);
        check("a/b/.git/modules/m/HEAD", &["a/b/.git/modules/m"], &[]);
        check("deep/er/Makefile", &[], &["deep/er/Makefile"]);
        check(".vscode/x/y.json", &[], &[".vscode/x/y.json"]);
        check("plain/x.txt", &[], &[]);
        let outside = root.parent().unwrap().join("HEAD");
        assert_eq!(WorkspaceScan::around(slice::from_ref(&root), &outside), WorkspaceScan::default());
    }

    /// git uses the configuration of such a directory as soon as a user runs git in it.
    #[test]
    fn repository_without_a_dot_git_directory_is_found() {
        let (_dir, root) = place();
        fs::create_dir(root.join("src")).unwrap();
        let before = WorkspaceScan::of(slice::from_ref(&root));
        for name in ["HEAD", "config", "objects/x", "refs/x"] {
            file(root.join("src").join(name), "x");
        }
        assert_eq!(WorkspaceScan::of(slice::from_ref(&root)).new_repositories(&before), [root.join("src")]);
        assert_eq!(WorkspaceScan::of(slice::from_ref(&root)).repositories().count(), 0);
        // git reads everything except `HEAD` from the directory that `commondir` names.
        for name in ["other/objects/x", "other/refs/x", "other/config", "split/HEAD", "split/commondir"] {
            file(root.join(name), "x");
        }
        let expected = [root.join("split"), root.join("src")];
        assert_eq!(WorkspaceScan::of(slice::from_ref(&root)).new_repositories(&before), expected);
    }

    #[test]
    fn workspace_scan_scans_every_root_once() {
        let (_dir, root) = place();
        file(root.join("ws/a/.git/HEAD"), "x");
        file(root.join("granted/b/.git/HEAD"), "x");
        file(root.join("other/c/.git/HEAD"), "x");
        let roots = ["ws", "granted", "ws/a", "ws"].map(|name| root.join(name));
        let scan = WorkspaceScan::of(&roots);
        assert_eq!(scan.repositories().collect::<Vec<_>>(), [root.join("granted/b"), root.join("ws/a")]);
        let completed = WorkspaceScan::around(&roots, &root.join("granted/b/Makefile"));
        assert_eq!(completed.repositories().collect::<Vec<_>>(), [root.join("granted/b")]);
    }

    #[test]
    fn workspace_scan_reports_when_it_is_incomplete() {
        let (_dir, root) = place();
        assert!(!WorkspaceScan::of(slice::from_ref(&root)).is_incomplete());
        fs::create_dir_all(root.join("d/".repeat(DEPTH_MAX + 1))).unwrap();
        assert!(WorkspaceScan::of(slice::from_ref(&root)).is_incomplete());
        fs::remove_dir_all(root.join("d")).unwrap();
        (0..=DIRECTORIES_MAX).for_each(|number| fs::create_dir(root.join(number.to_string())).unwrap());
        assert!(WorkspaceScan::of(slice::from_ref(&root)).is_incomplete());
    }

    #[test]
    fn workspace_scan_does_not_follow_links() {
        let (_dir, root) = place();
        file(root.join("out/sub/.git/HEAD"), "x");
        fs::create_dir(root.join("ws")).unwrap();
        std::os::unix::fs::symlink(root.join("out"), root.join("ws/link")).unwrap();
        assert_eq!(WorkspaceScan::of(&[root.join("ws")]), WorkspaceScan::default());
    }
}
