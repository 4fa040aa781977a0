//! The keys that encrypt texts for clients: one private file, replaced as a whole under a lock.
//!
//! A text is encrypted with the newest key. Older keys are kept, so that a client can send back a text that was
//! encrypted earlier.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haft_core::home::Home;
use haft_fs::private_file;
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::grants::lock;

/// The version of the file format. haft reads no other version.
const VERSION: u32 = 1;

/// The size of a key, in bytes.
pub const SEAL_KEY_BYTES: usize = 32;

/// The age at which a new key replaces the newest one.
pub const SEAL_KEY_LIFETIME: Duration = Duration::from_hours(24 * 30);

/// The maximum number of keys in the file. With one key a month, a text can be decrypted for five years.
pub const SEAL_KEYS_MAX: usize = 60;

/// One encryption key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealKey {
    /// The public id of the key, which is a part of every text that the key encrypted.
    pub id: String,
    /// The creation time, in milliseconds since 1970.
    created_ms: u64,
    secret: [u8; SEAL_KEY_BYTES],
}

impl SealKey {
    /// Returns the secret of the key.
    pub fn expose(&self) -> &[u8; SEAL_KEY_BYTES] {
        &self.secret
    }

    fn new(now_ms: u64) -> io::Result<Self> {
        let id = format!("{:08x}", u32::from_be_bytes(random()?));
        Ok(Self { id, created_ms: now_ms, secret: random()? })
    }

    fn is_outdated(&self, now_ms: u64) -> bool {
        let lifetime_ms = u64::try_from(SEAL_KEY_LIFETIME.as_millis()).unwrap_or(u64::MAX);
        self.created_ms.saturating_add(lifetime_ms) <= now_ms
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The file of all keys.
#[derive(Debug, Clone)]
pub struct SealKeyStore {
    path: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct SealKeysFile {
    version: u32,
    /// The keys, the oldest first.
    keys: Vec<SealKey>,
}

impl SealKeyStore {
    /// Returns the store in haft's home directory. Encrypting the first text creates the file.
    pub fn of(home: &Home) -> Self {
        Self { path: home.data().join("seal-keys.json") }
    }

    /// Returns the key for new texts. Creates one if there is none, or if the newest one is too old.
    pub fn newest(&self, now_ms: u64) -> io::Result<SealKey> {
        let is_current = |key: &SealKey| !key.is_outdated(now_ms);
        if let Some(key) = self.load()?.pop().filter(is_current) {
            return Ok(key);
        }
        let _lock = lock(&self.path.with_extension("lock"))?;
        // Another process may have created a key in the meantime.
        let mut keys = self.load()?;
        if let Some(key) = keys.last().cloned().filter(is_current) {
            return Ok(key);
        }
        let key = SealKey::new(now_ms)?;
        keys.push(key.clone());
        keys.drain(..keys.len().saturating_sub(SEAL_KEYS_MAX));
        let bytes = serde_json::to_vec(&SealKeysFile { version: VERSION, keys })?;
        private_file::replace(&self.path, &bytes)?;
        Ok(key)
    }

    /// Returns the key with this id.
    pub fn find(&self, id: &str) -> io::Result<Option<SealKey>> {
        Ok(self.load()?.into_iter().find(|key| key.id == id))
    }

    fn load(&self) -> io::Result<Vec<SealKey>> {
        let bytes = match std::fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let problem = |text: String| io::Error::other(format!("{}: {text}", self.path.display()));
        let file: SealKeysFile =
            serde_json::from_slice(&bytes).map_err(|error| problem(error.to_string()))?;
        if file.version != VERSION {
            let found = file.version;
            return Err(problem(format!(
                "the file of encryption keys has version {found}; this version of haft reads version \
                 {VERSION}"
            )));
        }
        Ok(file.keys)
    }
}

fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const MONTH_MS: u64 = 30 * 24 * 3_600_000;

    #[test]
    fn seal_key_is_replaced_after_its_lifetime_and_stays_readable() {
        let directory = tempfile::tempdir().unwrap();
        let store = SealKeyStore::of(&Home::at(directory.path()));
        let first = store.newest(5).unwrap();
        assert_eq!(store.newest(4 + MONTH_MS).unwrap(), first);
        let second = store.newest(5 + MONTH_MS).unwrap();
        assert_ne!(second.expose(), first.expose());
        assert_eq!(store.find(&first.id).unwrap(), Some(first.clone()));
        assert_eq!(store.find(&second.id).unwrap(), Some(second));
        assert_eq!(store.find("none").unwrap(), None);
        for month in 2..200 {
            store.newest(5 + month * MONTH_MS).unwrap();
        }
        assert_eq!(store.load().unwrap().len(), SEAL_KEYS_MAX);
        assert_eq!(store.find(&first.id).unwrap(), None);
        let mode = std::fs::metadata(&store.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
