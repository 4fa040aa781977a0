//! The errors of getting a token. Their messages contain no secret and no free text from a server.

use std::fmt;

/// The reason for having no token, as a message for the operator or the user who logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthError {
    /// A user must log in.
    PersonNeeded(String),
    /// A setting or a response is invalid, or the server refused; a retry would not help.
    Refused(String),
    /// The server, the keyring or the token lock was unavailable. Stored tokens stay valid, and a retry may succeed.
    Unreachable(String),
}

impl AuthError {
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PersonNeeded(message) | Self::Refused(message) | Self::Unreachable(message) => {
                f.write_str(message)
            }
        }
    }
}

impl std::error::Error for AuthError {}
