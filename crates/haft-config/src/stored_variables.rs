//! Values of variables that haft asked for once. They are stored next to the OAuth tokens, in a file that only its
//! owner can read.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haft_core::home::Home;
use haft_fs::{file_lock, private_file};

/// The maximum time that haft waits for another process that stores a value.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The file with the stored values.
#[derive(Debug, Clone)]
pub struct StoredVariables {
    path: PathBuf,
}

impl StoredVariables {
    pub fn of(home: &Home) -> Self {
        // A name that starts with a dot cannot be the token file of a server.
        Self { path: home.data().join("tokens/.variables.json") }
    }

    /// Returns all values, by name. If the file does not exist, there are none.
    pub fn read(&self) -> io::Result<BTreeMap<String, String>> {
        match std::fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(error),
        }
    }

    /// Adds values. Replaces an earlier value with the same name.
    pub fn add(&self, values: BTreeMap<String, String>) -> io::Result<()> {
        private_file::create_parent_dir(&self.path)?;
        let lock = file_lock::open_lock_file(&self.path.with_extension("lock"))?;
        if !file_lock::lock_within(&lock, LOCK_WAIT)? {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "another process holds the lock"));
        }
        let mut all = self.read()?;
        all.extend(values);
        private_file::replace(&self.path, serde_json::to_string_pretty(&all)?.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn values_are_added_to_a_file_that_only_its_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let stored = StoredVariables::of(&Home::at(dir.path()));
        assert_eq!(stored.read().unwrap(), BTreeMap::new());
        let one = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        stored.add(one("A", "1")).unwrap();
        stored.add(one("B", "2")).unwrap();
        stored.add(one("A", "3")).unwrap();
        let read = stored.read().unwrap();
        assert_eq!((read["A"].as_str(), read["B"].as_str(), read.len()), ("3", "2", 2));
        let mode = std::fs::metadata(&stored.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
