//! The `write` tool: creates or replaces a file with exactly this content.

use std::fs;
use std::path::Path;

use rustix::io::Errno;

use super::directory_entry::{OpenDirectoryEntry, follow_links};
use super::path::check_names_file;
use super::protocol::FileError;
use super::refusal::WriteError;

pub(super) fn write(path: &str, content: &str) -> Result<String, FileError> {
    place_content(path, content).map_err(|error| error.file_error(path))?;
    Ok(format!("Wrote {} bytes to {path}", content.len()))
}

fn place_content(path: &str, content: &str) -> Result<(), WriteError> {
    check_names_file(path).map_err(WriteError::Path)?;
    let target = follow_links(Path::new(path))?;
    create_parent(&target)?;
    OpenDirectoryEntry::open(&target)?.replace(content.as_bytes())
}

fn create_parent(target: &Path) -> Result<(), WriteError> {
    let Some(parent) = target.parent() else { return Ok(()) };
    fs::create_dir_all(parent)
        .map_err(|error| WriteError::Parent(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

#[cfg(test)]
mod tests;
