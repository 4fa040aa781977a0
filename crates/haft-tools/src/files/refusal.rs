//! Distinguishes writes that the kernel refuses from other write errors, and describes both for the model.

use rustix::io::Errno;

use super::kind::NotRegular;
use super::path::{PathFault, shown};
use super::protocol::FileError;

/// The reason why a file was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum WriteError {
    #[error("{0}")]
    Path(PathFault),
    #[error("{0}")]
    NotRegular(NotRegular),
    #[error("the content has {bytes} bytes; the limit is {bytes_max}")]
    TooLarge { bytes: usize, bytes_max: u64 },
    #[error("{0}")]
    Parent(Errno),
    #[error("{0}")]
    Kernel(Errno),
}

impl WriteError {
    /// Returns the error for the model.
    pub(super) fn file_error(&self, path: &str) -> FileError {
        let path = shown(path);
        if let Some(reason) = self.refusal() {
            return FileError::denied(format!("Write denied: {path}: {reason}"));
        }
        match self {
            WriteError::Parent(errno) => FileError::failed(format!(
                "Failed to create the parent directory of {path}: {}",
                parent_fault(*errno)
            )),
            WriteError::Path(_)
            | WriteError::NotRegular(_)
            | WriteError::TooLarge { .. }
            | WriteError::Kernel(_) => FileError::failed(format!("Error writing {path}: {self}")),
        }
    }

    fn refusal(&self) -> Option<&'static str> {
        match self {
            WriteError::Parent(errno) | WriteError::Kernel(errno) => refusal_reason(*errno),
            WriteError::Path(_) | WriteError::NotRegular(_) | WriteError::TooLarge { .. } => None,
        }
    }
}

/// Returns the reason, if the kernel refuses the request and would refuse it again.
fn refusal_reason(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::ACCESS => Some("there is no permission to write to this path"),
        Errno::PERM => Some("the operating system does not permit this operation on this path"),
        Errno::ROFS => Some("the path is read-only"),
        Errno::XDEV => Some("writing across mount points is not permitted"),
        // haft protects a single file in a writable directory with a bind mount on the file, so a rename over it fails
        // with `BUSY`.
        Errno::BUSY => Some("the path is a mount point, which haft cannot replace"),
        _ => None,
    }
}

/// Describes an error about the parent directory. "File exists" would mislead, because the problem is that a file
/// exists where a directory is needed.
fn parent_fault(errno: Errno) -> String {
    match errno {
        Errno::EXIST | Errno::NOTDIR => "a part of the path exists and is not a directory".to_owned(),
        other => other.to_string(),
    }
}

impl From<Errno> for WriteError {
    fn from(errno: Errno) -> Self {
        WriteError::Kernel(errno)
    }
}

impl From<std::io::Error> for WriteError {
    fn from(error: std::io::Error) -> Self {
        WriteError::Kernel(Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }
}

impl From<NotRegular> for WriteError {
    fn from(fault: NotRegular) -> Self {
        WriteError::NotRegular(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(error: &WriteError, expected: &FileError) {
        assert_eq!(&error.file_error("/d/f"), expected);
    }

    #[test]
    fn permission_errors_are_reported_as_denied_and_others_as_failed() {
        let kernel = WriteError::Kernel;
        check(&kernel(Errno::ROFS), &FileError::denied("Write denied: /d/f: the path is read-only"));
        check(
            &kernel(Errno::ACCESS),
            &FileError::denied("Write denied: /d/f: there is no permission to write to this path"),
        );
        check(
            &kernel(Errno::PERM),
            &FileError::denied(
                "Write denied: /d/f: the operating system does not permit this operation on this path",
            ),
        );
        check(
            &kernel(Errno::XDEV),
            &FileError::denied("Write denied: /d/f: writing across mount points is not permitted"),
        );
        check(
            &WriteError::Parent(Errno::ROFS),
            &FileError::denied("Write denied: /d/f: the path is read-only"),
        );
        check(
            &kernel(Errno::NOSPC),
            &FileError::failed("Error writing /d/f: No space left on device (os error 28)"),
        );
        check(
            &WriteError::Parent(Errno::NOSPC),
            &FileError::failed(
                "Failed to create the parent directory of /d/f: No space left on device (os error 28)",
            ),
        );
        check(
            &WriteError::Path(PathFault::Empty),
            &FileError::failed("Error writing /d/f: the path is empty"),
        );
    }
}
