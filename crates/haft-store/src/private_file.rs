//! Files that only their owner reads, replaced in one step.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

/// Writes a temporary file beside `path`, syncs it and renames it over `path`, so that a reader never sees half a file.
/// The directory is synced too: otherwise a power cut could undo the rename.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(directory)?.sync_all()
}

/// Like [`replace`], with a time of change, and without waiting for the disk. After a power cut the file may be damaged, so
/// its readers must be able to do without it.
pub(crate) fn replace_unsynced(path: &Path, bytes: &[u8], changed: SystemTime) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(bytes)?;
    file.as_file().set_modified(changed)?;
    file.persist(path)?;
    Ok(())
}
