//! Immutable blobs under their digest: the agents and skills of runs. Many runs share one blob.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use haft_core::digest::Digest;
use haft_core::home::Home;

use crate::sweep;

/// The directory of all blobs.
#[derive(Debug, Clone)]
pub struct Blobs {
    root: PathBuf,
}

impl Blobs {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("blobs") }
    }

    /// Stores bytes. Storing them again only marks them as used now, so that a sweep leaves them.
    pub fn put(&self, bytes: &[u8]) -> io::Result<Digest> {
        let digest = Digest::of_bytes(bytes);
        let path = self.path(&digest);
        if let Ok(file) = File::options().append(true).open(&path) {
            file.set_modified(SystemTime::now())?;
            return Ok(digest);
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        crate::private_file::replace(&path, bytes)?;
        Ok(digest)
    }

    pub fn get(&self, digest: &Digest) -> io::Result<Vec<u8>> {
        fs::read(self.path(digest))
    }

    /// Removes blobs that no run has stored for this long.
    pub fn sweep(&self, keep: Duration, now: SystemTime) {
        sweep::remove_unchanged(sweep::entries(&self.root), keep, now);
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.root.join(digest.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_deduplicated_and_swept_by_age() {
        let directory = tempfile::tempdir().unwrap();
        let blobs = Blobs::of(&Home::at(directory.path()));
        let (one, other) = (blobs.put(b"one").unwrap(), blobs.put(b"other").unwrap());
        assert_eq!(blobs.put(b"one").unwrap(), one);
        assert_eq!(
            (blobs.get(&one).unwrap(), blobs.get(&other).unwrap()),
            (b"one".to_vec(), b"other".to_vec())
        );
        let hour = Duration::from_hours(1);
        let old = File::options().append(true).open(blobs.path(&other)).unwrap();
        old.set_modified(SystemTime::now() - 3 * hour).unwrap();
        blobs.sweep(hour, SystemTime::now());
        assert!(blobs.get(&one).is_ok() && blobs.get(&other).is_err());
    }
}
