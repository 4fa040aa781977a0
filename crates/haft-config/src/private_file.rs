//! Files that only their owner can read, replaced atomically.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

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
