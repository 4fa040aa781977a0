//! Removes directory trees that the commands of a run wrote.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, DirEntry, FileType, Mode, OFlags, chmodat, fchmod, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

use crate::sweep::SweepPace;

/// Removes a file, or a directory with its content. It is not an error if there is none. After a failure, this function
/// removes the rest and then returns the first error.
///
/// A command can take away our permissions for its directories, and it can nest them so deep that their paths are too
/// long for the system and that we cannot have all of them open. So this function restores the permissions, and moves
/// each nested directory to the top before it removes it. It opens directories without following links, because a
/// server that the owner started may still run and could replace one of its directories by a link to another directory.
pub(crate) fn remove_tree(path: &Path, pace: &mut SweepPace) -> io::Result<()> {
    let metadata = match path.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(|error| named(path, &error))?,
    };
    if !metadata.is_dir() {
        return fs::remove_file(path).map_err(|error| named(path, &error));
    }
    let top = open_directory(CWD, path).map_err(|error| named(path, &error.into()))?;
    let mut removal = TreeRemoval { top, pace, removed: 0, failure: None };
    loop {
        let before = removal.removed;
        removal.empty_top();
        match fs::remove_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                if removal.removed == before {
                    return Err(named(path, &removal.failure.map_or(error, io::Error::from)));
                }
            }
            _ => return Ok(()),
        }
    }
}

struct TreeRemoval<'a> {
    top: OwnedFd,
    pace: &'a mut SweepPace,
    /// The number of entries that were removed or moved to the top.
    removed: u64,
    failure: Option<Errno>,
}

impl TreeRemoval<'_> {
    /// Makes one pass: removes the files in the top directory, and the subdirectories with their files. Moves
    /// directories inside those subdirectories to the top, for the next pass.
    fn empty_top(&mut self) {
        for entry in self.entries(Dir::read_from(&self.top)) {
            if is_directory(&self.top, &entry) {
                self.dissolve(entry.file_name());
            } else {
                self.note(unlinkat(&self.top, entry.file_name(), AtFlags::empty()));
            }
        }
    }

    fn dissolve(&mut self, name: &CStr) {
        let directory = match open_directory(&self.top, name) {
            Ok(directory) => directory,
            Err(error) => return self.note(Err(error)),
        };
        for entry in self.entries(Dir::read_from(&directory)) {
            let done = if is_directory(&directory, &entry) {
                // Open the directory first, which restores our permissions: the system refuses to move a directory that
                // we may not write.
                let top = uuid::Uuid::new_v4().to_string();
                open_directory(&directory, entry.file_name())
                    .and_then(|_| renameat(&directory, entry.file_name(), &self.top, top.as_str()))
            } else {
                unlinkat(&directory, entry.file_name(), AtFlags::empty())
            };
            self.note(done);
        }
        match unlinkat(&self.top, name, AtFlags::REMOVEDIR) {
            // Entries that appeared after the listing stay here; the next pass removes them.
            Err(Errno::NOTEMPTY) => {}
            removed => self.note(removed),
        }
    }

    fn entries(&mut self, listed: Result<Dir, Errno>) -> impl Iterator<Item = DirEntry> + use<> {
        if let Err(error) = &listed {
            self.failure.get_or_insert(*error);
        }
        let is_entry = |entry: &DirEntry| !matches!(entry.file_name().to_bytes(), b"." | b"..");
        listed.into_iter().flatten().flatten().filter(is_entry)
    }

    fn note(&mut self, done: Result<(), Errno>) {
        match done {
            Ok(()) | Err(Errno::NOENT) => self.removed += 1,
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
        self.pace.step();
    }
}

fn is_directory(parent: &OwnedFd, entry: &DirEntry) -> bool {
    let kind = match entry.file_type() {
        // Some file systems do not list the types of their entries.
        FileType::Unknown => statat(parent, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
        kind => kind,
    };
    kind == FileType::Directory
}

/// Opens a directory, and restores our permissions for it.
fn open_directory(parent: impl AsFd, name: impl Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || openat(&parent, name, flags, Mode::empty());
    let directory = match open() {
        Err(Errno::ACCESS) => {
            chmodat(&parent, name, Mode::RWXU, AtFlags::empty())?;
            open()?
        }
        directory => directory?,
    };
    // Ignore a failure: the following operation then returns an error.
    let _ = fchmod(&directory, Mode::RWXU);
    Ok(directory)
}

/// Returns true if the file does not exist. Returns false if the directory of the file cannot be read, because the file
/// may exist.
pub(crate) fn is_missing(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Adds the path to the text of an error, for the operator.
pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::mkdirat;
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

    use super::*;

    /// Runs a test in a thread without capabilities, so that permission bits apply to root too.
    pub(crate) fn without_capabilities<T: Send>(test: impl FnOnce() -> T + Send) -> T {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                set_capabilities(None, sets).unwrap();
                test()
            });
            thread.join().unwrap()
        })
    }

    /// Creates nested directories whose path is longer than the system accepts.
    pub(crate) fn nest_deeply(directory: &Path) {
        let name = "d".repeat(250);
        let mut at = openat(CWD, directory, OFlags::DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..20 {
            mkdirat(&at, name.as_str(), Mode::from_raw_mode(0o700)).unwrap();
            at = openat(&at, name.as_str(), OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
    }

    pub(crate) fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn tree_removal_handles_missing_permissions_and_long_paths() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir(tree.join("deep")).unwrap();
        nest_deeply(&tree.join("deep"));
        let outside = directory.path().join("outside");
        fs::write(&outside, "stays").unwrap();
        std::os::unix::fs::symlink(directory.path(), tree.join("a/link")).unwrap();
        for (name, mode) in [("a/b/c", 0o000), ("a/b", 0o555), ("a", 0o000), ("", 0o555)] {
            set_mode(&tree.join(name), mode);
        }
        without_capabilities(|| remove_tree(&tree, &mut SweepPace::default())).unwrap();
        assert!(!tree.exists() && outside.exists());
        remove_tree(&tree, &mut SweepPace::default()).unwrap();
        remove_tree(&outside, &mut SweepPace::default()).unwrap();
        assert!(!outside.exists());
    }

    #[test]
    fn tree_removal_continues_after_a_failure_and_returns_the_error() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        set_mode(directory.path(), 0o555);
        let failed = without_capabilities(|| remove_tree(&tree, &mut SweepPace::default())).unwrap_err();
        set_mode(directory.path(), 0o700);
        assert_eq!(failed.kind(), io::ErrorKind::PermissionDenied);
        assert!(failed.to_string().contains("tree"), "{failed}");
        assert_eq!(
            fs::read_dir(&tree).unwrap().count(),
            0,
            "the tree is empty except for the directory itself"
        );
    }
}
