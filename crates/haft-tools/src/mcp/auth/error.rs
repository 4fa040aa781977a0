//! The errors that occur while getting a token. Their messages contain no secret and no free text from a server.

/// The text at the end of each [`AuthError::PersonNeeded`] message. The state of a server keeps only the message, so a
/// user interface finds the servers that need a login by this text.
pub const LOGIN_NEEDED: &str = "a user must log in";

/// The reason why haft has no token, as a message for the operator or the user who logs in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// A user must log in at the MCP server.
    #[error("{0}")]
    PersonNeeded(String),
    /// The server does not require a login.
    #[error("the MCP server does not require a login")]
    NotNeeded,
    /// A setting or a response is invalid, or the server refused; a retry would not help.
    #[error("{0}")]
    Refused(String),
    /// The server, the keyring or the token lock was unavailable. Stored tokens stay valid, and a retry may succeed.
    #[error("{0}")]
    Unreachable(String),
}

impl AuthError {
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self::Refused(message.into())
    }
}
