//! Stored conversations of the server: one file for each conversation, in the directory of its tenant.

use std::io;
use std::path::{Path, PathBuf};

use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::lock_file::LockFile;
use crate::owned_records::{OwnedRecords, read_owned};
use crate::tenant::directory_of;

/// The version of the file format. haft reads no other version.
const VERSION: u32 = 1;

/// The maximum number of items in a conversation.
pub const CONVERSATION_ITEMS_MAX: usize = 10_000;

/// The maximum size of a stored conversation, in bytes. Every change reads and writes the whole conversation, and every
/// response in it reads it again.
pub const CONVERSATION_BYTES_MAX: usize = 32 << 20;

/// A conversation: items in their wire format, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConversationRecord {
    version: u32,
    /// The id in the API, which is also the file name.
    pub id: String,
    subject: String,
    /// The creation time, in seconds since 1970.
    pub created_s: u64,
    pub metadata: Map<String, Value>,
    pub items: Vec<Value>,
}

/// The initial content of a conversation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NewConversation {
    /// The creation time, in seconds since 1970.
    pub created_s: u64,
    pub metadata: Map<String, Value>,
    pub items: Vec<Value>,
}

/// The reason why the store does not change a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConversationRefusal {
    #[error("there is no such conversation")]
    NotFound,
    #[error("a conversation can have at most {CONVERSATION_ITEMS_MAX} items; begin a new conversation")]
    TooManyItems,
    #[error("a conversation can have at most {CONVERSATION_BYTES_MAX} bytes; begin a new conversation")]
    TooManyBytes,
}

/// The size of a conversation.
#[derive(Debug, Clone, Copy, Default)]
struct ConversationSize {
    items: usize,
    bytes: usize,
}

impl ConversationSize {
    /// Refuses a change to a larger size that exceeds a limit. A conversation that is already too large can shrink, so
    /// that its owner can delete items.
    fn check_change_to(self, changed: Self) -> Result<(), ConversationRefusal> {
        if changed.items > CONVERSATION_ITEMS_MAX.max(self.items) {
            return Err(ConversationRefusal::TooManyItems);
        }
        if changed.bytes > CONVERSATION_BYTES_MAX.max(self.bytes) {
            return Err(ConversationRefusal::TooManyBytes);
        }
        Ok(())
    }
}

/// The files of all conversations.
#[derive(Debug, Clone)]
pub struct ConversationStore {
    root: PathBuf,
}

impl ConversationStore {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("conversations") }
    }

    /// Creates a conversation, unless its content exceeds a limit.
    pub fn create(
        &self,
        owner: &Principal,
        id: &str,
        new: NewConversation,
    ) -> io::Result<Result<ConversationRecord, ConversationRefusal>> {
        let path =
            self.path(owner, id).ok_or_else(|| io::Error::other("the conversation id is not valid"))?;
        let NewConversation { created_s, metadata, items } = new;
        let record = ConversationRecord {
            version: VERSION,
            id: id.to_owned(),
            subject: owner.subject().to_owned(),
            created_s,
            metadata,
            items,
        };
        private_file::create_parent_dir(&path)?;
        write(&path, record, ConversationSize::default())
    }

    /// Returns a conversation; `None` if there is none, or if it belongs to another subject or tenant.
    pub fn get(&self, owner: &Principal, id: &str) -> io::Result<Option<ConversationRecord>> {
        Ok(self.read(owner, id)?.map(|(record, _)| record))
    }

    /// Returns a conversation, and its size.
    fn read(
        &self,
        owner: &Principal,
        id: &str,
    ) -> io::Result<Option<(ConversationRecord, ConversationSize)>> {
        let Some(path) = self.path(owner, id) else { return Ok(None) };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let record: ConversationRecord = serde_json::from_slice(&bytes)?;
        let is_own = record.version == VERSION && record.subject == owner.subject();
        let size = ConversationSize { items: record.items.len(), bytes: bytes.len() };
        Ok(is_own.then_some((record, size)))
    }

    /// Changes a conversation while no other process can change or delete it. Returns the changed conversation.
    pub fn change(
        &self,
        owner: &Principal,
        id: &str,
        change: impl FnOnce(&mut ConversationRecord),
    ) -> io::Result<Result<ConversationRecord, ConversationRefusal>> {
        let Some((path, _lock)) = self.locked(owner, id)? else {
            return Ok(Err(ConversationRefusal::NotFound));
        };
        // Another process may have deleted the conversation before this process got the lock.
        let Some((mut record, before)) = self.read(owner, id)? else {
            return Ok(Err(ConversationRefusal::NotFound));
        };
        change(&mut record);
        write(&path, record, before)
    }

    /// Locks a conversation. Returns `None` if the owner has none with this id.
    fn locked(&self, owner: &Principal, id: &str) -> io::Result<Option<(PathBuf, LockFile)>> {
        let Some(path) = self.path(owner, id) else { return Ok(None) };
        if self.get(owner, id)?.is_none() {
            return Ok(None);
        }
        let lock = LockFile::lock(&path.with_extension(LOCK_SUFFIX))?;
        Ok(Some((path, lock)))
    }

    /// Returns the ids of all conversations of a subject.
    pub(crate) fn owned_ids(&self, owner: &Principal) -> io::Result<OwnedRecords<String>> {
        let directory = self.root.join(directory_of(owner.tenant()));
        read_owned(&directory, |id| Ok(self.get(owner, id)?.map(|record| record.id)))
    }

    /// Deletes a conversation. Returns false if the owner has none with this id.
    pub fn delete(&self, owner: &Principal, id: &str) -> io::Result<bool> {
        // Without the lock, a concurrent change could write the conversation again.
        let Some((path, _lock)) = self.locked(owner, id)? else { return Ok(false) };
        match std::fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            removed => removed.map(|()| true),
        }
    }

    /// Returns the path of a conversation; `None` for an invalid id. The id comes from a client, and `../` in it could
    /// lead out of the directory.
    fn path(&self, owner: &Principal, id: &str) -> Option<PathBuf> {
        let rest = id.strip_prefix("conv_")?;
        let is_plain =
            !rest.is_empty() && rest.len() <= 64 && rest.bytes().all(|b| b.is_ascii_alphanumeric());
        is_plain.then(|| self.root.join(directory_of(owner.tenant())).join(format!("{id}.json")))
    }
}

/// The file name extension of the lock of a conversation.
pub(crate) const LOCK_SUFFIX: &str = "lock";

/// Writes a conversation, unless it exceeds a limit. `before` is the size of the stored conversation.
fn write(
    path: &Path,
    record: ConversationRecord,
    before: ConversationSize,
) -> io::Result<Result<ConversationRecord, ConversationRefusal>> {
    let bytes = serde_json::to_vec(&record)?;
    let size = ConversationSize { items: record.items.len(), bytes: bytes.len() };
    if let Err(refusal) = before.check_change_to(size) {
        return Ok(Err(refusal));
    }
    private_file::replace_unsynced(path, &bytes)?;
    Ok(Ok(record))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    /// Creates an empty conversation.
    fn create(
        store: &ConversationStore,
        owner: &Principal,
        id: &str,
    ) -> io::Result<Result<ConversationRecord, ConversationRefusal>> {
        store.create(owner, id, NewConversation::default())
    }

    #[test]
    fn conversation_is_visible_only_to_its_subject() {
        let directory = tempfile::tempdir().unwrap();
        let store = ConversationStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        create(&store, &anna, "conv_1").unwrap().unwrap();
        let changed = store.change(&anna, "conv_1", |record| record.items.push(json!({"id": "a"}))).unwrap();
        assert_eq!(changed.as_ref().map(|record| record.items.len()), Ok(1));
        assert_eq!(store.get(&anna, "conv_1").unwrap(), changed.ok());
        for other in [Principal::new("acme", "bert", "k"), Principal::new("other", "anna", "k")] {
            assert_eq!(store.get(&other, "conv_1").unwrap(), None);
            let changed = store.change(&other, "conv_1", |record| record.items.clear()).unwrap();
            assert_eq!(changed, Err(ConversationRefusal::NotFound));
            assert!(!store.delete(&other, "conv_1").unwrap());
        }
        for id in ["conv_", "conv_../conv_1", "resp_1", "conv_a/b"] {
            assert!(store.get(&anna, id).unwrap().is_none() && create(&store, &anna, id).is_err(), "{id}");
        }
        assert!(store.delete(&anna, "conv_1").unwrap() && !store.delete(&anna, "conv_1").unwrap());
    }
    #[test]
    fn conversation_has_a_limit_on_items_and_bytes_but_can_always_shrink() {
        let directory = tempfile::tempdir().unwrap();
        let store = ConversationStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        create(&store, &anna, "conv_1").unwrap().unwrap();
        let full =
            store.change(&anna, "conv_1", |record| record.items = vec![json!(1); CONVERSATION_ITEMS_MAX]);
        assert!(full.unwrap().is_ok());
        let more = |item: Value| store.change(&anna, "conv_1", |record| record.items.push(item)).unwrap();
        assert_eq!(more(json!(1)), Err(ConversationRefusal::TooManyItems));
        store.change(&anna, "conv_1", |record| record.items.clear()).unwrap().unwrap();
        let large = "x".repeat(CONVERSATION_BYTES_MAX / 2);
        assert!(more(json!(large)).is_ok());
        assert_eq!(more(json!(large)), Err(ConversationRefusal::TooManyBytes));
        assert_eq!(store.get(&anna, "conv_1").unwrap().unwrap().items.len(), 1);
        // A file that an earlier version has written can be larger.
        let path = store.path(&anna, "conv_1").unwrap();
        let mut record = store.get(&anna, "conv_1").unwrap().unwrap();
        record.items = vec![json!(large); 4];
        std::fs::write(path, serde_json::to_vec(&record).unwrap()).unwrap();
        let shrunk = store.change(&anna, "conv_1", |record| drop(record.items.pop())).unwrap();
        assert_eq!(shrunk.map(|record| record.items.len()), Ok(3));
        let new = NewConversation { items: vec![json!(large); 2], ..NewConversation::default() };
        assert_eq!(store.create(&anna, "conv_2", new).unwrap(), Err(ConversationRefusal::TooManyBytes));
        assert_eq!(store.get(&anna, "conv_2").unwrap(), None);
    }

    #[test]
    fn conversation_deleted_during_a_change_stays_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let store = ConversationStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        create(&store, &anna, "conv_1").unwrap().unwrap();
        let path = store.path(&anna, "conv_1").unwrap();
        thread::scope(|scope| {
            let (begun, beginning) = mpsc::channel();
            let (store, anna) = (&store, &anna);
            let mut deleting = None;
            let changed = store.change(anna, "conv_1", |record| {
                deleting = Some(scope.spawn(move || {
                    begun.send(()).unwrap();
                    store.delete(anna, "conv_1").unwrap()
                }));
                beginning.recv().unwrap();
                // If the deletion did not wait for the lock, it would remove the file during this wait.
                let end = Instant::now() + Duration::from_millis(100);
                while path.exists() && Instant::now() < end {
                    thread::yield_now();
                }
                record.items.push(json!(1));
            });
            assert!(changed.unwrap().is_ok(), "the deletion waits for the change");
            assert!(deleting.unwrap().join().unwrap());
        });
        assert_eq!(store.get(&anna, "conv_1").unwrap(), None);
        assert!(!path.with_extension(LOCK_SUFFIX).exists());
    }
}
