//! Checks that a file is a regular file, and names the other file types in messages.

use rustix::fs::{FileType, Stat};

/// A file type that the file tools neither read nor replace, because opening or reading such a file could block, never
/// end, or have side effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the path is {0}, not a regular file")]
pub(super) struct NotRegular(&'static str);

pub(super) fn require_regular(stat: &Stat) -> Result<(), NotRegular> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(NotRegular("a directory")),
        FileType::Symlink => Err(NotRegular("a symbolic link")),
        FileType::Fifo => Err(NotRegular("a FIFO")),
        FileType::Socket => Err(NotRegular("a socket")),
        FileType::CharacterDevice | FileType::BlockDevice => Err(NotRegular("a device")),
        FileType::Unknown => Err(NotRegular("of an unknown kind")),
    }
}
