//! Why a question of a server is not answered, as it is told.

use serde_json::json;

use super::message::METHOD_NOT_FOUND;

/// What the protocol gives for a person who said no.
const USER_REJECTED: i64 = -1;

const INVALID_PARAMS: i64 = -32_602;

/// A question that gets no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// We never said that we could be asked this.
    NotSupported,
    /// We could, and will not.
    Declined(String),
    /// What was asked makes no sense.
    Wrong(String),
}

impl Refusal {
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::NotSupported => "not supported",
            Self::Declined(reason) | Self::Wrong(reason) => reason,
        }
    }

    /// As the error of a reply.
    pub(super) fn as_json(&self) -> String {
        let code = match self {
            Self::NotSupported => METHOD_NOT_FOUND,
            Self::Declined(_) => USER_REJECTED,
            Self::Wrong(_) => INVALID_PARAMS,
        };
        json!({ "code": code, "message": self.reason() }).to_string()
    }
}
