//! The errors of a run's inputs, for the driver or the client.

use std::fmt;

use crate::conversation::ConversationError;
use crate::tool::CallId;

/// The reason why the run rejected an input. A rejected input does not change the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunError {
    /// The run waits for another input.
    Unexpected {
        /// The kind of input that the driver gave.
        given: &'static str,
        /// The kind of input that the run waits for.
        waits_for: &'static str,
    },
    /// No call with this id waits for such a result.
    UnknownCall {
        /// The id that the input names.
        call: CallId,
    },
    /// The call already has a result.
    AnsweredTwice {
        /// The id of the call.
        call: CallId,
    },
    /// The conversation cannot hold the reply.
    Misfit(ConversationError),
    /// The stored run is not usable.
    Unreadable {
        /// The problem, in words for the operator.
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
            Self::Unreadable { problem } => write!(f, "the stored run cannot be used: {problem}"),
        }
    }
}

impl std::error::Error for RunError {}
