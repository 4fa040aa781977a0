//! Backups of haft's data while other processes write it.
//!
//! Each file is consistent by itself: haft replaces a file as a whole, or appends lines to it, and readers skip an
//! incomplete last line. Files also name each other: a response names the journal of its run, and a journal names
//! blobs. haft writes the named file first, and a backup reads it last. So a backup contains every file that its other
//! files name.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use haft_core::home::Home;
use haft_fs::private_file;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use serde::Deserialize;

use crate::archive::ArchiveWriter;
use crate::tree::named;

/// The directory with the records of unfinished responses.
const UNFINISHED: &str = "responses-unfinished";

/// The directories that a backup reads first and last. It reads all other directories in between.
const FIRST: &str = "responses";
const LAST: [&str; 2] = ["outputs", "blobs"];

/// The directories that a backup omits, because haft can create their content again.
const LEFT_OUT: [&str; 1] = ["cache"];

/// Selects whether a backup may replace an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExistingFile {
    Refused,
    Replaced,
}

/// A summary of a finished archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveSummary {
    pub files: u64,
    /// The size of the files in the archive.
    pub bytes: u64,
    /// The files and directories of an export that could not be read.
    pub skipped: Vec<PathBuf>,
}

/// Writes haft's data to an archive, which appears under its name only when it is complete. `progress` gets the number
/// of files and bytes so far.
pub fn backup(
    home: &Home,
    path: &Path,
    existing: ExistingFile,
    mut progress: impl FnMut(u64, u64),
) -> io::Result<ArchiveSummary> {
    write_archive(home, path, existing, |archive| {
        let data = home.data();
        archive.add_directory(Path::new("data"))?;
        archive.add_directory(&Path::new("data").join(UNFINISHED))?;
        let mut backup = DataBackup { archive, data: &data, progress: &mut progress };
        for name in ordered(&data)? {
            backup.add(&Path::new("data").join(&name), &data.join(&name))?;
        }
        Ok(())
    })
}

/// Writes an archive to a temporary file that only its owner can read, and then gives it its name.
pub(crate) fn write_archive(
    home: &Home,
    path: &Path,
    existing: ExistingFile,
    write: impl FnOnce(&mut ArchiveWriter<BufWriter<File>>) -> io::Result<()>,
) -> io::Result<ArchiveSummary> {
    refuse_inside(home, path)?;
    if existing == ExistingFile::Refused && path.symlink_metadata().is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let part = PartFile::beside(path)?;
    let mut archive = ArchiveWriter::new(BufWriter::new(part.file.try_clone()?));
    write(&mut archive)?;
    let skipped = std::mem::take(&mut archive.skipped);
    let summary = ArchiveSummary { files: archive.files, bytes: archive.bytes, skipped };
    archive.finish()?;
    part.file.sync_all()?;
    part.rename_to(path, existing)?;
    Ok(summary)
}

/// Refuses an archive inside of haft's data directory: the archive would contain itself, and a sweep would remove it.
fn refuse_inside(home: &Home, path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(data) = home.data().canonicalize() else { return Ok(()) };
    if parent.canonicalize()?.starts_with(&data) {
        return Err(io::Error::other(format!(
            "the backup file must not be in haft's data directory {}",
            data.display()
        )));
    }
    Ok(())
}

/// Returns the entries of the data directory in the order in which the backup reads them. Returns an error if the
/// directory does not exist, because an empty archive would look like a backup.
fn ordered(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(data).map_err(|error| named(data, &error))? {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.retain(|name| name != UNFINISHED && !LEFT_OUT.contains(&name.as_str()));
    names.sort_by_key(|name| (rank(name), name.clone()));
    Ok(names.into_iter().map(PathBuf::from).collect())
}

fn rank(name: &str) -> usize {
    if name == FIRST {
        return 0;
    }
    LAST.iter().position(|last| *last == name).map_or(1, |at| at + 2)
}

/// An archive to which a backup adds the files of the data directory.
struct DataBackup<'a, P> {
    archive: &'a mut ArchiveWriter<BufWriter<File>>,
    data: &'a Path,
    /// The progress callback, which gets the number of files and bytes so far.
    progress: P,
}

impl<P: FnMut(u64, u64)> DataBackup<'_, P> {
    fn add(&mut self, name: &Path, path: &Path) -> io::Result<()> {
        let added = self.add_present(name, path);
        (self.progress)(self.archive.files, self.archive.bytes);
        match added {
            // A sweep or another request has removed the file since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            added => added,
        }
    }

    /// Adds a file, or a directory with its content. Returns an error for a file that cannot be read, because a backup
    /// without it would be incomplete and could replace a complete one.
    fn add_present(&mut self, name: &Path, path: &Path) -> io::Result<()> {
        let metadata = path.symlink_metadata().map_err(|error| named(path, &error))?;
        if metadata.is_dir() {
            let entries = fs::read_dir(path).map_err(|error| named(path, &error))?;
            self.archive.add_directory(name)?;
            for entry in entries {
                let entry = entry?;
                self.add(&name.join(entry.file_name()), &entry.path())?;
            }
            Ok(())
        } else if !metadata.is_file() || is_left_out(path) {
            Ok(())
        } else if name.starts_with("data/responses") {
            add_response(self.archive, self.data, name, path).map_err(|error| named(path, &error))
        } else {
            self.archive.add_file(name, path).map_err(|error| named(path, &error))
        }
    }
}

/// Returns true for lock files, and for temporary files of a server that is writing.
fn is_left_out(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".lock") || name.starts_with(private_file::TEMPORARY_PREFIX)
}

/// The part of a stored response that says whether it has ended.
#[derive(Deserialize)]
struct SavedResponse {
    id: String,
    response: SavedStatus,
}

#[derive(Deserialize)]
struct SavedStatus {
    status: String,
}

/// Adds a response. If it is unfinished, also adds the record that makes the next process finish it. If that record is
/// gone, reads the response again, because the server removes the record only after it has stored the finished
/// response.
fn add_response(
    archive: &mut ArchiveWriter<BufWriter<File>>,
    data: &Path,
    name: &Path,
    path: &Path,
) -> io::Result<()> {
    let bytes = fs::read(path)?;
    let modified_s = path.metadata()?.mtime();
    // Parse only the first line, which is the record. Stream events can follow it.
    let record = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let state: Option<SavedResponse> = serde_json::from_slice(record).ok();
    let open = state
        .filter(|state| matches!(state.response.status.as_str(), "queued" | "in_progress"))
        .map(|state| state.id);
    let Some(id) = open else { return archive.add_bytes(name, &bytes, modified_s) };
    match fs::read(data.join(UNFINISHED).join(&id)) {
        Ok(unfinished) => {
            archive.add_bytes(name, &bytes, modified_s)?;
            archive.add_bytes(&Path::new("data").join(UNFINISHED).join(id), &unfinished, modified_s)
        }
        Err(_) => archive.add_file(name, path),
    }
}

/// A file under a temporary name. Dropping it removes the file.
struct PartFile {
    path: PathBuf,
    file: File,
}

impl PartFile {
    fn beside(path: &Path) -> io::Result<Self> {
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{}.part", uuid::Uuid::new_v4().simple()));
        let path = path.with_file_name(name);
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self { path, file })
    }

    fn rename_to(&self, path: &Path, existing: ExistingFile) -> io::Result<()> {
        match existing {
            ExistingFile::Replaced => fs::rename(&self.path, path),
            ExistingFile::Refused => {
                match rustix::fs::renameat_with(CWD, &self.path, CWD, path, RenameFlags::NOREPLACE) {
                    Err(Errno::INVAL | Errno::NOSYS) => self.link_to(path),
                    renamed => Ok(renamed?),
                }
            }
        }
    }

    /// Gives the file its final name on a network file system, where a rename would replace an existing file. Dropping
    /// this value then removes the temporary name.
    fn link_to(&self, path: &Path) -> io::Result<()> {
        fs::hard_link(&self.path, path)
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep;
    use crate::tree::tests::{set_mode, without_capabilities};

    #[test]
    fn incomplete_backup_is_an_error_and_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(&directory.path().join("home"));
        let path = directory.path().join("backup.tar");
        let write = || without_capabilities(|| backup(&home, &path, ExistingFile::Replaced, |_, _| ()));
        assert_eq!(write().unwrap_err().kind(), io::ErrorKind::NotFound, "a backup without data fails");
        let locked = home.data().join("events/acme");
        fs::create_dir_all(&locked).unwrap();
        fs::write(locked.join("run.jsonl"), "x").unwrap();
        assert_eq!(write().unwrap().files, 1);
        let complete = fs::read(&path).unwrap();
        for unreadable in [locked.as_path(), &locked.join("run.jsonl"), &home.data()] {
            set_mode(unreadable, 0o000);
            let refused = write().unwrap_err();
            assert!(refused.to_string().contains(&unreadable.display().to_string()), "{refused}");
            assert!(fs::read(&path).unwrap() == complete);
            set_mode(unreadable, 0o700);
        }
    }

    #[test]
    fn link_to_does_not_replace_an_existing_backup() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("backup.tar");
        PartFile::beside(&path).unwrap().link_to(&path).unwrap();
        let refused = PartFile::beside(&path).unwrap().link_to(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(sweep::entries(directory.path()).count(), 1, "no temporary file is left");
    }

    #[test]
    fn backup_has_all_files_and_replaces_an_old_backup_only_on_request() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(&directory.path().join("home"));
        let file = |name: &str, text: &str| {
            fs::create_dir_all(home.data().join(name).parent().unwrap()).unwrap();
            fs::write(home.data().join(name), text).unwrap();
        };
        let response =
            |id: &str, status: &str| format!(r#"{{"id":"{id}","response":{{"status":"{status}"}}}}"#);
        file("responses/acme/resp_1.json", &response("resp_1", "completed"));
        file("responses/acme/resp_2.json", &response("resp_2", "in_progress"));
        file("responses-unfinished/resp_2", "{}");
        file("responses-unfinished/resp_gone", "{}");
        file("blobs/acme/digest", "blob");
        file("cache/entry", "cached");
        file("grants/acme/anna.lock", "");
        // The server writes a response at this moment.
        file(&format!("responses/acme/{}Ab12", private_file::TEMPORARY_PREFIX), "{}");
        let path = directory.path().join("backup.tar");
        let refused = backup(&home, &path, ExistingFile::Refused, |_, _| ()).unwrap();
        assert_eq!(refused.files, 4, "the backup has two responses, one unfinished record and a blob");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let again = backup(&home, &path, ExistingFile::Refused, |_, _| ()).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        backup(&home, &path, ExistingFile::Replaced, |_, _| ()).unwrap();
        let inside = home.data().join("backup.tar");
        assert!(backup(&home, &inside, ExistingFile::Refused, |_, _| ()).is_err());
        let left: Vec<_> = sweep::entries(directory.path()).map(|entry| entry.file_name()).collect();
        assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
    }
}
