//! The reasons for refusing a request from a server, and their JSON-RPC errors.

use serde_json::json;

use super::message::METHOD_NOT_FOUND;

/// The error code of the MCP specification for a request that the user rejected.
const USER_REJECTED: i64 = -1;

const INVALID_PARAMS: i64 = -32_602;

/// The reason for refusing a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServerRequestRefusal {
    /// The client never advertised this capability.
    NotSupported,
    /// The client supports the request but declines it.
    Declined(String),
    /// The request is invalid.
    Wrong(String),
}

impl ServerRequestRefusal {
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::NotSupported => "haft does not support this request",
            Self::Declined(reason) | Self::Wrong(reason) => reason,
        }
    }

    /// Returns the error object of the reply.
    pub(super) fn as_json(&self) -> String {
        let code = match self {
            Self::NotSupported => METHOD_NOT_FOUND,
            Self::Declined(_) => USER_REJECTED,
            Self::Wrong(_) => INVALID_PARAMS,
        };
        json!({ "code": code, "message": self.reason() }).to_string()
    }
}
