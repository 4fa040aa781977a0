//! Files and directories that only their owner can read. A file is replaced atomically, so that a reader sees either
//! the old or the new content, never a mixture.

use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::SystemTime;

use tempfile::NamedTempFile;

/// The beginning of the names of temporary files. Such a file is incomplete, and a killed process may leave one behind.
pub const TEMPORARY_PREFIX: &str = ".tmp";

/// Replaces a file. Returns when the new content is on the disk.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = written_beside(path, bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // Without this sync, a power failure could undo the rename.
    File::open(directory_of(path))?.sync_all()
}

/// Works like [`replace`], for a file that other users may read. The permissions are set before the file gets its name:
/// after that, another program could have put a link in its place, and the permissions would be set on the link's
/// target.
pub fn replace_with_permissions(path: &Path, bytes: &[u8], permissions: Permissions) -> io::Result<()> {
    let file = written_beside(path, bytes)?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(directory_of(path))?.sync_all()
}

/// Works like [`replace`], but does not wait for the disk. After a power failure the file may be empty or missing, so
/// use it only for data that can be computed again.
pub fn replace_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    written_beside(path, bytes)?.persist(path)?;
    Ok(())
}

/// Works like [`replace_unsynced`], for content that is too large for memory: `write` writes it.
pub fn replace_unsynced_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
) -> io::Result<()> {
    let file = temporary_file(path)?;
    let mut writer = BufWriter::new(file.as_file());
    write(&mut writer)?;
    writer.flush()?;
    drop(writer);
    file.persist(path)?;
    Ok(())
}

/// Works like [`replace_unsynced`], and sets the modification time of the file.
pub fn replace_unsynced_with_time(path: &Path, bytes: &[u8], modified: SystemTime) -> io::Result<()> {
    let file = written_beside(path, bytes)?;
    file.as_file().set_modified(modified)?;
    file.persist(path)?;
    Ok(())
}

/// Creates a directory that only its owner can enter, and its missing parents. Does not change an existing directory.
pub fn create_dir_all(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Creates the directory for the file `path`, like [`create_dir_all`].
pub fn create_parent_dir(path: &Path) -> io::Result<()> {
    create_dir_all(directory_of(path))
}

/// Runs `attempt`, which creates the file `path`. If the directory of the file is missing, creates it and tries again.
/// Use it for files that are created often: checking for the directory first would cost two system calls for each file.
pub fn creating_parent_dir<T>(path: &Path, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match attempt() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_parent_dir(path)?;
            attempt()
        }
        done => done,
    }
}

/// Writes a temporary file in the directory of `path`, because a rename works only within one file system. The file has
/// mode 0600 and is removed when it is dropped.
fn written_beside(path: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = temporary_file(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

fn temporary_file(path: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(directory_of(path))
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn replaced_file_has_mode_0600_and_leaves_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.json");
        fs::write(&path, "an older and longer text").unwrap();
        replace(&path, b"one").unwrap();
        replace_unsynced(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        replace_unsynced_with(&path, |writer| writer.write_all(b"three")).unwrap();
        assert!(replace_unsynced_with(&path, |_| Err(io::Error::other("full"))).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(mode(&path), 0o600);
        assert!(replace(&directory.path().join("no/such/directory"), b"x").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn public_file_replaces_a_link_but_not_the_target_of_the_link() {
        let directory = tempfile::tempdir().unwrap();
        let (path, target) = (directory.path().join("link"), directory.path().join("key"));
        replace(&target, b"secret").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        replace_with_permissions(&path, b"public", Permissions::from_mode(0o644)).unwrap();
        assert_eq!((fs::read(&target).unwrap().as_slice(), mode(&target)), (b"secret".as_slice(), 0o600));
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode(&path)), (b"public".as_slice(), 0o644));
    }

    #[test]
    fn created_directories_have_mode_0700() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a/b/file.json");
        create_parent_dir(&file).unwrap();
        create_parent_dir(&file).unwrap();
        assert_eq!((mode(&directory.path().join("a")), mode(&directory.path().join("a/b"))), (0o700, 0o700));
    }

    #[test]
    fn missing_directory_of_a_new_file_is_created() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a/file.json");
        for text in ["one", "two"] {
            creating_parent_dir(&file, || replace_unsynced(&file, text.as_bytes())).unwrap();
            assert_eq!(
                (fs::read_to_string(&file).unwrap().as_str(), mode(file.parent().unwrap())),
                (text, 0o700)
            );
        }
        let below_a_file = file.join("b");
        assert!(creating_parent_dir(&below_a_file, || replace_unsynced(&below_a_file, b"x")).is_err());
    }
}
