//! The errors of getting a token. Their messages contain no secret and no free text from a server.

use std::fmt;

/// The end of each message of [`AuthError::PersonNeeded`]. The state of a server keeps only the message, so an interface
/// finds the servers that need a login by this text.
pub const LOGIN_NEEDED: &str = "a user must log in";

/// The reason for having no token, as a message for the operator or the user who logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthError {
    /// A user must log in.
    PersonNeeded(String),
    /// The server does not require a login.
    NotNeeded,
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
            Self::NotNeeded => f.write_str("the server does not require a login"),
        }
    }
}

impl std::error::Error for AuthError {}
