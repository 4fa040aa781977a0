//! Reads a whole text file in bounded time and memory, for any kind of file at the path.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat, stat};
use rustix::io::Errno;

use super::kind::{NotRegular, require_regular};
use super::path::{self, PathFault};
use super::protocol::FileError;

/// The maximum size of a file that `read` and `edit` accept, in bytes.
pub const READ_FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The number of bytes that are searched for a NUL byte first. Nearly every binary file has a NUL byte in this part,
/// and then the rest is not read.
const SNIFF_BYTES: u64 = 8 * 1024;

/// The handling of a symbolic link at the end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymlinkHandling {
    Follow,
    Refuse,
}

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error("{0}")]
    Path(PathFault),
    #[error("{0}")]
    NotRegular(NotRegular),
    #[error("the file has {}more than the {bytes_max} allowed; use bash with head, tail or sed -n to read a part", size(*.bytes))]
    TooLarge { bytes: Option<u64>, bytes_max: u64 },
    #[error("the file is binary (NUL byte at {position}); use bash with file, strings or xxd")]
    Binary { position: usize },
    #[error("the file is not UTF-8 but starts like UTF-16; use bash with iconv -f UTF-16")]
    Utf16,
    #[error("the file is not UTF-8 (invalid byte at {position}); use bash with file, iconv or xxd")]
    NotUtf8 { position: usize },
    #[error("{0}")]
    Io(io::Error),
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!("{bytes} bytes, "))
}

/// Loads the file at a requested path, for `read` and `edit`.
pub(super) fn load_requested(path: &str) -> Result<String, LoadError> {
    path::check(path)
        .map_err(LoadError::Path)
        .and_then(|()| load(Path::new(path), READ_FILE_BYTES_MAX, SymlinkHandling::Follow))
}

pub(super) fn load(path: &Path, bytes_max: u64, links: SymlinkHandling) -> Result<String, LoadError> {
    text(load_bytes(path, bytes_max, links)?)
}

/// Reads the file like [`load`], but does not require UTF-8.
pub(super) fn load_bytes(path: &Path, bytes_max: u64, links: SymlinkHandling) -> Result<Vec<u8>, LoadError> {
    read_bounded(&open(path, links)?, bytes_max)
}

/// Opens a regular file. Checks the path before the open, because opening a device can have effects, and checks the
/// open file again, because another process may have replaced the file in between.
pub(super) fn open(path: &Path, links: SymlinkHandling) -> Result<File, LoadError> {
    require_regular(&stat(path)?)?;
    // `NONBLOCK` prevents a hang: a FIFO may have replaced the file since the check, and opening a FIFO blocks.
    let mut flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    flags.set(OFlags::NOFOLLOW, links == SymlinkHandling::Refuse);
    let file = openat(CWD, path, flags, Mode::empty())?;
    require_regular(&fstat(&file)?)?;
    Ok(File::from(file))
}

/// Reads a file of at most `bytes_max` bytes. Counts the bytes during the read instead of trusting the file size: files
/// in `/proc` report the size 0, and a file can grow.
fn read_bounded(file: &File, bytes_max: u64) -> Result<Vec<u8>, LoadError> {
    let size = file.metadata()?.len();
    if size > bytes_max {
        return Err(LoadError::TooLarge { bytes: Some(size), bytes_max });
    }
    let mut bytes = Vec::new();
    file.take(SNIFF_BYTES.min(bytes_max)).read_to_end(&mut bytes)?;
    refuse_binary(&bytes)?;
    file.take(bytes_max + 1 - bytes.len() as u64).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(LoadError::TooLarge { bytes: None, bytes_max });
    }
    Ok(bytes)
}

fn text(bytes: Vec<u8>) -> Result<String, LoadError> {
    refuse_binary(&bytes)?;
    String::from_utf8(bytes)
        .map_err(|error| LoadError::NotUtf8 { position: error.utf8_error().valid_up_to() })
}

fn refuse_binary(bytes: &[u8]) -> Result<(), LoadError> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        return Err(LoadError::Utf16);
    }
    match bytes.iter().position(|&byte| byte == 0) {
        Some(position) => Err(LoadError::Binary { position }),
        None => Ok(()),
    }
}

impl LoadError {
    pub(super) fn file_error(&self, path: &str) -> FileError {
        let message = format!("Error reading {}: {self}", path::shown(path));
        if self.is_refusal() { FileError::denied(message) } else { FileError::failed(message) }
    }

    /// Returns true if the file was read but holds no text.
    pub(super) fn is_not_text(&self) -> bool {
        match self {
            LoadError::Binary { .. } | LoadError::NotUtf8 { .. } => true,
            LoadError::Path(_)
            | LoadError::NotRegular(_)
            | LoadError::TooLarge { .. }
            | LoadError::Utf16
            | LoadError::Io(_) => false,
        }
    }

    fn is_refusal(&self) -> bool {
        match self {
            LoadError::Io(error) => error.kind() == io::ErrorKind::PermissionDenied,
            LoadError::Path(_)
            | LoadError::NotRegular(_)
            | LoadError::TooLarge { .. }
            | LoadError::Binary { .. }
            | LoadError::Utf16
            | LoadError::NotUtf8 { .. } => false,
        }
    }
}

impl From<NotRegular> for LoadError {
    fn from(fault: NotRegular) -> Self {
        LoadError::NotRegular(fault)
    }
}

impl From<Errno> for LoadError {
    fn from(errno: Errno) -> Self {
        LoadError::Io(errno.into())
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        LoadError::Io(error)
    }
}
