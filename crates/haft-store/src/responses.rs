//! Stored responses of the server: one file for each, in the directory of its tenant.

use std::io;
use std::path::PathBuf;

use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_core::stored::StoredMessage;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::owned_records::{OwnedRecords, read_owned};
use crate::sweep;
use crate::tenant::directory_of;

/// The version of the file format. haft reads no other version.
const VERSION: u32 = 1;

/// One response, and the data that a later request needs to continue from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseRecord {
    version: u32,
    /// The id in the API, which is also the file name.
    pub id: String,
    subject: String,
    /// The run that created the response.
    pub run: String,
    /// The creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// The response object of the API.
    pub response: Value,
    /// The input items of the request, in the form of the API.
    pub input: Vec<Value>,
    /// The whole conversation after the response. It includes the messages of earlier responses, so these can be
    /// deleted.
    pub messages: Vec<StoredMessage>,
    /// The ids of the calls that the client runs. The conversation contains a placeholder for each output.
    pub open_calls: Vec<String>,
    /// The stream events of a background response, whose readers may connect later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Value>,
    /// The calls that wait for a decision of the client. The run is suspended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<WaitingApproval>,
    /// The number of the first run event that belongs to this response. A run that continues after an approval creates
    /// several responses.
    #[serde(default = "first_event")]
    pub first_event: u64,
    /// The digest of the request body. With it, haft refuses to use an idempotency key for another request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<String>,
    /// The name of the workspace of the run; `None` if the run could not use files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

fn first_event() -> u64 {
    1
}

/// A call that waits for a decision of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitingApproval {
    /// The id of the item in the API.
    pub item: String,
    /// The id of the approval in the run.
    pub approval: String,
    /// The arguments that the client saw. Only a call with exactly these arguments is approved.
    pub arguments: Value,
    /// True if only a key with the scope `approvals` may decide.
    pub needs_scope: bool,
    /// True if the request expired without an answer. The call is then denied.
    #[serde(default)]
    pub expired: bool,
    /// The decision, if an earlier request made it while other calls still waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
}

/// The fields of a record that the caller supplies. They are borrowed, because a copy of a long conversation would cost
/// more than writing the record.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct NewResponse<'a> {
    pub id: &'a str,
    pub run: &'a str,
    pub created_ms: u64,
    pub response: &'a Value,
    pub input: &'a [Value],
    pub messages: &'a [StoredMessage],
    pub open_calls: &'a [String],
    #[serde(skip_serializing_if = "<[Value]>::is_empty")]
    pub events: &'a [Value],
    #[serde(skip_serializing_if = "<[WaitingApproval]>::is_empty")]
    pub approvals: &'a [WaitingApproval],
    pub first_event: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<&'a str>,
}

/// The content of a record file, without a copy of its fields. A test checks that [`ResponseRecord`] reads it.
#[derive(Serialize)]
struct RecordFile<'a> {
    version: u32,
    subject: &'a str,
    #[serde(flatten)]
    response: NewResponse<'a>,
}

/// A response in the form of its file, which is not written yet.
#[derive(Debug)]
pub struct EncodedResponse {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl EncodedResponse {
    /// Returns the size of the file in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Writes or replaces the file. After a power failure, the newest responses may be missing.
    pub fn write(&self) -> io::Result<()> {
        private_file::creating_parent_dir(&self.path, || {
            private_file::replace_unsynced(&self.path, &self.bytes)
        })
    }
}

/// A response that must be finished, even by another process after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedResponse {
    /// The id in the API.
    pub id: String,
    pub tenant: String,
    pub subject: String,
    pub credential_id: String,
    /// The names of the scopes that the request had.
    pub scopes: Vec<String>,
}

impl UnfinishedResponse {
    /// Returns the principal that owns the response.
    pub fn principal(&self) -> Principal {
        Principal::new(&self.tenant, &self.subject, &self.credential_id)
    }
}

/// The files of all responses.
#[derive(Debug, Clone)]
pub struct ResponseStore {
    root: PathBuf,
    /// The directory with one small file for each unfinished response, so that a start need not read all responses.
    unfinished: PathBuf,
}

impl ResponseStore {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("responses"), unfinished: home.data().join("responses-unfinished") }
    }

    /// Encodes a response for its file.
    pub fn encode(&self, owner: &Principal, response: NewResponse<'_>) -> io::Result<EncodedResponse> {
        let path =
            self.path(owner, response.id).ok_or_else(|| io::Error::other("the response id is not valid"))?;
        let record = RecordFile { version: VERSION, subject: owner.subject(), response };
        Ok(EncodedResponse { path, bytes: serde_json::to_vec(&record)? })
    }

    /// Stores or replaces a response.
    pub fn put(&self, owner: &Principal, response: NewResponse<'_>) -> io::Result<()> {
        self.encode(owner, response)?.write()
    }

    /// Records that a response must be finished after a restart.
    pub fn begin(&self, unfinished: &UnfinishedResponse) -> io::Result<()> {
        let path = self.unfinished.join(&unfinished.id);
        let bytes = serde_json::to_vec(unfinished)?;
        private_file::creating_parent_dir(&path, || private_file::replace_unsynced(&path, &bytes))
    }

    /// Removes the record of an unfinished response, once the finished response is stored.
    pub fn end(&self, id: &str) -> io::Result<()> {
        match std::fs::remove_file(self.unfinished.join(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns the responses that an earlier process did not finish.
    pub fn unfinished(&self) -> Vec<UnfinishedResponse> {
        let read = |entry: std::fs::DirEntry| serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok();
        sweep::entries(&self.unfinished).filter_map(read).collect()
    }

    /// Returns a response; `None` if there is none, or if it belongs to another subject or tenant.
    pub fn get(&self, owner: &Principal, id: &str) -> io::Result<Option<ResponseRecord>> {
        let Some(path) = self.path(owner, id) else { return Ok(None) };
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let record: ResponseRecord = serde_json::from_slice(&bytes)?;
        let is_own = record.version == VERSION && record.subject == owner.subject();
        Ok(is_own.then_some(record))
    }

    /// Marks the open approval requests of a response as expired and denied, and changes its conversation. Returns
    /// false if the owner has no such response.
    pub fn expire_approvals(
        &self,
        owner: &Principal,
        id: &str,
        change: impl FnOnce(Vec<StoredMessage>) -> Vec<StoredMessage>,
    ) -> io::Result<bool> {
        let (Some(mut record), Some(path)) = (self.get(owner, id)?, self.path(owner, id)) else {
            return Ok(false);
        };
        for waiting in record.approvals.iter_mut().filter(|waiting| waiting.approved.is_none()) {
            (waiting.approved, waiting.expired) = (Some(false), true);
        }
        record.messages = change(record.messages);
        private_file::replace_unsynced(&path, &serde_json::to_vec(&record)?)?;
        Ok(true)
    }

    /// Deletes a response. Returns false if the owner has none with this id.
    pub fn delete(&self, owner: &Principal, id: &str) -> io::Result<bool> {
        match (self.get(owner, id)?, self.path(owner, id)) {
            (Some(_), Some(path)) => std::fs::remove_file(path).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Returns all responses of a subject, the newest first. Skips files that cannot be read.
    pub fn list(&self, owner: &Principal) -> io::Result<Vec<ResponseRecord>> {
        let mut found = self.owned(owner, |record| record)?.records;
        found.sort_by(|one, other| (other.created_ms, &other.id).cmp(&(one.created_ms, &one.id)));
        Ok(found)
    }

    /// Reads the responses of a subject, and keeps only the part of each that the caller needs: all conversations
    /// together may not fit into memory.
    pub(crate) fn owned<T>(
        &self,
        owner: &Principal,
        part: impl Fn(ResponseRecord) -> T,
    ) -> io::Result<OwnedRecords<T>> {
        let directory = self.root.join(directory_of(owner.tenant()));
        read_owned(&directory, |id| Ok(self.get(owner, id)?.map(&part)))
    }

    /// Returns the path of a response; `None` for an invalid id. The id comes from a client, and `../` in it could lead
    /// out of the directory.
    fn path(&self, owner: &Principal, id: &str) -> Option<PathBuf> {
        let rest = id.strip_prefix("resp_")?;
        let is_plain =
            !rest.is_empty() && rest.len() <= 64 && rest.bytes().all(|b| b.is_ascii_alphanumeric());
        is_plain.then(|| self.root.join(directory_of(owner.tenant())).join(format!("{id}.json")))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use haft_core::conversation::Message;
    use serde_json::json;

    use super::*;
    use crate::tree::tests::{set_mode, without_capabilities};

    /// Stores a response with this id and run.
    pub(crate) fn put(store: &ResponseStore, owner: &Principal, (id, run): (&str, &str), created_ms: u64) {
        store.put(owner, NewResponse { run, created_ms, ..new(id, &json!({"id": id})) }).unwrap();
    }

    fn new<'a>(id: &'a str, response: &'a Value) -> NewResponse<'a> {
        NewResponse {
            id,
            run: "r",
            created_ms: 1,
            response,
            input: &[],
            messages: &[],
            open_calls: &[],
            events: &[],
            approvals: &[],
            first_event: 1,
            request_digest: None,
            workspace: None,
        }
    }

    #[test]
    fn stored_response_is_read_with_all_fields() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        let (response, input) = (json!({"id": "resp_1"}), [json!({"type": "message"})]);
        let messages = [StoredMessage::of(&Message::user("hi"))];
        let (open_calls, events) = (["call_1".to_owned()], [json!({"type": "response.created"})]);
        let approvals = [WaitingApproval {
            item: "mcpr_1".into(),
            approval: "a".into(),
            arguments: json!({"x": 1}),
            needs_scope: true,
            expired: false,
            approved: Some(true),
        }];
        let new = NewResponse {
            input: &input,
            messages: &messages,
            open_calls: &open_calls,
            events: &events,
            approvals: &approvals,
            first_event: 7,
            request_digest: Some("d"),
            workspace: Some("w"),
            ..new("resp_1", &response)
        };
        store.put(&anna, new).unwrap();
        let expected = ResponseRecord {
            version: VERSION,
            id: "resp_1".into(),
            subject: "anna".into(),
            run: "r".into(),
            created_ms: 1,
            response: response.clone(),
            input: input.to_vec(),
            messages: messages.to_vec(),
            open_calls: open_calls.to_vec(),
            events: events.to_vec(),
            approvals: approvals.to_vec(),
            first_event: 7,
            request_digest: Some("d".into()),
            workspace: Some("w".into()),
        };
        assert_eq!(store.get(&anna, "resp_1").unwrap(), Some(expected));
    }

    #[test]
    fn an_unfinished_response_is_listed_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        assert_eq!(store.unfinished(), []);
        let one = UnfinishedResponse {
            id: "resp_1".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            credential_id: "k".into(),
            scopes: vec!["api".into()],
        };
        store.begin(&one).unwrap();
        assert_eq!(store.unfinished(), std::slice::from_ref(&one));
        store.end("resp_1").unwrap();
        store.end("resp_1").unwrap();
        assert_eq!(store.unfinished(), []);
    }

    #[test]
    fn a_response_is_visible_only_to_its_subject() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k1");
        put(&store, &anna, ("resp_1", "r"), 1);
        put(&store, &anna, ("resp_2", "r"), 2);
        let found = store.get(&Principal::new("acme", "anna", "k2"), "resp_1").unwrap().unwrap();
        assert_eq!(found.response["id"], "resp_1");
        for other in [Principal::new("acme", "bert", "k"), Principal::new("other", "anna", "k")] {
            assert_eq!(store.get(&other, "resp_1").unwrap(), None);
            assert!(!store.delete(&other, "resp_1").unwrap());
            assert_eq!(store.list(&other).unwrap(), []);
        }
        let ids: Vec<String> = store.list(&anna).unwrap().into_iter().map(|one| one.id).collect();
        assert_eq!(ids, ["resp_2", "resp_1"]);
        assert!(store.delete(&anna, "resp_1").unwrap());
        assert!(!store.delete(&anna, "resp_1").unwrap());
    }

    #[test]
    fn no_id_leads_out_of_the_directory_of_its_tenant() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        put(&store, &anna, ("resp_1", "r"), 1);
        for id in ["", "resp_", "resp_../resp_1", "../acme/resp_1", "resp_1.json", "resp_a/b", "resp_\0"] {
            assert_eq!(store.get(&anna, id).unwrap(), None, "{id}");
            assert!(store.put(&anna, new(id, &Value::Null)).is_err(), "{id}");
        }
    }

    #[test]
    fn damaged_file_hides_no_other_response_and_an_unreadable_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let store = ResponseStore::of(&home);
        let anna = Principal::new("acme", "anna", "k");
        assert_eq!(store.list(&anna).unwrap(), []);
        put(&store, &anna, ("resp_1", "r"), 1);
        let damaged = home.data().join("responses/acme/resp_2.json");
        for text in ["{", "", "null"] {
            std::fs::write(&damaged, text).unwrap();
            assert_eq!(store.list(&anna).unwrap().len(), 1, "{text}");
            assert_eq!(store.owned(&anna, |_| ()).unwrap().unreadable, std::slice::from_ref(&damaged));
        }
        set_mode(damaged.parent().unwrap(), 0o000);
        assert!(without_capabilities(|| store.list(&anna)).is_err());
        set_mode(damaged.parent().unwrap(), 0o700);
    }
}
