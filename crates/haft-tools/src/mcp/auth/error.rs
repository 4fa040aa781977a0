//! Why there is no token. No secret and no text of a server is in any of these sentences.

use std::fmt;

/// Written for the operator, or the person who logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthError {
    /// A person has to log in.
    PersonNeeded(String),
    /// Something is not as it must be; asking again would not help.
    Refused(String),
    /// Nobody was reached. What is held stays good.
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
