//! Reads a configuration file, with a size limit and without blocking.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::error::ConfigError;

/// The maximum size of a configuration file, in bytes. Configurations are written by hand and are small.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns the bytes of a file, or `None` if it does not exist.
pub(super) fn bytes(path: &Path) -> Result<Option<Vec<u8>>, ConfigError> {
    bytes_up_to(path, FILE_BYTES_MAX)
}

/// Returns the bytes of a file of at most `bytes_max` bytes; `None` if it does not exist.
pub(super) fn bytes_up_to(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, ConfigError> {
    match read(path, bytes_max) {
        Ok(bytes) => Ok(Some(bytes)),
        // A part of the path may be a file instead of a directory; treat this like a missing file. Another check
        // reports an unusable workspace with a better message.
        Err(FileReadError::Io(error))
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(FileReadError::Io(error)) => Err(whole(path, &format!("haft cannot read the file: {error}"))),
        Err(FileReadError::NotAFile(what)) => {
            Err(whole(path, &format!("expected a regular file at this path; found {what}")))
        }
        Err(FileReadError::TooLarge) => Err(whole(
            path,
            &format!("the file is larger than {bytes_max} bytes, the limit for this kind of file"),
        )),
    }
}

/// Decodes the bytes as UTF-8.
pub(super) fn text(path: &Path, bytes: Vec<u8>) -> Result<String, ConfigError> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        whole(path, &format!("the file is not UTF-8: the byte at position {} is invalid", at + 1))
    })
}

/// Builds an error about the file as a whole.
pub(super) fn whole(path: &Path, message: &str) -> ConfigError {
    ConfigError { file: path.to_owned(), at: None, key: String::new(), message: message.into(), hint: None }
}

enum FileReadError {
    Io(io::Error),
    NotAFile(&'static str),
    TooLarge,
}

impl From<io::Error> for FileReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, FileReadError> {
    // Do not block: opening a named pipe would otherwise wait until another process writes to it.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(FileReadError::NotAFile(if metadata.is_dir() {
            "a directory"
        } else {
            "a pipe or device"
        }));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max { Err(FileReadError::TooLarge) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_regular_utf8_files_are_read_as_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let check = |name: &str, expected: &str| {
            let path = dir.path().join(name);
            let failed = bytes(&path).and_then(|bytes| text(&path, bytes.unwrap())).unwrap_err();
            assert!(failed.to_string().contains(expected), "{name}: {failed}");
        };
        std::fs::File::create(dir.path().join("large")).unwrap().set_len(50 << 20).unwrap();
        std::fs::write(dir.path().join("latin1"), b"{\"a\": \"\xfc\"}").unwrap();
        std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        check("", "found a directory");
        check("large", "larger than 1048576 bytes");
        check("latin1", "position 8 is invalid");
        check("socket", "haft cannot read the file");
        check("pipe", "found a pipe or device");
        assert_eq!(bytes(&dir.path().join("none")), Ok(None));
    }
}
