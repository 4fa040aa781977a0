//! A temporary directory for the tests of the file tools, with regular files, FIFOs, sockets and links.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use tempfile::TempDir;

pub(super) struct FileFixture(TempDir);

impl FileFixture {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.place(name).to_str().unwrap().to_owned()
    }

    pub(super) fn place(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        fs::create_dir_all(self.place(name).parent().unwrap()).unwrap();
        fs::write(self.place(name), content).unwrap();
        self.path(name)
    }

    pub(super) fn directory(&self, name: &str) -> String {
        fs::create_dir_all(self.place(name)).unwrap();
        self.path(name)
    }

    pub(super) fn fifo(&self, name: &str) -> String {
        mkfifoat(CWD, self.place(name), Mode::from_raw_mode(0o600)).unwrap();
        self.path(name)
    }

    pub(super) fn socket(&self, name: &str) -> String {
        drop(UnixListener::bind(self.place(name)).unwrap());
        self.path(name)
    }

    pub(super) fn link(&self, name: &str, target: &str) -> String {
        symlink(target, self.place(name)).unwrap();
        self.path(name)
    }

    pub(super) fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.place(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    pub(super) fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.place(name)).unwrap().permissions().mode() & 0o7777
    }

    pub(super) fn content(&self, name: &str) -> String {
        fs::read_to_string(self.place(name)).unwrap()
    }

    /// Returns the names in a directory, to find files that should have been removed.
    pub(super) fn names(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.place(directory)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Runs a test in a thread without capabilities, so that permission bits apply to root too, as they do in the worker.
pub(super) fn without_capabilities<T: Send>(test: impl FnOnce() -> T + Send) -> T {
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
