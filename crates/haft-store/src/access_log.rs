//! The access log of the server: one JSON line per request, in a file that is rotated by size.

use std::io;
use std::sync::{Mutex, PoisonError};

use haft_core::home::Home;
use serde::{Deserialize, Serialize};

use crate::accounting::line_file::{LineFile, LineFileLimits, LinePaths};

/// The log line of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessLine {
    /// The time of the reply, in milliseconds since 1970.
    #[serde(rename = "at")]
    pub at_ms: u64,
    /// The request id, as in the header `x-request-id` of the reply.
    pub request: String,
    /// The IP address of the peer, which may be a proxy.
    pub address: Option<String>,
    pub method: String,
    /// The path without the query, cut after 200 characters.
    pub path: String,
    pub status: u16,
    /// The time from the request until the server sent the headers of the reply.
    pub duration_ms: u64,
    /// The principal as `TENANT/SUBJECT`; `None` for a request without a valid key.
    pub principal: Option<String>,
    /// The id of the API key.
    pub key: Option<String>,
}

/// The file `access.jsonl` in haft's data directory. Older lines are in `access.1.jsonl`.
#[derive(Debug)]
pub struct AccessLogFile(Mutex<LineFile>);

impl AccessLogFile {
    pub fn of(home: &Home) -> Self {
        let paths = LinePaths::rotated(&home.data(), "access");
        Self(Mutex::new(LineFile::new(paths, LineFileLimits::default())))
    }

    /// Appends a line. A failed write does not prevent later writes.
    pub fn append(&self, line: &AccessLine) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(&bytes)
    }
}
