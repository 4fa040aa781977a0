//! Writes a recording.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use haft_core::redact::SecretRedactor;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use super::error::RecordingProblem;
use super::{LINE_BYTES_MAX, RECORDING_BYTES_MAX, RecordingError, TYPE_HEAD, VERSION};

/// Appends lines of any type to a recording, and redacts the secrets with which the tape was created. Every line is
/// written at once, so it survives a crash of the process. After the first failed write, the tape keeps the error in
/// [`problem`](Self::problem) and writes nothing more.
pub struct Tape {
    path: PathBuf,
    redactor: SecretRedactor,
    written: Mutex<TapeFile>,
    numbers: AtomicU64,
}

struct TapeFile {
    file: File,
    bytes: u64,
    problem: Option<String>,
}

/// The fields that every line has.
#[derive(Serialize)]
struct TapeLine<'a, T> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(flatten)]
    entry: &'a T,
}

#[derive(Serialize)]
struct TapeHead {
    version: u32,
}

impl Tape {
    /// Creates the file with mode 0600. Fails if the file exists, and leaves it unchanged.
    pub fn create(
        path: &Path,
        secrets: impl IntoIterator<Item = SecretString>,
    ) -> Result<Arc<Self>, RecordingError> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(|error| {
            let exists = error.kind() == io::ErrorKind::AlreadyExists;
            RecordingError::new(
                path,
                if exists { RecordingProblem::Exists } else { RecordingProblem::Io(error) },
            )
        })?;
        let secrets: Vec<SecretString> = secrets.into_iter().collect();
        let tape = Self {
            path: path.to_owned(),
            redactor: SecretRedactor::of(secrets.iter().map(ExposeSecret::expose_secret)),
            written: Mutex::new(TapeFile { file, bytes: 0, problem: None }),
            numbers: AtomicU64::new(1),
        };
        tape.write(TYPE_HEAD, &TapeHead { version: VERSION });
        Ok(Arc::new(tape))
    }

    /// Appends a line of this type. `entry` must be an object without a `type` field.
    pub fn write(&self, kind: &str, entry: &impl Serialize) {
        self.append(&TapeLine { kind, entry });
    }

    /// Appends a line. `line` must be an object with a `type` field.
    pub fn append(&self, line: &impl Serialize) {
        let line = serde_json::to_string(line);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if written.problem.is_none() {
            let put = line.map_err(io::Error::from).and_then(|line| written.put(&self.redactor.redact(line)));
            written.problem = put.err().map(|error| format!("{}: {error}", self.path.display()));
        }
    }

    /// Returns the reason if the recording is incomplete.
    pub fn problem(&self) -> Option<String> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).problem.clone()
    }

    /// Returns a number that no other line in this file has.
    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn holds_secret(&self, json: &str) -> bool {
        self.redactor.is_in(json)
    }
}

impl TapeFile {
    fn put(&mut self, line: &str) -> io::Result<()> {
        let bytes = self.bytes + line.len() as u64 + 1;
        if line.len() >= LINE_BYTES_MAX || bytes > RECORDING_BYTES_MAX {
            return Err(io::Error::other(format!(
                "the recording is full; the limit is {LINE_BYTES_MAX} bytes per line and {RECORDING_BYTES_MAX} bytes per file"
            )));
        }
        // Each line is one write call, so a line is incomplete only if the disk is full or the machine stops.
        self.file.write_all(format!("{line}\n").as_bytes())?;
        self.bytes = bytes;
        Ok(())
    }
}

impl std::fmt::Debug for Tape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tape").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn full_recording_reports_a_problem_and_accepts_no_more_lines() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("r.jsonl");
        let tape = Tape::create(&path, []).unwrap();
        let head = std::fs::read_to_string(&path).unwrap();
        assert_eq!(tape.problem(), None);
        let nearly_full = RECORDING_BYTES_MAX - 1;
        let bytes = std::mem::replace(&mut tape.written.lock().unwrap().bytes, nearly_full);
        tape.write("clock", &json!({}));
        assert!(tape.problem().unwrap().contains("the recording is full"));
        tape.written.lock().unwrap().bytes = bytes;
        tape.write("clock", &json!({}));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), head);
    }

    /// Every write to `/dev/full` fails, as on a full disk.
    #[test]
    fn full_disk_is_reported_as_a_problem() {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let written = Mutex::new(TapeFile { file, bytes: 0, problem: None });
        let path = PathBuf::from("r.jsonl");
        let tape = Tape { path, redactor: SecretRedactor::default(), written, numbers: AtomicU64::new(1) };
        tape.write("clock", &json!({}));
        assert!(tape.problem().unwrap().starts_with("r.jsonl: "));
    }
}
