//! Stored values of configuration variables, so that haft asks the user for each value only once. They are stored where
//! the OAuth tokens are: in the keyring of the desktop, or in a file next to the token files that only its owner can
//! read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haft_core::home::Home;
use haft_core::settings::mcp::KeyringPreference;
use haft_fs::{file_lock, private_file};
use haft_tools::mcp::Keyring;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

/// The maximum time that haft waits for another process that stores a value.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// The stored values, by the name of their variable.
pub type VariableValues = BTreeMap<String, String>;

/// The stored values of one home directory.
#[derive(Clone)]
pub struct StoredVariables {
    path: PathBuf,
    /// `None` in a build without keyring support.
    keyring: Option<Arc<dyn Keyring>>,
}

/// The location of stored values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueLocation {
    /// A file that only its owner can read.
    File,
    /// The keyring of the desktop.
    Keyring,
}

/// The content of the file: the values, or a marker for values in the keyring. The values are strings, so haft never
/// reads a file with values as a marker.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum VariableFile {
    Elsewhere(VariableMarker),
    Here(VariableValues),
}

/// The content of the file if the values are in the keyring.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariableMarker {
    kept_in: VariableLocation,
}

/// The names of the values in the keyring. With them, haft does not open the keyring for other variables.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum VariableLocation {
    Keyring(BTreeSet<String>),
}

impl StoredVariables {
    /// Returns the stored variables of a home directory, with the keyring of the desktop if haft is built with keyring
    /// support.
    pub fn of(home: &Home) -> Self {
        // A name that starts with a dot cannot be the token file of a server.
        Self { path: home.data().join("tokens/.variables.json"), keyring: desktop_keyring() }
    }

    /// Returns the names of all stored values.
    pub fn names(&self) -> io::Result<BTreeSet<String>> {
        Ok(match self.file()? {
            VariableFile::Here(values) => values.into_keys().collect(),
            VariableFile::Elsewhere(VariableMarker { kept_in: VariableLocation::Keyring(names) }) => names,
        })
    }

    /// Returns all values. The error is for the operator.
    pub async fn read(&self) -> Result<VariableValues, String> {
        match self.file().map_err(|error| error.to_string())? {
            VariableFile::Here(values) => Ok(values),
            VariableFile::Elsewhere(_) => self.read_keyring().await,
        }
    }

    /// Returns all values like [`StoredVariables::read`], for code that is not async. Opens the keyring in a separate
    /// thread, because a tokio runtime cannot block inside another one.
    pub fn read_blocking(&self) -> Result<VariableValues, String> {
        match self.file().map_err(|error| error.to_string())? {
            VariableFile::Here(values) => Ok(values),
            VariableFile::Elsewhere(_) => std::thread::scope(|scope| {
                let reading = scope.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                    runtime.map_err(|error| error.to_string())?.block_on(self.read_keyring())
                });
                reading.join().unwrap_or_else(|_| {
                    Err("haft could not read the keyring, because the reading thread failed".into())
                })
            }),
        }
    }

    /// Adds values, and returns their location. Replaces an earlier value with the same name. All values move to the
    /// location that the preference selects, including values that were stored elsewhere before.
    pub async fn add(
        &self,
        values: VariableValues,
        preference: KeyringPreference,
    ) -> Result<ValueLocation, String> {
        let _lock = self.lock().map_err(|error| error.to_string())?;
        let mut all = self.read().await?;
        all.extend(values);
        let refused = match (&self.keyring, preference) {
            (Some(keyring), KeyringPreference::WhereThereIsOne | KeyringPreference::Required) => {
                match self.write_keyring(keyring.as_ref(), &all).await {
                    Ok(()) => return Ok(ValueLocation::Keyring),
                    Err(reason) => reason,
                }
            }
            (None, _) | (Some(_), KeyringPreference::Never) => NO_KEYRING.to_owned(),
        };
        if preference == KeyringPreference::Required {
            return Err(format!("`tokenStore` requires a keyring, but haft cannot use one: {refused}"));
        }
        self.write_file(all).await?;
        Ok(ValueLocation::File)
    }

    async fn read_keyring(&self) -> Result<VariableValues, String> {
        let unusable =
            |reason: &str| format!("the variables are in the keyring, which haft cannot use: {reason}");
        let keyring = self.keyring.as_ref().ok_or_else(|| unusable(NO_KEYRING))?;
        let found = keyring.get(&self.account()).await.map_err(|reason| unusable(&reason))?;
        let text = found.ok_or_else(|| unusable("the keyring has no entry of haft"))?;
        serde_json::from_str(text.expose_secret())
            .map_err(|_| unusable("the keyring entry of haft is not valid JSON"))
    }

    /// Writes the values to the keyring, and only then writes the marker to the file. Until the file has the marker,
    /// haft reads the values in the file, so a crash in between loses no value.
    async fn write_keyring(&self, keyring: &dyn Keyring, values: &VariableValues) -> Result<(), String> {
        let text = serde_json::to_string(values).map_err(|error| error.to_string())?;
        keyring.put(&self.account(), text.into()).await?;
        let names = values.keys().cloned().collect();
        let marker = VariableMarker { kept_in: VariableLocation::Keyring(names) };
        self.replace(&VariableFile::Elsewhere(marker)).map_err(|error| error.to_string())
    }

    async fn write_file(&self, values: VariableValues) -> Result<(), String> {
        let before = self.file().map_err(|error| error.to_string())?;
        self.replace(&VariableFile::Here(values)).map_err(|error| error.to_string())?;
        if let (VariableFile::Elsewhere(_), Some(keyring)) = (before, &self.keyring) {
            // Ignore a failure: the stale entry in the keyring is never read again.
            let _ = keyring.remove(&self.account()).await;
        }
        Ok(())
    }

    fn file(&self) -> io::Result<VariableFile> {
        match std::fs::read(&self.path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(VariableFile::Here(VariableValues::new()))
            }
            Err(error) => Err(error),
        }
    }

    fn replace(&self, content: &VariableFile) -> io::Result<()> {
        private_file::replace(&self.path, serde_json::to_string_pretty(content)?.as_bytes())
    }

    fn lock(&self) -> io::Result<std::fs::File> {
        private_file::create_parent_dir(&self.path)?;
        let lock = file_lock::open_lock_file(&self.path.with_extension("lock"))?;
        if file_lock::lock_within(&lock, LOCK_WAIT)? {
            return Ok(lock);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "another haft process is writing the stored variables; try again",
        ))
    }

    /// Returns the account name in the keyring: the path of the file, so that each home directory has its own values.
    fn account(&self) -> String {
        self.path.display().to_string()
    }
}

const NO_KEYRING: &str = "this program is built without the feature `keyring`";

#[cfg(feature = "keyring")]
#[expect(clippy::unnecessary_wraps, reason = "there is none in a build without keyring support")]
fn desktop_keyring() -> Option<Arc<dyn Keyring>> {
    Some(Arc::new(crate::keyring::SecretServiceKeyring))
}

#[cfg(not(feature = "keyring"))]
fn desktop_keyring() -> Option<Arc<dyn Keyring>> {
    None
}

impl std::fmt::Debug for StoredVariables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredVariables").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;

    use futures_util::future::BoxFuture;
    use secrecy::SecretString;

    use super::*;

    /// A keyring in memory, which can be locked.
    #[derive(Default)]
    struct MemoryKeyring {
        entries: Mutex<BTreeMap<String, String>>,
        is_locked: Mutex<bool>,
    }

    impl MemoryKeyring {
        fn entries(&self) -> Result<std::sync::MutexGuard<'_, BTreeMap<String, String>>, String> {
            if *self.is_locked.lock().unwrap() {
                Err("locked".into())
            } else {
                Ok(self.entries.lock().unwrap())
            }
        }
    }

    impl Keyring for MemoryKeyring {
        fn get<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<Option<SecretString>, String>> {
            Box::pin(async move { Ok(self.entries()?.get(account).cloned().map(SecretString::from)) })
        }

        fn put<'a>(&'a self, account: &'a str, secret: SecretString) -> BoxFuture<'a, Result<(), String>> {
            Box::pin(async move {
                self.entries()?.insert(account.to_owned(), secret.expose_secret().to_owned());
                Ok(())
            })
        }

        fn remove<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<(), String>> {
            Box::pin(async move {
                self.entries()?.remove(account);
                Ok(())
            })
        }
    }

    fn one(name: &str, value: &str) -> VariableValues {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    fn stored(dir: &tempfile::TempDir, keyring: Option<Arc<MemoryKeyring>>) -> StoredVariables {
        let keyring = keyring.map(|keyring| keyring as Arc<dyn Keyring>);
        StoredVariables { keyring, ..StoredVariables::of(&Home::at(dir.path())) }
    }

    const AUTO: KeyringPreference = KeyringPreference::WhereThereIsOne;

    #[tokio::test]
    async fn stored_variables_are_in_a_file_that_only_its_owner_can_read() {
        let dir = tempfile::tempdir().unwrap();
        let stored = stored(&dir, None);
        assert_eq!(stored.read().await.unwrap(), BTreeMap::new());
        for (name, value) in [("A", "1"), ("B", "2"), ("A", "3")] {
            assert_eq!(stored.add(one(name, value), AUTO).await.unwrap(), ValueLocation::File);
        }
        let read = stored.read().await.unwrap();
        assert_eq!((read["A"].as_str(), read["B"].as_str(), read.len()), ("3", "2", 2));
        assert_eq!(stored.read_blocking().unwrap(), read);
        let mode = std::fs::metadata(&stored.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refused = stored.add(one("C", "4"), KeyringPreference::Required).await.unwrap_err();
        assert!(refused.contains("requires a keyring"), "{refused}");
    }

    #[tokio::test]
    async fn adding_a_variable_moves_all_variables_to_the_file_or_the_keyring() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Arc::new(MemoryKeyring::default());
        stored(&dir, None).add(one("A", "old-secret"), AUTO).await.unwrap();
        let stored = stored(&dir, Some(Arc::clone(&keyring)));
        assert_eq!(
            stored.read().await.unwrap(),
            one("A", "old-secret"),
            "a value in the file is read even if there is a keyring"
        );
        assert_eq!(stored.add(one("B", "new-secret"), AUTO).await.unwrap(), ValueLocation::Keyring);
        let file = std::fs::read_to_string(&stored.path).unwrap();
        assert!(
            !file.contains("secret") && file.contains("\"A\""),
            "the file contains a secret or lacks a name: {file}"
        );
        let both = BTreeMap::from([("A".into(), "old-secret".into()), ("B".into(), "new-secret".into())]);
        assert_eq!(stored.read_blocking().unwrap(), both);
        assert_eq!(stored.names().unwrap(), both.keys().cloned().collect());
        let added = stored.add(one("C", "3"), KeyringPreference::Never).await.unwrap();
        assert_eq!((added, stored.read().await.unwrap().len()), (ValueLocation::File, 3));
        assert!(keyring.entries().unwrap().is_empty(), "the keyring still has an entry");
    }

    #[tokio::test]
    async fn locked_keyring_loses_no_stored_variable() {
        let dir = tempfile::tempdir().unwrap();
        let keyring = Arc::new(MemoryKeyring::default());
        let stored = stored(&dir, Some(Arc::clone(&keyring)));
        *keyring.is_locked.lock().unwrap() = true;
        assert_eq!(stored.add(one("A", "1"), AUTO).await.unwrap(), ValueLocation::File);
        *keyring.is_locked.lock().unwrap() = false;
        stored.add(one("B", "2"), AUTO).await.unwrap();
        *keyring.is_locked.lock().unwrap() = true;
        for result in [stored.read().await.map(drop), stored.add(one("C", "3"), AUTO).await.map(drop)] {
            assert!(result.unwrap_err().contains("in the keyring, which haft cannot use: locked"));
        }
        *keyring.is_locked.lock().unwrap() = false;
        assert_eq!(stored.read().await.unwrap().len(), 2);
    }
}
