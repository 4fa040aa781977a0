//! What a run cannot take, said to whoever drives it or asked for it.

use std::fmt;

use crate::conversation::ConversationError;
use crate::tool::CallId;

/// Why an answer was not taken. The run is as it was before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunError {
    /// It waits for something else.
    Unexpected {
        given: &'static str,
        waits_for: &'static str,
    },
    /// No call of this id waits for such an answer.
    UnknownCall {
        call: CallId,
    },
    AnsweredTwice {
        call: CallId,
    },
    /// The reply is none that a conversation can hold.
    Misfit(ConversationError),
    /// What is kept of it cannot be used.
    Unreadable {
        problem: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected { given, waits_for } => {
                write!(f, "the run got {given}, but waits for {waits_for}; do the step it names next")
            }
            Self::UnknownCall { call } => {
                write!(f, "no pending call has the id `{}`; answer the calls that the run waits for", call.0)
            }
            Self::AnsweredTwice { call } => {
                write!(f, "the call `{}` was answered already; give one output per call", call.0)
            }
            Self::Misfit(error) => write!(f, "the reply does not fit: {error}"),
            Self::Unreadable { problem } => write!(f, "what is kept of the run cannot be used: {problem}"),
        }
    }
}

impl std::error::Error for RunError {}
