//! Stored conversations of the server: one file for each conversation, in the directory of its tenant.

use std::io;
use std::path::PathBuf;

use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::grants::lock;
use crate::owned_records::{OwnedRecords, read_owned};
use crate::tenant::directory_of;

/// The version of the file format. haft reads no other version.
const VERSION: u32 = 1;

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

/// The files of all conversations.
#[derive(Debug, Clone)]
pub struct ConversationStore {
    root: PathBuf,
}

impl ConversationStore {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("conversations") }
    }

    /// Creates an empty conversation.
    pub fn create(&self, owner: &Principal, id: &str, created_s: u64) -> io::Result<ConversationRecord> {
        let path =
            self.path(owner, id).ok_or_else(|| io::Error::other("the conversation id is not valid"))?;
        private_file::create_parent_dir(&path)?;
        let record = ConversationRecord {
            version: VERSION,
            id: id.to_owned(),
            subject: owner.subject().to_owned(),
            created_s,
            metadata: Map::new(),
            items: Vec::new(),
        };
        private_file::replace_unsynced(&path, &serde_json::to_vec(&record)?)?;
        Ok(record)
    }

    /// Returns a conversation; `None` if there is none, or if it belongs to another subject or tenant.
    pub fn get(&self, owner: &Principal, id: &str) -> io::Result<Option<ConversationRecord>> {
        let Some(path) = self.path(owner, id) else { return Ok(None) };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let record: ConversationRecord = serde_json::from_slice(&bytes)?;
        let is_own = record.version == VERSION && record.subject == owner.subject();
        Ok(is_own.then_some(record))
    }

    /// Changes a conversation while no other process can change it. Returns the changed conversation; `None` if there
    /// is none with this id.
    pub fn change(
        &self,
        owner: &Principal,
        id: &str,
        change: impl FnOnce(&mut ConversationRecord),
    ) -> io::Result<Option<ConversationRecord>> {
        let Some(path) = self.path(owner, id) else { return Ok(None) };
        if self.get(owner, id)?.is_none() {
            return Ok(None);
        }
        let _lock = lock(&path.with_extension("lock"))?;
        let Some(mut record) = self.get(owner, id)? else { return Ok(None) };
        change(&mut record);
        private_file::replace_unsynced(&path, &serde_json::to_vec(&record)?)?;
        Ok(Some(record))
    }

    /// Returns the ids of all conversations of a subject.
    pub(crate) fn owned_ids(&self, owner: &Principal) -> io::Result<OwnedRecords<String>> {
        let directory = self.root.join(directory_of(owner.tenant()));
        read_owned(&directory, |id| Ok(self.get(owner, id)?.map(|record| record.id)))
    }

    /// Deletes a conversation. Returns false if the owner has none with this id.
    pub fn delete(&self, owner: &Principal, id: &str) -> io::Result<bool> {
        match (self.get(owner, id)?, self.path(owner, id)) {
            (Some(_), Some(path)) => {
                let _ = std::fs::remove_file(path.with_extension("lock"));
                std::fs::remove_file(path).map(|()| true)
            }
            _ => Ok(false),
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conversation_is_visible_only_to_its_subject() {
        let directory = tempfile::tempdir().unwrap();
        let store = ConversationStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        store.create(&anna, "conv_1", 1).unwrap();
        let changed = store.change(&anna, "conv_1", |record| record.items.push(json!({"id": "a"}))).unwrap();
        assert_eq!(changed.as_ref().map(|record| record.items.len()), Some(1));
        assert_eq!(store.get(&anna, "conv_1").unwrap(), changed);
        for other in [Principal::new("acme", "bert", "k"), Principal::new("other", "anna", "k")] {
            assert_eq!(store.get(&other, "conv_1").unwrap(), None);
            assert_eq!(store.change(&other, "conv_1", |record| record.items.clear()).unwrap(), None);
            assert!(!store.delete(&other, "conv_1").unwrap());
        }
        for id in ["conv_", "conv_../conv_1", "resp_1", "conv_a/b"] {
            assert!(store.get(&anna, id).unwrap().is_none() && store.create(&anna, id, 1).is_err(), "{id}");
        }
        assert!(store.delete(&anna, "conv_1").unwrap() && !store.delete(&anna, "conv_1").unwrap());
    }
}
