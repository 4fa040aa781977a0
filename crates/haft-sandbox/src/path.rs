//! Resolves paths and checks containment. Paths are compared by component, never by string prefix.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Follows symlinks in the existing part of the path, and appends the rest after removing `.` and `..`.
///
/// A file that does not exist yet is judged by the real location of its nearest existing parent, so a new file below a
/// symlinked parent cannot pass a check by its name. The result is used for readable refusals; the kernel enforces the
/// boundary.
pub(crate) fn resolve(path: &Path) -> PathBuf {
    let lexical = normalise(path);
    let mut missing: Vec<OsString> = Vec::new();
    let mut existing = lexical.as_path();
    loop {
        if let Ok(real) = existing.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
        let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
            return lexical;
        };
        // `canonicalize` fails on a dangling symlink, but a write through such a link would create the target of the
        // link.
        if let Ok(target) = existing.read_link()
            && missing.len() < LINKS_FOLLOWED_MAX
        {
            let base = resolve_shallow(parent).join(target);
            return missing.iter().rev().fold(resolve_shallow(&base), |path, name| path.join(name));
        }
        missing.push(name.to_owned());
        existing = parent;
    }
}

/// Resolves many paths like [`resolve`]. Looks up each distinct name only once, because most paths in the list of
/// secrets share their directories and do not exist.
pub(crate) fn resolve_all(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let mut known = HashMap::new();
    paths.into_iter().map(|path| resolve_known(&normalise(&path), &mut known).path).collect()
}

/// A resolved path, and whether a file or directory exists at it.
#[derive(Clone)]
struct ResolvedPath {
    path: PathBuf,
    exists: bool,
}

fn resolve_known(path: &Path, known: &mut HashMap<PathBuf, ResolvedPath>) -> ResolvedPath {
    if let Some(found) = known.get(path) {
        return found.clone();
    }
    let found = match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = resolve_known(parent, known);
            let inside = parent.path.join(name);
            if parent.exists { look_at(inside) } else { ResolvedPath { path: inside, exists: false } }
        }
        (_, None) | (None, _) => ResolvedPath { path: path.to_path_buf(), exists: true },
    };
    known.insert(path.to_path_buf(), found.clone());
    found
}

/// Looks up a name in a directory whose path is already resolved.
fn look_at(path: PathBuf) -> ResolvedPath {
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_symlink() => ResolvedPath { path, exists: true },
        Err(error) if error.kind() == io::ErrorKind::NotFound => ResolvedPath { path, exists: false },
        Ok(_) | Err(_) => ResolvedPath { exists: path.exists(), path: resolve(&path) },
    }
}

/// The maximum number of missing names that are appended to the target of a dangling link.
const LINKS_FOLLOWED_MAX: usize = 40;

fn resolve_shallow(path: &Path) -> PathBuf {
    let path = normalise(path);
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(real), _, _) => real,
        (Err(_), Some(parent), Some(name)) => {
            parent.canonicalize().unwrap_or_else(|_| parent.to_path_buf()).join(name)
        }
        (Err(_), _, _) => path,
    }
}

/// Removes `.` and `..` without accessing the file system.
pub(crate) fn normalise(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(component),
        }
    }
    out
}

/// Returns true if `path` is `root` or is below it. Compares the paths as they are written.
pub(crate) fn is_within(path: &Path, root: &Path) -> bool {
    path.starts_with(root)
}

/// Lists the directories strictly between `root` and `path`, top down.
pub(crate) fn between(root: &Path, path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = path
        .ancestors()
        .skip(1)
        .take_while(|ancestor| *ancestor != root && ancestor.starts_with(root))
        .map(Path::to_path_buf)
        .collect();
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalise_removes_dot_components() {
        let check =
            |written: &str, expected: &str| assert_eq!(normalise(Path::new(written)), Path::new(expected));
        check("/tmp/../etc/passwd", "/etc/passwd");
        check("/a/./b//c", "/a/b/c");
        check("/../..", "/");
    }

    #[test]
    fn name_prefix_is_not_a_parent_directory() {
        assert!(!is_within(Path::new("/binaries/x"), Path::new("/bin")));
        assert!(is_within(Path::new("/bin/x"), Path::new("/bin")));
        assert!(is_within(Path::new("/bin"), Path::new("/bin")));
    }

    #[test]
    fn new_file_below_a_symlinked_parent_resolves_to_the_target() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("target")).unwrap();
        std::os::unix::fs::symlink(real.join("target"), real.join("link")).unwrap();
        assert_eq!(resolve(&real.join("link/new/file")), real.join("target/new/file"));
    }

    #[test]
    fn dangling_symlink_resolves_to_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc/not-there-yet", real.join("link")).unwrap();
        assert_eq!(resolve(&real.join("link")), Path::new("/etc/not-there-yet"));
    }

    #[test]
    fn resolving_paths_together_or_one_by_one_gives_equal_results() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(real.join("home/.config/tool")).unwrap();
        std::fs::create_dir_all(real.join("elsewhere/keys")).unwrap();
        std::fs::write(real.join("home/.config/tool/token"), "t").unwrap();
        std::os::unix::fs::symlink(real.join("elsewhere"), real.join("home/link")).unwrap();
        std::os::unix::fs::symlink("not-there", real.join("home/dangling")).unwrap();
        std::os::unix::fs::symlink("../elsewhere/keys", real.join("home/.keys")).unwrap();
        let names = [
            "home/.config/tool/token",
            "home/.config/other/token",
            "home/.config/tool/token/below-a-file",
            "home/missing/a/b",
            "home/link/keys/new",
            "home/link/new/new",
            "home/dangling",
            "home/dangling/x",
            "home/.keys",
            "home/./.config/../.keys/id",
        ];
        let paths: Vec<PathBuf> = names.iter().map(|name| real.join(name)).collect();
        let each: Vec<PathBuf> = paths.iter().map(|path| resolve(path)).collect();
        assert_eq!(resolve_all(paths), each);
    }

    #[test]
    fn between_returns_the_directories_strictly_between_two_paths() {
        let check = |root: &str, path: &str, expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(between(Path::new(root), Path::new(path)), expected);
        };
        check("/tmp", "/tmp/a/b/c", &["/tmp/a", "/tmp/a/b"]);
        check("/tmp", "/tmp/a", &[]);
        check("/", "/usr/bin", &["/usr"]);
        check("/tmp", "/etc/a", &[]);
    }
}
