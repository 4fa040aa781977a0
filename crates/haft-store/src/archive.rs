//! Archives of stored files, in tar format, so that `tar` can unpack them.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const BLOCK_BYTES: usize = 512;

/// The maximum length of a file name in a tar header. A longer name has an entry of its own.
const NAME_BYTES_MAX: usize = 100;

/// The value of `O_NOFOLLOW`: do not open a symbolic link.
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// The smallest file size that does not fit into the eleven octal digits of a tar header.
const OCTAL_END: u64 = 1 << 33;

/// The maximum size of the holes of all sparse files in an archive, in bytes. A command can create a file that has a huge
/// size and occupies no disk space, but an archive contains the holes as zeros.
const HOLES_BYTES_MAX: u64 = 1 << 30;

/// An archive that is being written.
#[derive(Debug)]
pub struct ArchiveWriter<W> {
    out: W,
    /// The number of files so far.
    pub files: u64,
    /// The number of bytes in the files so far.
    pub bytes: u64,
    /// The files and directories that could not be read, and sparse files that are too large.
    pub skipped: Vec<PathBuf>,
    /// The size of the holes in all files that `add_tree` has added so far, in bytes.
    hole_bytes: u64,
}

impl<W: Write> ArchiveWriter<W> {
    pub fn new(out: W) -> Self {
        Self { out, files: 0, bytes: 0, skipped: Vec::new(), hole_bytes: 0 }
    }

    /// Adds a directory with private permissions, so that the unpacked directory is private too.
    pub fn add_directory(&mut self, name: &Path) -> io::Result<()> {
        self.header(name, b'5', 0o700, 0, 0, Path::new(""))
    }

    /// Adds a file with this content.
    pub fn add_bytes(&mut self, name: &Path, bytes: &[u8], modified_s: i64) -> io::Result<()> {
        self.header(name, b'0', 0o600, bytes.len() as u64, modified_s, Path::new(""))?;
        self.content(bytes, bytes.len() as u64)
    }

    /// Adds the file at `path` with its current length. Another program may append to the file at the same time.
    pub fn add_file(&mut self, name: &Path, path: &Path) -> io::Result<()> {
        let file = File::open(path)?;
        self.add_open(name, &file, &file.metadata()?)
    }

    fn add_open(&mut self, name: &Path, file: &File, metadata: &Metadata) -> io::Result<()> {
        self.header(name, b'0', 0o600, metadata.len(), metadata.mtime(), Path::new(""))?;
        self.content(file, metadata.len())
    }

    /// Adds a file or a link, or a directory with its content, without following links. Leaves out files that do not
    /// exist or disappear, and special files such as sockets. Skips a file or directory that cannot be read: the
    /// commands of a run choose the permissions of their files.
    pub fn add_tree(&mut self, name: &Path, path: &Path) -> io::Result<()> {
        let Some(metadata) = self.readable(path, path.symlink_metadata()) else { return Ok(()) };
        if metadata.is_dir() {
            let Some(entries) = self.readable(path, fs::read_dir(path)) else { return Ok(()) };
            self.add_directory(name)?;
            for entry in entries.flatten() {
                self.add_tree(&name.join(entry.file_name()), &entry.path())?;
            }
        } else if metadata.is_file() {
            // A command can replace the file by a symbolic link after the check. Without this flag, the archive would
            // then contain the content of the link's target.
            let opened = File::options().read(true).custom_flags(NO_LINK).open(path);
            if let Some(file) = self.readable(path, opened) {
                self.add_file_of_command(name, path, &file)?;
            }
        } else if metadata.is_symlink()
            && let Some(target) = self.readable(path, fs::read_link(path))
        {
            self.header(name, b'2', 0o777, 0, metadata.mtime(), &target)?;
        }
        Ok(())
    }

    /// Adds a file of a command, unless it has too many holes.
    fn add_file_of_command(&mut self, name: &Path, path: &Path, file: &File) -> io::Result<()> {
        let metadata = file.metadata()?;
        let holes = metadata.len().saturating_sub(metadata.blocks().saturating_mul(512));
        if self.hole_bytes.saturating_add(holes) > HOLES_BYTES_MAX {
            self.skipped.push(path.to_owned());
            return Ok(());
        }
        self.hole_bytes += holes;
        self.add_open(name, file, &metadata)
    }

    /// Returns `None` for a file that no longer exists or that haft cannot read.
    fn readable<T>(&mut self, path: &Path, read: io::Result<T>) -> Option<T> {
        if read.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::NotFound) {
            self.skipped.push(path.to_owned());
        }
        read.ok()
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
            return Err(io::Error::other(
                "a file became shorter while haft copied it into the archive; try again",
            ));
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

/// Returns the header of one entry in the format of GNU tar. Cuts off a name or link target that is too long; a
/// separate entry of type `L` or `K` contains it in full.
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
    use crate::tree::tests::{set_mode, without_capabilities};

    #[test]
    fn archive_leaves_out_and_lists_huge_sparse_files() {
        let directory = tempfile::tempdir().unwrap();
        let sparse = |name: &str, bytes: u64| {
            let path = directory.path().join(name);
            File::create(&path).unwrap().set_len(bytes).unwrap();
            path
        };
        let (small, huge) = (sparse("a-small", 1_000_000), sparse("b-huge", 1 << 40));
        let mut archive = ArchiveWriter::new(io::sink());
        archive.add_tree(Path::new("small"), &small).unwrap();
        archive.add_tree(Path::new("huge"), &huge).unwrap();
        assert_eq!((archive.files, archive.bytes, &archive.skipped), (1, 1_000_000, &vec![huge]));
    }

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

    #[test]
    fn unreadable_files_are_skipped_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("locked")).unwrap();
        fs::write(tree.join("file"), "x").unwrap();
        fs::write(tree.join("secret"), "x").unwrap();
        set_mode(&tree.join("locked"), 0o000);
        set_mode(&tree.join("secret"), 0o000);
        std::os::unix::fs::symlink("/", directory.path().join("link")).unwrap();
        let mut archive = ArchiveWriter::new(Vec::new());
        without_capabilities(|| {
            for name in ["tree", "missing", "link"] {
                archive.add_tree(Path::new(name), &directory.path().join(name)).unwrap();
            }
        });
        assert_eq!(archive.files, 1, "a link to a file is not followed");
        archive.skipped.sort();
        assert_eq!(archive.skipped, [tree.join("locked"), tree.join("secret")]);
        set_mode(&tree.join("locked"), 0o700);
    }
}
