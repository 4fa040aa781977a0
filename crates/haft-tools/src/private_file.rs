//! Files that only their owner can read, replaced atomically. All such files are written here.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Replaces a file atomically: writes a temporary file beside it, syncs that and renames it. The directory is synced
/// too: otherwise a power cut could undo the rename.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_by(path, |file| file.write_all(bytes).and_then(|()| file.sync_all()))?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// As `replace`, but without the sync, for data that can be computed again: a power cut may lose it, but the caller
/// does not wait for the disk.
pub fn replace_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_by(path, |file| file.write_all(bytes))
}

fn replace_by(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let beside = path.with_extension(format!("{}-{number}.new", std::process::id()));
    // Remove a stale temporary file left by a dead process that had our pid.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = write(&mut file).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn replaced_file_has_mode_0600_and_leaves_no_temporary_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a.json");
        fs::write(&path, "an older and longer text").unwrap();
        replace(&path, b"one").unwrap();
        replace_unsynced(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(replace(&place.path().join("no/such/directory"), b"x").is_err());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
