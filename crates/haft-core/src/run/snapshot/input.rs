//! The stored form of a run's inputs.

use serde::{Deserialize, Serialize};

use super::SnapshotError;
use super::compaction::StoredEntry;
use super::plan::StoredBudget;
use crate::run::input::{ArchiveOutcome, CallEnd, RunInput};
use crate::run::{AbortReason, CallDecision, DriverReadings};
use crate::stored::{StoredModelError, StoredModelReply, StoredReply};
use crate::tool::CallId;

/// The stored form of [`RunInput`]. Any change to it needs a new [`VERSION`](super::VERSION).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredInput {
    /// See [`RunInput::Stepped`].
    Stepped(StoredReadings),
    /// See [`RunInput::Replied`].
    Replied(StoredModelReply),
    /// See [`RunInput::Failed`].
    Failed(StoredModelError),
    /// See [`RunInput::Ended`].
    Ended(Vec<StoredEnd>),
    /// See [`RunInput::ClientReplied`].
    ClientReplied(Vec<StoredReply>),
    /// See [`RunInput::Decided`].
    Judged {
        /// The id of the call.
        call: String,
        /// True if the user allowed the call, false if the user refused it.
        allowed: bool,
    },
    /// See [`RunInput::Stopped`].
    Stopped,
    /// See [`RunInput::Aborted`].
    Aborted {
        /// The name of the [`AbortReason`].
        why: String,
        /// The problem with the journal; empty for every other abort.
        problem: String,
    },
    /// See [`RunInput::Appended`].
    Appended(Vec<String>),
    /// See [`RunInput::Requested`].
    Requested(String),
    /// See [`RunInput::Archived`].
    Archived(StoredArchiveOutcome),
    /// See [`RunInput::Summarized`].
    Summarized(StoredModelReply),
    /// See [`RunInput::SummaryFailed`].
    SummaryFailed(StoredModelError),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredArchiveOutcome {
    Stored(StoredEntry),
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredReadings {
    now_ms: u64,
    left: StoredBudget,
    context_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_usd: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fixed_tokens: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredEnd {
    Replied(StoredReply),
    AwaitsApproval(String),
}

impl StoredInput {
    /// Converts an input for storage.
    pub fn of(input: &RunInput) -> Self {
        match input {
            RunInput::Stepped(readings) => Self::Stepped(StoredReadings::of(readings)),
            RunInput::Replied(reply) => Self::Replied(StoredModelReply::of(reply)),
            RunInput::Failed(error) => Self::Failed(StoredModelError::of(error)),
            RunInput::Ended(ends) => Self::Ended(ends.iter().map(StoredEnd::of).collect()),
            RunInput::ClientReplied(replies) => {
                Self::ClientReplied(replies.iter().map(StoredReply::of).collect())
            }
            RunInput::Decided { call, decision } => {
                Self::Judged { call: call.0.clone(), allowed: *decision == CallDecision::Allow }
            }
            RunInput::Stopped => Self::Stopped,
            RunInput::Aborted(why) => stored_abort(why),
            RunInput::Appended(names) => Self::Appended(names.clone()),
            RunInput::Requested(text) => Self::Requested(text.clone()),
            RunInput::Archived(ArchiveOutcome::Stored(entry)) => {
                Self::Archived(StoredArchiveOutcome::Stored(StoredEntry::of(entry)))
            }
            RunInput::Archived(ArchiveOutcome::Failed(why)) => {
                Self::Archived(StoredArchiveOutcome::Failed(why.clone()))
            }
            RunInput::Summarized(reply) => Self::Summarized(StoredModelReply::of(reply)),
            RunInput::SummaryFailed(error) => Self::SummaryFailed(StoredModelError::of(error)),
        }
    }

    /// Restores the input. Fails for a name that this version does not have.
    pub fn into_input(self) -> Result<RunInput, SnapshotError> {
        Ok(match self {
            Self::Stepped(readings) => RunInput::Stepped(readings.into_readings()?),
            Self::Replied(reply) => RunInput::Replied(reply.into_reply()?),
            Self::Failed(error) => RunInput::Failed(error.into_error()?),
            Self::Ended(ends) => {
                RunInput::Ended(ends.into_iter().map(StoredEnd::into_end).collect::<Result<_, _>>()?)
            }
            Self::ClientReplied(replies) => {
                let replies = replies.into_iter().map(StoredReply::into_reply);
                RunInput::ClientReplied(replies.collect::<Result<_, _>>()?)
            }
            Self::Judged { call, allowed } => RunInput::Decided {
                call: CallId(call),
                decision: if allowed { CallDecision::Allow } else { CallDecision::Deny },
            },
            Self::Stopped => RunInput::Stopped,
            Self::Aborted { why, problem } => RunInput::Aborted(abort(why, problem)?),
            Self::Appended(names) => RunInput::Appended(names),
            Self::Requested(text) => RunInput::Requested(text),
            Self::Archived(StoredArchiveOutcome::Stored(entry)) => {
                RunInput::Archived(ArchiveOutcome::Stored(entry.into_entry()?))
            }
            Self::Archived(StoredArchiveOutcome::Failed(why)) => {
                RunInput::Archived(ArchiveOutcome::Failed(why))
            }
            Self::Summarized(reply) => RunInput::Summarized(reply.into_reply()?),
            Self::SummaryFailed(error) => RunInput::SummaryFailed(error.into_error()?),
        })
    }
}

fn stored_abort(why: &AbortReason) -> StoredInput {
    let problem = match why {
        AbortReason::Interrupted | AbortReason::TimedOut | AbortReason::Steered => "",
        AbortReason::JournalFailed(problem) => problem.as_str(),
    };
    StoredInput::Aborted { why: why.name().into(), problem: problem.into() }
}

fn abort(why: String, problem: String) -> Result<AbortReason, SnapshotError> {
    match why.as_str() {
        "interrupted" => Ok(AbortReason::Interrupted),
        "timed_out" => Ok(AbortReason::TimedOut),
        "unrecorded" => Ok(AbortReason::JournalFailed(problem)),
        "steered" => Ok(AbortReason::Steered),
        _ => Err(SnapshotError::UnknownWord { what: "abort reason", found: why }),
    }
}

impl StoredReadings {
    fn of(readings: &DriverReadings) -> Self {
        let DriverReadings { now_ms, left, context_tokens, request_usd, fixed_tokens } = *readings;
        Self { now_ms, left: StoredBudget::of(&left), context_tokens, request_usd, fixed_tokens }
    }

    fn into_readings(self) -> Result<DriverReadings, SnapshotError> {
        let Self { now_ms, left, context_tokens, request_usd, fixed_tokens } = self;
        Ok(DriverReadings { now_ms, left: left.into_budget()?, context_tokens, request_usd, fixed_tokens })
    }
}

impl StoredEnd {
    fn of(end: &CallEnd) -> Self {
        match end {
            CallEnd::Replied(reply) => Self::Replied(StoredReply::of(reply)),
            CallEnd::AwaitsApproval(call) => Self::AwaitsApproval(call.0.clone()),
        }
    }

    fn into_end(self) -> Result<CallEnd, SnapshotError> {
        Ok(match self {
            Self::Replied(reply) => CallEnd::Replied(reply.into_reply()?),
            Self::AwaitsApproval(call) => CallEnd::AwaitsApproval(CallId(call)),
        })
    }
}
