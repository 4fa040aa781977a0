//! Errors for invalid inputs to a run. The driver or the client receives them.

use crate::conversation::ConversationError;
use crate::tool::CallId;

/// The reason why the run rejected an input. A rejected input does not change the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The run waits for a different input.
    #[error(
        "the run got {given}, but waits for {waits_for}; call `next_step` and answer the step that it returns"
    )]
    Unexpected {
        /// The kind of input that the driver gave.
        given: &'static str,
        /// The kind of input that the run waits for.
        waits_for: &'static str,
    },
    /// No call with this id waits for a result of this kind.
    #[error("no pending call has the id `{}`; answer the calls that the run waits for", .call.0)]
    UnknownCall {
        /// The call id in the rejected input.
        call: CallId,
    },
    /// The call already has a result.
    #[error("the call `{}` was answered already; give one output per call", .call.0)]
    AnsweredTwice {
        /// The id of the call.
        call: CallId,
    },
    /// The conversation does not accept the reply.
    #[error("the run cannot add the reply to the conversation: {0}")]
    Misfit(ConversationError),
    /// The stored run cannot be used.
    #[error("haft cannot use the stored run: {problem}")]
    Unreadable {
        /// The problem, in words for the operator.
        problem: String,
    },
}
