//! The inputs of a run's state machine. A run is a fold over its inputs, so a run can be reproduced from its initial
//! state and its inputs. The journal appends one entry per input, so the cost per turn does not grow.

use super::calls::CallState;
use super::{AbortReason, AgentRun, CallDecision, DriverReadings, RunError};
use crate::conversation::{Message, ToolReply};
use crate::model_error::ModelError;
use crate::model_reply::ModelReply;
use crate::output_store::StoreEntry;
use crate::result::{ToolErrorKind, ToolResult};
use crate::tool::CallId;

/// An input that changes the state of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunInput {
    /// The driver asked for the next step, with these measured values.
    Stepped(DriverReadings),
    /// The model replied. The run may still reject the reply as unusable.
    Replied(ModelReply),
    /// The model request failed, after all retries and fallbacks.
    Failed(ModelError),
    /// Calls to tools ended with these outcomes.
    Ended(Vec<CallEnd>),
    /// The client executed its calls.
    ClientReplied(Vec<ToolReply>),
    /// A user decided about a call that waits for approval.
    Decided {
        /// The id of the call.
        call: CallId,
        /// The user's decision.
        decision: CallDecision,
    },
    /// A graceful stop was requested.
    Stopped,
    /// The run was aborted.
    Aborted(AbortReason),
    /// Tools with these exposed names were appended to the list that the model sees.
    Appended(Vec<String>),
    /// The user sent another request. Unfinished work is dropped.
    Requested(String),
    /// The driver appended a text to the archive, or failed to.
    Archived(ArchiveOutcome),
    /// The model replied to the request for a summary. The run may still reject the reply as unusable.
    Summarized(ModelReply),
    /// The request for a summary failed, after all retries and fallbacks.
    SummaryFailed(ModelError),
}

/// The outcome of an attempt to append to the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArchiveOutcome {
    /// The text is stored. The entry describes the whole archive after this.
    Stored(StoreEntry),
    /// There is no output store, or it failed. The text is the reason.
    Failed(String),
}

/// The end of a call, as the run records it.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEnd {
    /// The call ended with this reply for the model.
    Replied(ToolReply),
    /// The call waits for a user's decision.
    AwaitsApproval(CallId),
}

impl CallEnd {
    /// Converts a result from the engine. If an output has no content, its structured data is used as text.
    pub fn of(result: ToolResult) -> Self {
        let ToolResult { call, outcome, .. } = result;
        match outcome {
            Ok(output) if output.content.is_empty() => {
                let text =
                    output.structured.map_or_else(|| "(no output)".to_owned(), |value| value.to_string());
                Self::Replied(ToolReply::text(&call, text))
            }
            Ok(output) => Self::Replied(ToolReply {
                call: call.id,
                name: call.name,
                content: output.content,
                is_error: false,
            }),
            Err(error) if error.kind == ToolErrorKind::ApprovalPending => Self::AwaitsApproval(call.id),
            Err(error) => Self::Replied(ToolReply::error(&call, error.message)),
        }
    }

    /// Returns the id of the call.
    pub fn call(&self) -> &CallId {
        match self {
            Self::Replied(reply) => &reply.call,
            Self::AwaitsApproval(call) => call,
        }
    }

    pub(super) fn into_state(self) -> CallState {
        match self {
            Self::Replied(reply) => CallState::Ended(reply),
            Self::AwaitsApproval(_) => CallState::Approval,
        }
    }
}

impl AgentRun {
    /// Applies an input. `take_notes` returns the resulting notes.
    pub fn apply(&mut self, input: RunInput) -> Result<(), RunError> {
        match input {
            RunInput::Stepped(readings) => {
                self.next_step(&readings);
            }
            RunInput::Replied(reply) => return self.model_replied(reply),
            RunInput::Failed(error) => return self.model_failed(&error),
            RunInput::Ended(ends) => return self.calls_ended(ends),
            RunInput::ClientReplied(replies) => return self.client_replied(replies),
            RunInput::Decided { call, decision } => return self.approval_given(&call, decision),
            RunInput::Stopped => self.stop(),
            RunInput::Aborted(why) => self.abort(why),
            RunInput::Appended(names) => self.note_appended(names),
            RunInput::Requested(text) => return self.requested(text),
            RunInput::Archived(outcome) => return self.archived(outcome),
            RunInput::Summarized(reply) => return self.summarized(&reply),
            RunInput::SummaryFailed(error) => return self.summary_failed(&error),
        }
        Ok(())
    }

    /// Records the names of appended tools. `append_tools` adds their definitions, which are not in the journal.
    fn note_appended(&mut self, names: Vec<String>) {
        for name in names {
            if !self.state.appended.contains(&name) {
                self.state.appended.push(name);
            }
        }
    }

    /// Continues the conversation with another request. Limits and counters are reset, and unfinished work is dropped.
    pub fn requested(&mut self, text: impl Into<String>) -> Result<(), RunError> {
        self.abort(AbortReason::Interrupted);
        self.push_message(Message::user(text)).map_err(RunError::Misfit)?;
        self.state = super::AgentRunState {
            told_choice: self.state.told_choice.take(),
            compaction: std::mem::take(&mut self.state.compaction).for_next_request(),
            appended: std::mem::take(&mut self.state.appended),
            ..super::AgentRunState::default()
        };
        Ok(())
    }
}
