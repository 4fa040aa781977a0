//! The amounts spent with API keys that have a cost limit: one small file for each key, with the total of the current
//! month.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haft_core::home::Home;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};

/// The files in `data/spending`. Only keys with a limit have a file, so that other keys cause no writes.
#[derive(Debug)]
pub struct SpendingStore {
    root: PathBuf,
    /// The lock of a key is held while its sum changes. Locks of this process are enough, because only one server at a
    /// time uses a home directory.
    changing: KeyLocks<()>,
}

/// The number of locks. With more locks than processor cores, threads rarely wait for the lock of another key.
const LOCKS: usize = 64;

/// Locks for keys. Several keys share a lock, so that the number of locks has a limit.
#[derive(Debug)]
pub struct KeyLocks<T>([Mutex<T>; LOCKS]);

impl<T: Default> Default for KeyLocks<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<T> KeyLocks<T> {
    /// Locks the data of a key, and of the keys that share its lock.
    pub fn lock(&self, key: &str) -> MutexGuard<'_, T> {
        self.of(key).lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, key: &str) -> &Mutex<T> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or_default();
        &self.0[index]
    }
}

/// Selects the handling of a cost of a key that has no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingSum {
    /// Creates the file, because the key has a limit.
    Created,
    /// Ignores the cost, because the key has no limit.
    Ignored,
}

/// The cost of a key in one month. In any other month, the cost is 0.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct MonthSum {
    /// The month in UTC, such as `2026-11`.
    month: String,
    nano_usd: u64,
}

impl SpendingStore {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("spending"), changing: KeyLocks::default() }
    }

    /// Returns the cost of a key in this month. Creates the file if it is missing, so that costs are counted from now
    /// on. Returns an error if the file cannot be read or created, because a limit that cannot be checked must not
    /// allow requests.
    pub fn spent(&self, key: &str, month: &str) -> io::Result<u64> {
        let _changing = self.changing.lock(key);
        match self.load(key)? {
            Some(sum) if sum.month == month => Ok(sum.nano_usd),
            Some(_) | None => {
                self.save(key, &MonthSum { month: month.to_owned(), nano_usd: 0 })?;
                Ok(0)
            }
        }
    }

    /// Adds the cost of a model request.
    pub fn add(&self, key: &str, month: &str, nano_usd: u64, missing: MissingSum) -> io::Result<()> {
        let _changing = self.changing.lock(key);
        let sum = match (self.load(key)?, missing) {
            (None, MissingSum::Ignored) => return Ok(()),
            (sum, MissingSum::Created | MissingSum::Ignored) => sum.unwrap_or_default(),
        };
        let before = if sum.month == month { sum.nano_usd } else { 0 };
        self.save(key, &MonthSum { month: month.to_owned(), nano_usd: before.saturating_add(nano_usd) })
    }

    fn load(&self, key: &str) -> io::Result<Option<MonthSum>> {
        match std::fs::read(self.path(key)?) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn save(&self, key: &str, sum: &MonthSum) -> io::Result<()> {
        let path = self.path(key)?;
        private_file::create_parent_dir(&path)?;
        // Do not sync: a power failure may lose the last seconds of spending, but a sync would delay every turn.
        private_file::replace_unsynced(&path, &serde_json::to_vec(sum)?)
    }

    /// Returns the file of a key; `None` for an id that no key has.
    pub(crate) fn file_of(&self, key: &str) -> Option<PathBuf> {
        self.path(key).ok()
    }

    fn path(&self, key: &str) -> io::Result<PathBuf> {
        let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if key.is_empty() || !is_plain {
            return Err(io::Error::other(
                "the key id contains characters that are not allowed in a file name",
            ));
        }
        Ok(self.root.join(format!("{key}.json")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spending_survives_a_restart_and_starts_at_zero_each_month() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let store = SpendingStore::of(&home);
        store.add("key_1", "2026-11", 5, MissingSum::Ignored).unwrap();
        assert_eq!(store.spent("key_1", "2026-11").unwrap(), 0, "a key without a limit has no file");
        store.add("key_1", "2026-11", 5, MissingSum::Ignored).unwrap();
        store.add("key_1", "2026-11", 2, MissingSum::Created).unwrap();
        let again = SpendingStore::of(&home);
        assert_eq!(again.spent("key_1", "2026-11").unwrap(), 7);
        assert_eq!(again.spent("key_1", "2026-12").unwrap(), 0);
        again.add("key_1", "2026-12", 3, MissingSum::Ignored).unwrap();
        assert_eq!(again.spent("key_1", "2026-12").unwrap(), 3);
        again.add("key_2", "2026-12", 4, MissingSum::Created).unwrap();
        assert_eq!(again.spent("key_2", "2026-12").unwrap(), 4);
    }

    #[test]
    fn locked_key_does_not_delay_the_cost_of_another_key() {
        let directory = tempfile::tempdir().unwrap();
        let store = SpendingStore::of(&Home::at(directory.path()));
        let _changing = store.changing.lock("key_0");
        let is_free = |key: &String| !std::ptr::eq(store.changing.of(key), store.changing.of("key_0"));
        let other = (1..100).map(|number| format!("key_{number}")).find(is_free).unwrap();
        store.add(&other, "2026-11", 5, MissingSum::Created).unwrap();
        assert_eq!(store.spent(&other, "2026-11").unwrap(), 5);
    }

    #[test]
    fn damaged_spending_file_or_unsafe_key_id_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let store = SpendingStore::of(&home);
        for key in ["", "../x", "a/b", "a.json"] {
            assert!(store.spent(key, "2026-11").is_err(), "{key}");
        }
        store.spent("key_1", "2026-11").unwrap();
        std::fs::write(home.data().join("spending/key_1.json"), "{").unwrap();
        assert!(store.spent("key_1", "2026-11").is_err());
    }
}
