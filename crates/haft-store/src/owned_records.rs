//! Reads the records of one owner from a directory that all subjects of a tenant share.

use std::io;
use std::path::{Path, PathBuf};

use crate::sweep;

/// The records of one owner, and the files that cannot be read, which may belong to any subject of the tenant.
#[derive(Debug)]
pub(crate) struct OwnedRecords<T> {
    pub(crate) records: Vec<T>,
    pub(crate) unreadable: Vec<PathBuf>,
}

/// Reads the files `ID.json` of a directory. `read` returns `None` for a record of another subject. Returns an error
/// only if the directory cannot be listed, or for a reason that does not concern a single file.
pub(crate) fn read_owned<T>(
    directory: &Path,
    read: impl Fn(&str) -> io::Result<Option<T>>,
) -> io::Result<OwnedRecords<T>> {
    let mut owned = OwnedRecords { records: Vec::new(), unreadable: Vec::new() };
    for entry in sweep::list(directory)? {
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
        match read(id) {
            Ok(record) => owned.records.extend(record),
            Err(error) if concerns_one_file(&error) => owned.unreadable.push(entry.path()),
            Err(error) => return Err(error),
        }
    }
    Ok(owned)
}

/// Returns what was read; `None` if only this file cannot be read.
pub(crate) fn unless_damaged<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if concerns_one_file(&error) => Ok(None),
        read => read.map(Some),
    }
}

/// Returns true if the error concerns only one file, so that haft can still read the others. `InvalidData` and
/// `UnexpectedEof` come from the parser.
fn concerns_one_file(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, IsADirectory, PermissionDenied, UnexpectedEof};
    matches!(error.kind(), InvalidData | UnexpectedEof | PermissionDenied | IsADirectory)
}
