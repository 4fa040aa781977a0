//! Hints for errors of the libraries: the next step of a person at the command line.
//!
//! An error of a library names no command and no option, because any program can embed the libraries. Each function here
//! takes one error type and matches all of its variants, so that a new variant gets a hint, or a decision against one.

use std::fmt::Display;

use haft_store::sessions::SessionError;

/// Adds a hint to the text of an error, on a line of its own.
pub(super) fn with(error: &dyn Display, hint: Option<impl Display>) -> String {
    match hint {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}

pub(super) fn session(error: &SessionError) -> Option<String> {
    match error {
        SessionError::NotFound { .. } | SessionError::TooShort { .. } | SessionError::Ambiguous { .. } => {
            Some("`haft sessions list` lists the sessions".into())
        }
        SessionError::Unreadable { id, .. } => {
            Some(format!("`haft sessions rm {id}` removes it; nothing in it was changed"))
        }
        SessionError::Busy { .. } | SessionError::Io { .. } => None,
    }
}
