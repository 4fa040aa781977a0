//! The result of a call: an output or an error, always with a receipt.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::output::{RawResult, ToolOutput};
use crate::tool::ToolCall;

/// The cause of an error. It may be logged for developers; a model never sees it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of one call. Every call has exactly one.
#[derive(Debug)]
pub struct ToolResult {
    /// The call as the caller sent it.
    pub call: ToolCall,
    /// The output, or the reason why there is none.
    pub outcome: Result<ToolOutput, ToolError>,
    /// The figures of the call, such as its latency and sizes.
    pub receipt: Receipt,
}

impl ToolResult {
    /// Returns the text for the caller: the output or the error message.
    pub fn text(&self) -> String {
        match &self.outcome {
            Ok(output) => output.as_text(),
            Err(error) => error.message.clone(),
        }
    }

    /// Returns the kind of error; `None` for success.
    pub fn error_kind(&self) -> Option<ToolErrorKind> {
        self.outcome.as_ref().err().map(|error| error.kind)
    }
}

/// The figures of a call, such as its latency and sizes.
#[derive(Debug, Clone, Default)]
pub struct Receipt {
    /// True if the call was executed: it reached the provider, or the engine answered it itself. The error kind does
    /// not tell this, because a call can fail before or after it reaches the provider.
    pub executed: bool,
    /// The duration of the call, including the time in its queue and the time for approval.
    pub latency: Duration,
    /// The size of the output for the model, or of the error message, in bytes.
    pub output_bytes: usize,
    /// The repairs made to arguments that were not quite JSON; empty if none were needed.
    pub repairs: Vec<&'static str>,
    /// True if the tool's schema did not compile, so that validation only checked that the arguments are an object.
    pub unvalidated: bool,
    /// The notes of stages and providers by topic, such as the active sandbox layers.
    pub notes: BTreeMap<&'static str, Value>,
}

/// The reason why a call returned no output. `message` is for the model; `source` is for developers.
#[derive(Debug, thiserror::Error)]
#[error("{}: {message}", kind.name())]
pub struct ToolError {
    /// The kind of error, which determines whether a retry can help.
    pub kind: ToolErrorKind,
    /// The text for the model: the problem, and how to avoid it.
    pub message: String,
    /// The unchanged failed result of the MCP server, for a caller that passes it on. `None` once a stage has changed
    /// the message.
    pub raw: Option<RawResult>,
    /// The MCP protocol error. It is set if the client of a gateway must receive the error unchanged, because the
    /// client can act on it.
    pub protocol: Option<Box<ProtocolError>>,
    /// The text for a client of a gateway, if `message` names hosts that only the operator may see.
    pub client_message: Option<Box<str>>,
    source: Option<BoxError>,
}

impl ToolError {
    /// Creates an error without a source.
    pub fn new(kind: ToolErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), raw: None, protocol: None, client_message: None, source: None }
    }

    /// Sets the unchanged failed result of the MCP server.
    #[must_use]
    pub fn with_raw(mut self, raw: Option<RawResult>) -> Self {
        self.raw = raw;
        self
    }

    /// Sets the MCP protocol error.
    #[must_use]
    pub fn with_protocol(mut self, protocol: Option<ProtocolError>) -> Self {
        self.protocol = protocol.map(Box::new);
        self
    }

    /// Sets the text for a client of a gateway. It names no host.
    #[must_use]
    pub fn with_client_message(mut self, message: impl Into<Box<str>>) -> Self {
        self.client_message = Some(message.into());
        self
    }

    /// Sets the cause. It may contain details that the model must not see.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }
}

/// An error of the Model Context Protocol, as an upstream server sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct ProtocolError {
    /// The code, such as -32021 for a capability that the client lacks.
    pub code: i64,
    /// The server's error text.
    pub message: String,
    /// Further details of the error, such as the required capabilities.
    pub data: Option<serde_json::Value>,
}

/// The kinds of tool errors. One table, [`ToolErrorKind::row`], holds their properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ToolErrorKind {
    /// The name matches no tool that the model may call.
    UnknownTool,
    /// A rule, the operator's policy or a user refused the call.
    Denied,
    /// A user must decide first. The run repeats the call after the decision.
    ApprovalPending,
    /// The arguments are not JSON, or do not match the tool's schema.
    InvalidArguments,
    /// A limit of the run, such as its budget, is used up.
    LimitExceeded,
    /// The tool's queue takes no further waiting calls.
    QueueFull,
    /// The caller cancelled the call.
    Cancelled,
    /// The call exceeded its timeout.
    Timeout,
    /// The tool cannot be reached, for example because its server is down.
    Unavailable,
    /// The tool ran and reported a failure.
    Failed,
    /// A bug in haft or in a provider, such as a panic.
    Internal,
    /// It is unknown whether the call took effect, for example because the process ended.
    UnknownOutcome,
}

/// One row in the table of error kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorRow {
    /// The stable name that all wire formats use.
    pub name: &'static str,
    /// True if the same call may succeed without changes.
    pub retryable: bool,
    /// The default message for the model.
    pub message: &'static str,
}

impl ToolErrorKind {
    /// All kinds, in the order of the variants.
    pub const ALL: [ToolErrorKind; 12] = [
        ToolErrorKind::UnknownTool,
        ToolErrorKind::Denied,
        ToolErrorKind::ApprovalPending,
        ToolErrorKind::InvalidArguments,
        ToolErrorKind::LimitExceeded,
        ToolErrorKind::QueueFull,
        ToolErrorKind::Cancelled,
        ToolErrorKind::Timeout,
        ToolErrorKind::Unavailable,
        ToolErrorKind::Failed,
        ToolErrorKind::Internal,
        ToolErrorKind::UnknownOutcome,
    ];

    /// Returns the properties of this kind.
    pub fn row(self) -> ErrorRow {
        let (name, retryable, message) = match self {
            Self::UnknownTool => ("unknown_tool", false, "there is no tool of that name"),
            Self::Denied => ("denied", false, "this call is not permitted"),
            Self::ApprovalPending => ("approval_pending", false, "this call waits for approval"),
            Self::InvalidArguments => {
                ("invalid_arguments", false, "the arguments do not match the tool's schema")
            }
            Self::LimitExceeded => ("limit_exceeded", false, "a limit of this run is used up"),
            Self::QueueFull => ("queue_full", true, "too many calls are waiting for this tool"),
            Self::Cancelled => ("cancelled", true, "the call was cancelled"),
            Self::Timeout => ("timeout", true, "the call took too long and was stopped"),
            Self::Unavailable => ("unavailable", true, "the tool cannot be reached at the moment"),
            Self::Failed => ("failed", false, "the tool ran and reported a failure"),
            Self::Internal => ("internal", false, "the call failed inside haft"),
            Self::UnknownOutcome => {
                ("unknown_outcome", false, "haft does not know whether the call took effect")
            }
        };
        ErrorRow { name, retryable, message }
    }

    /// Returns the stable name that all wire formats use.
    pub fn name(self) -> &'static str {
        self.row().name
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn tool_error_kinds_have_unique_names() {
        let names: HashSet<_> = ToolErrorKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), ToolErrorKind::ALL.len());
        assert!(ToolErrorKind::ALL.iter().all(|kind| !kind.row().message.is_empty()));
    }

    #[test]
    fn tool_error_message_does_not_include_its_source() {
        let error = ToolError::new(ToolErrorKind::Failed, "it failed").with_source("secret path");
        assert_eq!(error.to_string(), "failed: it failed");
        assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "secret path");
    }
}
