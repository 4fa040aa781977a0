//! Archives of stored files, in the format of tar, so that `tar` can unpack them.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const BLOCK_BYTES: usize = 512;

/// The longest name that fits into the header of a file. A longer name has an entry of its own.
const NAME_BYTES_MAX: usize = 100;

/// The first size that does not fit into eleven octal digits.
const OCTAL_END: u64 = 1 << 33;

/// An archive that is being written.
#[derive(Debug)]
pub struct ArchiveWriter<W> {
    out: W,
    /// The number of files so far.
    pub files: u64,
    /// The number of bytes in the files so far.
    pub bytes: u64,
}

impl<W: Write> ArchiveWriter<W> {
    pub fn new(out: W) -> Self {
        Self { out, files: 0, bytes: 0 }
    }

    /// Adds a directory, so that it is private after the archive was unpacked.
    pub fn add_directory(&mut self, name: &Path) -> io::Result<()> {
        self.header(name, b'5', 0o700, 0, 0, Path::new(""))
    }

    /// Adds a file with this content.
    pub fn add_bytes(&mut self, name: &Path, bytes: &[u8], modified_s: i64) -> io::Result<()> {
        self.header(name, b'0', 0o600, bytes.len() as u64, modified_s, Path::new(""))?;
        self.content(bytes, bytes.len() as u64)
    }

    /// Adds the file at `path`, in the length that it has now. A program may append to it at the same time.
    pub fn add_file(&mut self, name: &Path, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        self.header(name, b'0', 0o600, metadata.len(), metadata.mtime(), Path::new(""))?;
        self.content(file, metadata.len())
    }

    /// Adds a directory and all files and links in it. Leaves out files that disappear, and special files such as
    /// sockets.
    pub fn add_tree(&mut self, name: &Path, directory: &Path) -> io::Result<()> {
        self.add_directory(name)?;
        for entry in fs::read_dir(directory)?.flatten() {
            let (name, path) = (name.join(entry.file_name()), entry.path());
            let Ok(metadata) = entry.metadata() else { continue };
            let added = self.add_entry(&name, &path, &metadata);
            match added {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                added => added?,
            }
        }
        Ok(())
    }

    fn add_entry(&mut self, name: &Path, path: &Path, metadata: &Metadata) -> io::Result<()> {
        if metadata.is_dir() {
            self.add_tree(name, path)
        } else if metadata.is_file() {
            self.add_file(name, path)
        } else if metadata.is_symlink() {
            self.header(name, b'2', 0o777, 0, metadata.mtime(), &fs::read_link(path)?)
        } else {
            Ok(())
        }
    }

    /// Writes the end of the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK_BYTES])?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes exactly `length` bytes. A file that became shorter is an error, because the header already has the
    /// length.
    fn content(&mut self, content: impl Read, length: u64) -> io::Result<()> {
        let written = io::copy(&mut content.take(length), &mut self.out)?;
        if written < length {
            return Err(io::Error::other("a file became shorter while it was read; try again"));
        }
        self.files += 1;
        self.bytes += length;
        self.pad(length)
    }

    fn pad(&mut self, length: u64) -> io::Result<()> {
        let rest = usize::try_from(length % BLOCK_BYTES as u64).unwrap_or_default();
        self.out.write_all(&[0; BLOCK_BYTES][..(BLOCK_BYTES - rest) % BLOCK_BYTES])
    }

    fn header(
        &mut self,
        name: &Path,
        kind: u8,
        mode: u32,
        length: u64,
        modified_s: i64,
        link: &Path,
    ) -> io::Result<()> {
        for (long, of_kind) in [(link, b'K'), (name, b'L')] {
            let bytes = long.as_os_str().as_bytes();
            if bytes.len() > NAME_BYTES_MAX {
                self.out.write_all(&header_block(
                    b"././@LongLink",
                    of_kind,
                    0o644,
                    bytes.len() as u64 + 1,
                    0,
                    b"",
                ))?;
                self.out.write_all(bytes)?;
                self.out.write_all(&[0])?;
                self.pad(bytes.len() as u64 + 1)?;
            }
        }
        let (name, link) = (name.as_os_str().as_bytes(), link.as_os_str().as_bytes());
        self.out.write_all(&header_block(name, kind, mode, length, modified_s, link))
    }
}

/// Returns the header of one entry in the format of GNU tar. Fields that are too long are cut; their entries of kind
/// `L` and `K` contain them in full.
fn header_block(
    name: &[u8],
    kind: u8,
    mode: u32,
    length: u64,
    modified_s: i64,
    link: &[u8],
) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name[..name.len().min(NAME_BYTES_MAX)]);
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    if length < OCTAL_END {
        put(124, format!("{length:011o}\0").as_bytes());
    } else {
        put(124, &[0x80, 0, 0, 0]);
        put(128, &length.to_be_bytes());
    }
    put(136, format!("{:011o}\0", modified_s.max(0)).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &link[..link.len().min(NAME_BYTES_MAX)]);
    put(257, b"ustar  \0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_unpacks_the_archive_with_long_names_links_and_modes() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        let deep = "d".repeat(90);
        fs::create_dir_all(from.join(&deep).join(&deep)).unwrap();
        fs::create_dir(&to).unwrap();
        fs::write(from.join(&deep).join(&deep).join("file"), "deep").unwrap();
        fs::write(from.join("a"), vec![7; 513]).unwrap();
        std::os::unix::fs::symlink("a", from.join("link")).unwrap();
        std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        let mut archive = ArchiveWriter::new(Vec::new());
        archive.add_tree(Path::new("data"), &from).unwrap();
        archive.add_bytes(Path::new("data/empty"), b"", 1_000).unwrap();
        assert_eq!((archive.files, archive.bytes), (3, 517));
        let bytes = archive.finish().unwrap();
        let path = directory.path().join("x.tar");
        fs::write(&path, bytes).unwrap();
        let done = Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(&to).output().unwrap();
        assert!(done.status.success() && done.stderr.is_empty(), "{done:?}");
        let data = to.join("data");
        assert_eq!(fs::read_to_string(data.join(&deep).join(&deep).join("file")).unwrap(), "deep");
        assert_eq!(fs::read(data.join("a")).unwrap(), vec![7; 513]);
        assert_eq!(fs::read_link(data.join("link")).unwrap(), Path::new("a"));
        assert!(!data.join("socket").exists());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&data), mode(&data.join("a"))), (0o700, 0o600));
        assert_eq!(fs::metadata(data.join("empty")).unwrap().mtime(), 1_000);
    }
}
