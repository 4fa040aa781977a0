//! The audit log: one JSON line per decision about access, in a file that is rotated by size.

use std::io;
use std::sync::{Mutex, PoisonError};

use haft_core::home::Home;
use serde::{Deserialize, Serialize};

use crate::accounting::line_file::{LineFile, LineFileLimits, LinePaths};

/// The maximum length of `target` and `detail` in a line, in characters. Clients can choose parts of these texts.
const TEXT_CHARS_MAX: usize = 200;

/// The events of the audit log. Their names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditEvent {
    /// A request had no valid key or token.
    LoginFailed,
    /// The key of a caller did not have the required scope.
    ScopeDenied,
    KeyCreated,
    KeyRotated,
    KeyRevoked,
    /// A call waits for the decision of a user.
    ApprovalRequested,
    /// A call that waited was approved or denied.
    ApprovalDecided,
    /// A response or conversation was deleted.
    ResourceDeleted,
    /// A response in the background was cancelled.
    BackgroundCancelled,
    /// A client disconnected before its response ended.
    ClientDisconnected,
    ConfigReloaded,
    /// The server refused to load an invalid configuration.
    ConfigRefused,
    ToolExecuted,
    ToolFailed,
    /// A call was refused, because the lock file withholds the tool: its definition or its server changed.
    ToolQuarantined,
    /// An administrator turned a tool or a group off, or on again.
    ToolSwitched,
    /// All data of a principal was deleted.
    PrincipalDeleted,
    ServerStarted,
    ServerStopped,
}

haft_core::name_table!(AuditEvent {
    LoginFailed: "auth.failed",
    ScopeDenied: "authz.denied",
    KeyCreated: "key.created",
    KeyRotated: "key.rotated",
    KeyRevoked: "key.revoked",
    ApprovalRequested: "approval.requested",
    ApprovalDecided: "approval.decided",
    ResourceDeleted: "resource.deleted",
    BackgroundCancelled: "background.cancelled",
    ClientDisconnected: "client.disconnected",
    ConfigReloaded: "config.reloaded",
    ConfigRefused: "config.refused",
    ToolExecuted: "tool.executed",
    ToolFailed: "tool.failed",
    ToolQuarantined: "tool.quarantined",
    ToolSwitched: "tool.switched",
    PrincipalDeleted: "principal.deleted",
    ServerStarted: "server.started",
    ServerStopped: "server.stopped",
});

/// One line of the log. Every line has all fields, so that all lines have the same format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditLine {
    /// The time, in milliseconds since 1970.
    #[serde(rename = "at")]
    pub at_ms: u64,
    /// The name of an [`AuditEvent`].
    pub event: String,
    /// The principal of the caller as `TENANT/SUBJECT`; `None` for the operator at the terminal, or if the caller is
    /// unknown.
    pub principal: Option<String>,
    /// The id of the caller's key or token.
    pub key: Option<String>,
    /// The IP address of the other end of the connection, which may be a proxy.
    pub address: Option<String>,
    /// The request id, as in the header `x-request-id` of the reply.
    pub request: Option<String>,
    /// The object of the event: a key, an approval request, a path or a tool.
    pub target: Option<String>,
    /// The decision, or the reason for it.
    pub detail: Option<String>,
}

impl AuditLine {
    /// Creates an audit line for an event that has no caller.
    pub fn new(at_ms: u64, event: AuditEvent) -> Self {
        Self { at_ms, event: event.name().into(), ..Self::default() }
    }
}

/// The file `audit.jsonl` in haft's data directory. Older lines are in `audit.1.jsonl`.
#[derive(Debug)]
pub struct AuditLogFile(Mutex<LineFile>);

impl AuditLogFile {
    pub fn of(home: &Home) -> Self {
        Self::with_limits(home, LineFileLimits::default())
    }

    fn with_limits(home: &Home, limits: LineFileLimits) -> Self {
        Self(Mutex::new(LineFile::new(LinePaths::rotated(&home.data(), "audit"), limits)))
    }

    /// Appends a line, and truncates long texts. Other processes append to the same file.
    pub fn append(&self, mut line: AuditLine) -> io::Result<()> {
        line.target = line.target.map(cut);
        line.detail = line.detail.map(cut);
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        self.0.lock().unwrap_or_else(PoisonError::into_inner).append(&bytes)
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn audit_lines_have_the_same_fields_and_bounded_length() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::at(directory.path());
        let limits = LineFileLimits { bytes_max: 1_500, lock_wait: Duration::from_secs(1) };
        let log = AuditLogFile::with_limits(&home, limits);
        let line = AuditLine { target: Some("é".repeat(500)), ..AuditLine::new(7, AuditEvent::ToolFailed) };
        for _ in 0..4 {
            log.append(line.clone()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(home.data().join(name)).unwrap();
        let (new, old) = (read("audit.jsonl"), read("audit.1.jsonl"));
        assert_eq!((new.lines().count(), old.lines().count()), (2, 2), "{new}\n{old}");
        let first: serde_json::Value = serde_json::from_str(new.lines().next().unwrap()).unwrap();
        assert_eq!((&first["at"], &first["event"]), (&7.into(), &"tool.failed".into()));
        assert_eq!(first["target"].as_str().unwrap().chars().count(), TEXT_CHARS_MAX);
        let fields: Vec<&String> = first.as_object().unwrap().keys().collect();
        assert_eq!(fields.len(), 8, "{fields:?}");
    }
}
