//! Checks that a file is a regular file, and names the other file types in messages.

use std::fmt;

use rustix::fs::{FileType, Stat};

/// A file type that the file tools neither read nor replace, because opening or reading such a file could block, never
/// end, or have side effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl fmt::Display for NotRegular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the path is {}, not a regular file", self.0)
    }
}
