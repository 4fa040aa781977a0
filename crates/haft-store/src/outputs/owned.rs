//! The outputs of calls outside of runs, such as the calls of a gateway's clients. No session or response names the
//! owner of these outputs, so a record does: `output-owners/TENANT/SUBJECT/SESSION`.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use haft_core::event_store::RunKey;
use haft_core::output_store::{Handle, OutputStore, OutputStores, Spool, StoreEntry, StoreError};
use haft_core::position::SessionId;
use haft_core::principal::Principal;
use haft_core::settings::outputs::StoreLimits;
use haft_fs::private_file;
use uuid::Uuid;

use super::{FileOutputs, unavailable};
use crate::sweep;
use crate::tenant::directory_of;

impl FileOutputs {
    /// Opens the outputs of calls outside of runs. They count against the limits of the owner's tenant.
    pub fn open_owned(
        &self,
        owner: &Principal,
        session: SessionId,
        limits: &StoreLimits,
    ) -> Result<Arc<dyn OutputStore>, StoreError> {
        let key = RunKey { tenant: owner.tenant().to_owned(), run: session };
        let store = self.open(&key, limits)?;
        let record = self.records_of(owner).join(session.to_string());
        Ok(Arc::new(OwnedOutputs { store, outputs: self.clone(), owner: owner.clone(), record }))
    }

    /// Returns the sessions with outputs of this owner, and their records.
    pub(crate) fn owned_sessions(&self, owner: &Principal) -> io::Result<Vec<(SessionId, PathBuf)>> {
        let records = sweep::list(&self.records_of(owner))?;
        let session = |name: &str| Uuid::parse_str(name).ok().map(|id| SessionId(id.as_u128()));
        let named = records
            .into_iter()
            .filter_map(|entry| Some((session(entry.file_name().to_str()?)?, entry.path())));
        Ok(named.collect())
    }

    fn records_of(&self, owner: &Principal) -> PathBuf {
        let records = self.root.with_file_name("output-owners");
        records.join(directory_of(owner.tenant())).join(directory_of(owner.subject()))
    }
}

/// The outputs of one session, with a record of their owner.
struct OwnedOutputs {
    store: Arc<dyn OutputStore>,
    outputs: FileOutputs,
    owner: Principal,
    record: PathBuf,
}

impl OwnedOutputs {
    /// Writes the record. First removes the records of sessions whose outputs have expired.
    fn write_record(&self) -> io::Result<()> {
        if self.record.exists() {
            return Ok(());
        }
        for (session, record) in self.outputs.owned_sessions(&self.owner)? {
            let key = RunKey { tenant: self.owner.tenant().to_owned(), run: session };
            if !self.outputs.directory_of(&key).exists() {
                // Another process may have removed the record.
                let _ = std::fs::remove_file(record);
            }
        }
        private_file::create_parent_dir(&self.record)?;
        private_file::replace_unsynced(&self.record, b"")
    }
}

impl OutputStore for OwnedOutputs {
    /// Writes the record after the directory of the outputs exists, because another process removes records without
    /// such a directory.
    fn begin(&self) -> Result<Box<dyn Spool>, StoreError> {
        let spool = self.store.begin()?;
        self.write_record().map_err(unavailable)?;
        Ok(spool)
    }

    fn read_range<'a>(
        &'a self,
        handle: &'a Handle,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Vec<u8>, StoreError>> {
        self.store.read_range(handle, range)
    }

    fn reopen(&self, entry: &StoreEntry) -> Result<Box<dyn Spool>, StoreError> {
        self.store.reopen(entry)
    }

    fn delete<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, Result<(), StoreError>> {
        self.store.delete(handle)
    }

    fn is_empty(&self) -> bool {
        self.store.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use haft_core::home::Home;

    use super::*;
    use crate::principal_data::PrincipalData;

    fn store(home: &Home, owner: &Principal, session: u128) {
        let outputs = FileOutputs::of(home);
        let store = outputs.open_owned(owner, SessionId(session), &StoreLimits::default()).unwrap();
        let mut spool = store.begin().unwrap();
        spool.write(b"text").unwrap();
        spool.finish().unwrap();
    }

    #[test]
    fn deletion_of_a_principal_removes_outputs_of_its_calls_outside_runs() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path());
        let (anna, bert) = (Principal::new("acme", "anna", "k"), Principal::new("acme", "bert", "k"));
        store(&home, &anna, 1);
        store(&home, &bert, 2);
        let directory = |session: u128| {
            let key = RunKey { tenant: "acme".into(), run: SessionId(session) };
            FileOutputs::of(&home).directory_of(&key)
        };
        assert!(directory(1).starts_with(home.data().join("outputs/tenant-acme")) && directory(1).exists());
        PrincipalData::of(&home, anna.clone()).delete().unwrap();
        assert!(!directory(1).exists() && directory(2).exists());
        assert_eq!(FileOutputs::of(&home).owned_sessions(&anna).unwrap(), []);
    }

    #[test]
    fn record_without_outputs_is_removed_by_the_next_session_of_its_owner() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::at(place.path());
        let anna = Principal::new("acme", "anna", "k");
        store(&home, &anna, 1);
        let key = RunKey { tenant: "acme".into(), run: SessionId(1) };
        std::fs::remove_dir_all(FileOutputs::of(&home).directory_of(&key)).unwrap();
        store(&home, &anna, 2);
        let sessions = FileOutputs::of(&home).owned_sessions(&anna).unwrap();
        assert_eq!(sessions.iter().map(|(session, _)| session.0).collect::<Vec<_>>(), [2]);
    }
}
