//! Stored responses of the server: one file for each response, in the directory of its tenant.
//!
//! The first line of a file is the record. The stream events of a background response follow, one in each line, so that
//! a reader of the record need not read them, and a reader of the events need not keep them in memory.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_core::stored::StoredMessage;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::owned_records::{OwnedRecords, read_owned, unless_damaged};
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
    /// True if stream events follow the record, because readers of the response may connect later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_events: bool,
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
    /// The `type` of the HTTP error for a failed response. The response object has only its code and message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
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
    /// True if stream events follow the record.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_events: bool,
    #[serde(skip_serializing_if = "<[WaitingApproval]>::is_empty")]
    pub approvals: &'a [WaitingApproval],
    pub first_event: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<&'a str>,
}

/// The content of a record file, without a copy of its fields. A test checks that [`ResponseRecord`] reads it.
#[derive(Serialize)]
struct RecordFile<'a> {
    version: u32,
    subject: &'a str,
    #[serde(flatten)]
    response: NewResponse<'a>,
}

/// The encoded record of a response that is not written yet.
#[derive(Debug)]
pub struct EncodedResponse {
    path: PathBuf,
    record: Vec<u8>,
}

impl EncodedResponse {
    /// Returns the size of the record in bytes.
    pub fn size(&self) -> usize {
        self.record.len()
    }

    /// Writes or replaces the file of a response without stream events. After a power failure, the newest responses may
    /// be missing.
    pub fn write(&self) -> io::Result<()> {
        self.write_with_events(&std::iter::empty())
    }

    /// Works like [`write`](Self::write), for a response with stream events. Each event is JSON in one line.
    pub fn write_with_events<'a>(&self, events: &(impl Iterator<Item = &'a str> + Clone)) -> io::Result<()> {
        private_file::creating_parent_dir(&self.path, || {
            private_file::replace_unsynced_with(&self.path, |file| {
                file.write_all(&self.record)?;
                events.clone().try_for_each(|event| write!(file, "\n{event}"))
            })
        })
    }
}

/// The fields of a record that are needed to sort it into a list.
#[derive(Deserialize)]
struct RecordHead<'a> {
    version: u32,
    #[serde(borrow)]
    subject: Cow<'a, str>,
    created_ms: u64,
}

/// The part of a list that a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseListQuery<'a> {
    /// The id of the entry before the page; `None` for the first page.
    pub after: Option<&'a str>,
    /// The maximum number of records.
    pub limit: usize,
    pub order: ListOrder,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListOrder {
    NewestFirst,
    OldestFirst,
}

/// A page of stored responses.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponsePage {
    pub records: Vec<ResponseRecord>,
    /// True if the list has further responses after this page.
    pub has_more: bool,
}

/// A response that must be finished, even by another process after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedResponse {
    /// The id in the API.
    pub id: String,
    /// The run that creates the response; empty if an earlier version has written the record.
    #[serde(default)]
    pub run: String,
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
    /// The directory with one small file for each unfinished response, so that a starting server need not read all
    /// responses.
    unfinished: PathBuf,
}

impl ResponseStore {
    pub fn of(home: &Home) -> Self {
        Self { root: home.data().join("responses"), unfinished: home.data().join("responses-unfinished") }
    }

    /// Encodes the record of a response.
    pub fn encode(&self, owner: &Principal, response: NewResponse<'_>) -> io::Result<EncodedResponse> {
        let path =
            self.path(owner, response.id).ok_or_else(|| io::Error::other("the response id is not valid"))?;
        let record = RecordFile { version: VERSION, subject: owner.subject(), response };
        Ok(EncodedResponse { path, record: serde_json::to_vec(&record)? })
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
        Ok(self.open(owner, id)?.map(|(record, _)| record))
    }

    /// Returns a response, and its stream events.
    pub fn get_with_events(
        &self,
        owner: &Principal,
        id: &str,
    ) -> io::Result<Option<(ResponseRecord, StoredEvents)>> {
        Ok(self.open(owner, id)?.map(|(record, rest)| (record, StoredEvents(rest))))
    }

    /// Reads the record of a response, and returns the open file after it.
    fn open(&self, owner: &Principal, id: &str) -> io::Result<Option<(ResponseRecord, BufReader<File>)>> {
        let Some(path) = self.path(owner, id) else { return Ok(None) };
        let Some((line, file)) = open_line(&path)? else { return Ok(None) };
        let record: ResponseRecord = serde_json::from_slice(&line)?;
        let is_own = record.version == VERSION && record.subject == owner.subject();
        Ok(is_own.then_some((record, file)))
    }

    /// Marks the open approval requests of a response as expired and denied, and changes its conversation. Returns
    /// false if the owner has no such response.
    pub fn expire_approvals(
        &self,
        owner: &Principal,
        id: &str,
        change: impl FnOnce(Vec<StoredMessage>) -> Vec<StoredMessage>,
    ) -> io::Result<bool> {
        let (Some((mut record, mut events)), Some(path)) = (self.open(owner, id)?, self.path(owner, id))
        else {
            return Ok(false);
        };
        for waiting in record.approvals.iter_mut().filter(|waiting| waiting.approved.is_none()) {
            (waiting.approved, waiting.expired) = (Some(false), true);
        }
        record.messages = change(record.messages);
        private_file::replace_unsynced_with(&path, |file| {
            serde_json::to_writer(&mut *file, &record)?;
            if record.has_events {
                file.write_all(b"\n")?;
            }
            io::copy(&mut events, file).map(drop)
        })?;
        Ok(true)
    }

    /// Deletes a response. Returns false if the owner has none with this id.
    pub fn delete(&self, owner: &Principal, id: &str) -> io::Result<bool> {
        match (self.get(owner, id)?, self.path(owner, id)) {
            (Some(_), Some(path)) => std::fs::remove_file(path).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Returns a page of the responses of a subject; `None` if the list has no entry `after`. Skips files that cannot
    /// be read. Reads only the records of the page, because all records of a tenant may not fit into memory.
    pub fn list(&self, owner: &Principal, query: &ResponseListQuery<'_>) -> io::Result<Option<ResponsePage>> {
        let mut keys = self.list_keys(owner)?;
        keys.sort_unstable();
        match query.order {
            ListOrder::NewestFirst => keys.reverse(),
            ListOrder::OldestFirst => {}
        }
        let start = match query.after {
            None => Some(0),
            Some(after) => keys.iter().position(|(_, id)| id == after).map(|place| place + 1),
        };
        start.map(|start| self.page(owner, &keys[start..], query.limit)).transpose()
    }

    /// Returns the creation times and the ids of the responses of a subject.
    fn list_keys(&self, owner: &Principal) -> io::Result<Vec<(u64, String)>> {
        let key = |id: &str| {
            let Some((line, _)) = self.path(owner, id).map(|path| open_line(&path)).transpose()?.flatten()
            else {
                return Ok(None);
            };
            let head: RecordHead<'_> = serde_json::from_slice(&line)?;
            let is_own = head.version == VERSION && head.subject == owner.subject();
            Ok(is_own.then(|| (head.created_ms, id.to_owned())))
        };
        read_owned(&self.root.join(directory_of(owner.tenant())), key).map(|owned| owned.records)
    }

    fn page(&self, owner: &Principal, keys: &[(u64, String)], limit: usize) -> io::Result<ResponsePage> {
        let (mut records, mut read) = (Vec::new(), 0);
        while records.len() < limit && read < keys.len() {
            records.extend(unless_damaged(self.get(owner, &keys[read].1))?.flatten());
            read += 1;
        }
        Ok(ResponsePage { records, has_more: read < keys.len() })
    }

    /// Reads the responses of a subject, and keeps only the part of each response that the caller needs, because all
    /// conversations together may not fit into memory.
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

/// Returns the first line of a file, and the open file after it; `None` if there is no such file.
fn open_line(path: &Path) -> io::Result<Option<(Vec<u8>, BufReader<File>)>> {
    let mut file = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut line = Vec::new();
    file.read_until(b'\n', &mut line)?;
    Ok(Some((line, file)))
}

/// The stream events of a stored response, read from its open file. A reader gets all events even if the response is
/// deleted meanwhile.
#[derive(Debug)]
pub struct StoredEvents(BufReader<File>);

impl StoredEvents {
    /// Reads the next events: at most `events_max`, and none after the one that reaches `bytes_enough` bytes. Returns no
    /// events after the last one.
    pub fn next(&mut self, events_max: usize, bytes_enough: usize) -> io::Result<Vec<String>> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while events.len() < events_max && bytes < bytes_enough {
            let mut line = String::new();
            if self.0.read_line(&mut line)? == 0 {
                break;
            }
            line.truncate(line.trim_end_matches('\n').len());
            bytes += line.len();
            events.push(line);
        }
        Ok(events)
    }

    /// Skips events, at most `count`.
    pub fn skip(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            if self.0.skip_until(b'\n')? == 0 {
                break;
            }
        }
        Ok(())
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
        let response = json!({"id": id});
        store.encode(owner, NewResponse { run, created_ms, ..new(id, &response) }).unwrap().write().unwrap();
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
            has_events: false,
            approvals: &[],
            first_event: 1,
            request_digest: None,
            workspace: None,
            error_type: None,
        }
    }

    /// Returns the ids of all responses of an owner, the newest first.
    pub(crate) fn listed(store: &ResponseStore, owner: &Principal) -> io::Result<Vec<String>> {
        let query = ResponseListQuery { after: None, limit: usize::MAX, order: ListOrder::NewestFirst };
        let page = store.list(owner, &query)?.unwrap();
        assert!(!page.has_more);
        Ok(page.records.into_iter().map(|record| record.id).collect())
    }

    #[test]
    fn stored_response_is_read_with_all_fields() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        let (response, input) = (json!({"id": "resp_1"}), [json!({"type": "message"})]);
        let messages = [StoredMessage::of(&Message::user("hi"))];
        let open_calls = ["call_1".to_owned()];
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
            has_events: true,
            approvals: &approvals,
            first_event: 7,
            request_digest: Some("d"),
            workspace: Some("w"),
            error_type: Some("model_error"),
            ..new("resp_1", &response)
        };
        store.encode(&anna, new).unwrap().write().unwrap();
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
            has_events: true,
            approvals: approvals.to_vec(),
            first_event: 7,
            request_digest: Some("d".into()),
            workspace: Some("w".into()),
            error_type: Some("model_error".into()),
        };
        assert_eq!(store.get(&anna, "resp_1").unwrap(), Some(expected));
    }

    #[test]
    fn unfinished_response_is_listed_until_it_ends() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        assert_eq!(store.unfinished(), []);
        let one = UnfinishedResponse {
            id: "resp_1".into(),
            run: "r".into(),
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
    fn response_is_visible_only_to_its_subject() {
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
            assert_eq!(listed(&store, &other).unwrap(), [""; 0]);
        }
        assert_eq!(listed(&store, &anna).unwrap(), ["resp_2", "resp_1"]);
        assert!(store.delete(&anna, "resp_1").unwrap());
        assert!(!store.delete(&anna, "resp_1").unwrap());
    }

    #[test]
    fn pages_of_a_list_contain_every_response_exactly_once() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        // Two responses of the same millisecond are sorted by their ids.
        for (number, created_ms) in [(1, 10), (2, 20), (3, 20), (4, 5)] {
            put(&store, &anna, (&format!("resp_{number}"), "r"), created_ms);
        }
        let page = |after: Option<&str>, order| {
            let found = store.list(&anna, &ResponseListQuery { after, limit: 3, order }).unwrap()?;
            Some((found.records.into_iter().map(|one| one.id).collect::<Vec<_>>(), found.has_more))
        };
        let ids = |numbers: &[u8]| numbers.iter().map(|number| format!("resp_{number}")).collect::<Vec<_>>();
        let (newest, oldest) = (ListOrder::NewestFirst, ListOrder::OldestFirst);
        assert_eq!(page(None, newest), Some((ids(&[3, 2, 1]), true)));
        assert_eq!(page(Some("resp_1"), newest), Some((ids(&[4]), false)));
        assert_eq!(page(None, oldest), Some((ids(&[4, 1, 2]), true)));
        assert_eq!(page(Some("resp_2"), oldest), Some((ids(&[3]), false)));
        assert_eq!(page(Some("resp_3"), oldest), Some((Vec::new(), false)));
        assert_eq!(page(Some("resp_9"), newest), None);
    }

    #[test]
    fn list_reads_only_the_records_of_its_page() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let (store, anna) = (ResponseStore::of(&home), Principal::new("acme", "anna", "k"));
        put(&store, &anna, ("resp_1", "r"), 1);
        put(&store, &anna, ("resp_3", "r"), 3);
        // The list can sort this record, but not read it.
        let head = json!({"version": VERSION, "subject": "anna", "created_ms": 2}).to_string();
        std::fs::write(home.data().join("responses/acme/resp_2.json"), head).unwrap();
        let page = |limit: usize| {
            let query = ResponseListQuery { after: None, limit, order: ListOrder::NewestFirst };
            let found = store.list(&anna, &query).unwrap().unwrap();
            (found.records.into_iter().map(|one| one.id).collect::<Vec<_>>(), found.has_more)
        };
        assert_eq!(
            page(1),
            (vec!["resp_3".into()], true),
            "the first page contains only the newest response"
        );
        assert_eq!(
            page(2),
            (vec!["resp_3".into(), "resp_1".into()], false),
            "a damaged record leaves no gap"
        );
    }

    #[test]
    fn stream_events_of_a_response_survive_the_expiry_of_approvals() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        let (anna, bert) = (Principal::new("acme", "anna", "k"), Principal::new("acme", "bert", "k"));
        let events: Vec<String> = (0..5).map(|number| format!("{{\"n\":{number}}}")).collect();
        let lines = || events.iter().map(String::as_str);
        let response = json!({"id": "resp_1"});
        let with_events = NewResponse { has_events: true, ..new("resp_1", &response) };
        store.encode(&anna, with_events).unwrap().write_with_events(&lines()).unwrap();
        assert!(store.get_with_events(&bert, "resp_1").unwrap().is_none());
        for _ in 0..2 {
            let (record, mut stored) = store.get_with_events(&anna, "resp_1").unwrap().unwrap();
            assert!(record.has_events && record.response["id"] == "resp_1");
            stored.skip(1).unwrap();
            assert_eq!(stored.next(2, usize::MAX).unwrap(), events[1..3]);
            assert!(store.expire_approvals(&anna, "resp_1", |messages| messages).unwrap());
            assert_eq!(
                stored.next(9, usize::MAX).unwrap(),
                events[3..],
                "open events stay readable after the file is replaced"
            );
            assert_eq!(stored.next(9, usize::MAX).unwrap(), [""; 0]);
            stored.skip(1).unwrap();
        }
        put(&store, &anna, ("resp_1", "r"), 1);
        assert!(store.expire_approvals(&anna, "resp_1", |messages| messages).unwrap());
        let (record, mut stored) = store.get_with_events(&anna, "resp_1").unwrap().unwrap();
        assert_eq!((record.has_events, stored.next(9, usize::MAX).unwrap()), (false, Vec::new()));
    }

    #[test]
    fn response_id_cannot_leave_the_directory_of_its_tenant() {
        let directory = tempfile::tempdir().unwrap();
        let store = ResponseStore::of(&Home::at(directory.path()));
        let anna = Principal::new("acme", "anna", "k");
        put(&store, &anna, ("resp_1", "r"), 1);
        for id in ["", "resp_", "resp_../resp_1", "../acme/resp_1", "resp_1.json", "resp_a/b", "resp_\0"] {
            assert_eq!(store.get(&anna, id).unwrap(), None, "{id}");
            assert!(store.encode(&anna, new(id, &Value::Null)).is_err(), "{id}");
        }
    }

    #[test]
    fn damaged_response_file_hides_no_other_response() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let store = ResponseStore::of(&home);
        let anna = Principal::new("acme", "anna", "k");
        assert_eq!(listed(&store, &anna).unwrap(), [""; 0]);
        put(&store, &anna, ("resp_1", "r"), 1);
        let damaged = home.data().join("responses/acme/resp_2.json");
        for text in ["{", "", "null"] {
            std::fs::write(&damaged, text).unwrap();
            assert_eq!(listed(&store, &anna).unwrap(), ["resp_1"], "{text}");
            assert_eq!(store.owned(&anna, |_| ()).unwrap().unreadable, std::slice::from_ref(&damaged));
        }
        set_mode(damaged.parent().unwrap(), 0o000);
        assert!(without_capabilities(|| listed(&store, &anna)).is_err());
        set_mode(damaged.parent().unwrap(), 0o700);
    }
}
