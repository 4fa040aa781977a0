//! The monthly cost of the keys with a cost limit. A cost that cannot be stored is kept in memory until it can be stored.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use haft_store::spending::{KeyLocks, MissingSum, SpendingStore};

use crate::store_errors::{StoreErrors, StoreKind};

/// The costs of all keys.
#[derive(Debug)]
pub(crate) struct KeySpending {
    store: SpendingStore,
    errors: Arc<StoreErrors>,
    /// The costs that are not stored yet, by key. At most one entry for each key. The lock of a key is held while its file
    /// changes, so that its cost is added once; keys with other locks do not wait.
    unsaved: KeyLocks<HashMap<String, UnsavedCost>>,
}

#[derive(Debug)]
struct UnsavedCost {
    month: String,
    nano_usd: u64,
}

impl KeySpending {
    pub(crate) fn new(store: SpendingStore, errors: Arc<StoreErrors>) -> Self {
        Self { store, errors, unsaved: KeyLocks::default() }
    }

    /// Returns the cost of a key in this month. Returns an error if the cost is not known: if the sum cannot be read, or
    /// if an earlier cost still cannot be stored.
    pub(crate) fn spent(&self, key: &str, month: &str) -> io::Result<u64> {
        let mut unsaved = self.unsaved.lock(key);
        if let Some(cost) = unsaved.get(key).filter(|cost| cost.month == month) {
            self.add(key, (month, cost.nano_usd), MissingSum::Created)?;
        }
        unsaved.remove(key);
        self.store.spent(key, month)
    }

    /// Adds the cost of a model request. If it cannot be stored, keeps it in memory.
    pub(crate) fn charge(&self, key: &str, month: &str, nano_usd: u64, missing: MissingSum) {
        let mut unsaved = self.unsaved.lock(key);
        let before = unsaved.get(key).filter(|cost| cost.month == month).map_or(0, |cost| cost.nano_usd);
        let nano_usd = nano_usd.saturating_add(before);
        match self.add(key, (month, nano_usd), missing) {
            Ok(()) => unsaved.remove(key),
            Err(_) => unsaved.insert(key.to_owned(), UnsavedCost { month: month.to_owned(), nano_usd }),
        };
    }

    fn add(&self, key: &str, (month, nano_usd): (&str, u64), missing: MissingSum) -> io::Result<()> {
        let added = self.store.add(key, month, nano_usd, missing);
        added.inspect_err(|error| self.errors.note(StoreKind::Spending, error))
    }
}

#[cfg(test)]
mod tests {
    use haft_core::home::Home;

    use super::*;
    use crate::metrics::Metrics;
    use crate::operator_log::OperatorLog;

    #[test]
    fn cost_that_cannot_be_stored_makes_the_sum_unknown_until_it_is_stored() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let errors = Arc::new(StoreErrors::new(Metrics::default(), OperatorLog::default()));
        let spending = KeySpending::new(SpendingStore::of(&home), errors);
        let charge = |nano_usd| spending.charge("key_1", "2026-11", nano_usd, MissingSum::Created);
        charge(1);
        let file = home.data().join("spending/key_1.json");
        let content = std::fs::read(&file).unwrap();
        // A directory in the place of the file can be neither read nor replaced.
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        charge(10);
        charge(100);
        assert!(spending.spent("key_1", "2026-11").is_err());
        std::fs::remove_dir(&file).unwrap();
        std::fs::write(&file, content).unwrap();
        assert_eq!(spending.spent("key_1", "2026-11").unwrap(), 111);
        assert_eq!(spending.spent("key_1", "2026-11").unwrap(), 111, "the cost is added once");
        charge(1_000);
        assert_eq!(spending.spent("key_1", "2026-11").unwrap(), 1_111);
        assert_eq!(spending.spent("key_1", "2026-12").unwrap(), 0);
    }

    #[test]
    fn cost_of_a_key_without_a_limit_is_not_stored() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let errors = Arc::new(StoreErrors::new(Metrics::default(), OperatorLog::default()));
        let spending = KeySpending::new(SpendingStore::of(&home), errors);
        spending.charge("key_1", "2026-11", 1, MissingSum::Ignored);
        assert!(!home.data().join("spending").exists());
    }
}
