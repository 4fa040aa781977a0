//! Records the project files that the operator has reviewed. A model that can write to a workspace must not be able to
//! configure haft.
//!
//! Trust belongs to the digest of a file at a path. Links in the path of the workspace are resolved, but a link at the
//! file name itself (such as `haft.json`) is not: otherwise a model could point it at a file that is trusted elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use haft_core::home::Home;
use haft_fs::{file_lock, private_file};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of a file, in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileDigest(String);

impl FileDigest {
    pub fn of(bytes: &[u8]) -> Self {
        let mut hexadecimal = String::with_capacity(64);
        for byte in Sha256::digest(bytes) {
            // Writing to a string cannot fail.
            let _ = write!(hexadecimal, "{byte:02x}");
        }
        Self(hexadecimal)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The trust state of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileTrust {
    Trusted,
    /// The file was trusted, but its content has changed.
    Changed,
    Never,
}

/// Compares the recorded digest of a path with the digest of its current content.
pub fn decide(recorded: Option<&FileDigest>, found: &FileDigest) -> FileTrust {
    match recorded {
        Some(digest) if digest == found => FileTrust::Trusted,
        Some(_) => FileTrust::Changed,
        None => FileTrust::Never,
    }
}

/// The digests of all trusted files, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustRecord {
    pub files: BTreeMap<PathBuf, FileDigest>,
}

impl TrustRecord {
    /// Reads the record. Without a record, no file is trusted; an unreadable record is an error.
    pub fn load(home: &Home) -> io::Result<Self> {
        match fs::read(path_in(home)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Changes the record atomically: a concurrent reader sees either the old or the new record.
    pub fn change(home: &Home, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        let directory = File::open(home.data())?;
        // Closing the directory releases the lock. Without the lock, one of two concurrent writers would lose its
        // change.
        if !file_lock::try_lock(&directory)? {
            return Err(io::Error::other("another haft process is writing the file; try again"));
        }
        let mut record = Self::load(home)?;
        change(&mut record);
        private_file::replace(&path_in(home), &serde_json::to_vec_pretty(&record)?)?;
        directory.sync_all()
    }
}

/// Returns the path of the record of trusted files.
pub fn path_in(home: &Home) -> PathBuf {
    home.data().join("trust.json")
}

/// Returns the paths under which the configuration files of a project are recorded, lowest precedence first.
pub fn project_files(directory: &Path) -> io::Result<[PathBuf; 2]> {
    let directory = directory.canonicalize()?;
    Ok([directory.join(super::MCP_FILE_NAME), directory.join(super::FILE_NAME)])
}

/// Returns the path under which the `haft.json` of a project is recorded.
pub fn project_file(directory: &Path) -> io::Result<PathBuf> {
    Ok(directory.canonicalize()?.join(super::FILE_NAME))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn project_file_is_trusted_only_while_its_content_is_unchanged() {
        let (one, other) = (FileDigest::of(b"{}"), FileDigest::of(b"{ }"));
        assert_eq!(decide(Some(&one), &one), FileTrust::Trusted);
        assert_eq!(decide(Some(&one), &other), FileTrust::Changed);
        assert_eq!(decide(None, &one), FileTrust::Never);
        assert_eq!(one.as_str(), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    }

    #[test]
    fn trust_record_keeps_all_entries_with_private_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        crate::home::create(&home).unwrap();
        assert_eq!(TrustRecord::load(&home).unwrap(), TrustRecord::default());
        for name in ["/a/haft.json", "/b/haft.json"] {
            TrustRecord::change(&home, |record| {
                record.files.insert(name.into(), FileDigest::of(name.as_bytes()));
            })
            .unwrap();
        }
        assert_eq!(TrustRecord::load(&home).unwrap().files.len(), 2);
        let mode = fs::metadata(path_in(&home)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(home.data()).unwrap().count(), 1);
    }

    #[test]
    fn damaged_trust_record_is_an_error_and_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        crate::home::create(&home).unwrap();
        fs::write(path_in(&home), "{\"files\": [").unwrap();
        assert!(TrustRecord::load(&home).is_err());
        assert!(TrustRecord::change(&home, |record| record.files.clear()).is_err());
        assert_eq!(fs::read_to_string(path_in(&home)).unwrap(), "{\"files\": [");
    }

    #[test]
    fn concurrent_trust_change_fails_and_asks_to_try_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        crate::home::create(&home).unwrap();
        TrustRecord::change(&home, |_| {
            let error = TrustRecord::change(&home, |_| {}).unwrap_err();
            assert!(error.to_string().contains("try again"), "{error}");
        })
        .unwrap();
    }
}
