//! The server's pending approval requests: one small file for each response, so that a server need not read all
//! responses when it starts.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use haft_core::home::Home;
use haft_core::principal::Principal;
use haft_fs::private_file;
use serde::{Deserialize, Serialize};

use crate::sweep;

/// The approval requests of one response. Their arguments are in the response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApprovalRecord {
    /// The id of the response, which is also the file name.
    pub response: String,
    /// The id of the suspended run that waits for the answers.
    pub run: String,
    pub tenant: String,
    pub subject: String,
    pub credential_id: String,
    /// The creation time of the response, in milliseconds since 1970. The time limit of the requests starts at this
    /// time.
    pub since_ms: u64,
    pub requests: Vec<PendingApprovalRequest>,
    /// True after the webhook of the operator has accepted the event about these requests.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_announced: bool,
}

/// One approval request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingApprovalRequest {
    /// The id of the item in the API.
    pub id: String,
    pub server_label: String,
    /// The name of the tool.
    pub name: String,
    /// True if only a key with the scope `approvals` may decide.
    pub needs_scope: bool,
}

impl PendingApprovalRecord {
    /// Returns the principal that owns the response.
    pub fn principal(&self) -> Principal {
        Principal::new(&self.tenant, &self.subject, &self.credential_id)
    }

    /// Returns the time at which the requests expire, in milliseconds since 1970.
    pub fn expires_ms(&self, lifetime: Duration) -> u64 {
        expires_ms(self.since_ms, lifetime)
    }
}

/// Returns the expiry time of a request that has waited since `since_ms`.
pub fn expires_ms(since_ms: u64, lifetime: Duration) -> u64 {
    since_ms.saturating_add(u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX))
}

/// The files of all pending approval requests.
#[derive(Debug, Clone)]
pub struct PendingApprovalStore {
    directory: PathBuf,
}

impl PendingApprovalStore {
    pub fn of(home: &Home) -> Self {
        Self { directory: home.data().join("approvals-pending") }
    }

    pub fn put(&self, record: &PendingApprovalRecord) -> io::Result<()> {
        let path = self.directory.join(&record.response);
        private_file::create_parent_dir(&path)?;
        private_file::replace_unsynced(&path, &serde_json::to_vec(record)?)
    }

    /// Removes the requests of a response, once they are answered or have expired.
    pub fn remove(&self, response: &str) -> io::Result<()> {
        match std::fs::remove_file(self.directory.join(response)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns all pending requests. Skips files that cannot be read.
    pub fn all(&self) -> Vec<PendingApprovalRecord> {
        let read = |entry: std::fs::DirEntry| serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok();
        sweep::entries(&self.directory).filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_approval_is_listed_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let store = PendingApprovalStore::of(&Home::at(directory.path()));
        assert_eq!(store.all(), []);
        let requests = vec![PendingApprovalRequest {
            id: "mcpr_1".into(),
            server_label: "docs".into(),
            name: "add".into(),
            needs_scope: true,
        }];
        let record = PendingApprovalRecord {
            response: "resp_1".into(),
            run: "r".into(),
            tenant: "acme".into(),
            subject: "anna".into(),
            credential_id: "k".into(),
            since_ms: 5,
            requests,
            is_announced: false,
        };
        store.put(&record).unwrap();
        assert_eq!(store.all(), std::slice::from_ref(&record));
        store.remove("resp_1").unwrap();
        store.remove("resp_1").unwrap();
        assert_eq!(store.all(), []);
    }
}
