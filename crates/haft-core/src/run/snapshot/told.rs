//! The stored form of what a run was told.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::conversation::{StoredPart, StoredReply};
use super::{SnapshotError, names};
use crate::model_error::{ModelError, ModelErrorKind};
use crate::model_reply::{ModelReply, StopReason, Usage};
use crate::run::budget::Spent;
use crate::run::told::{CallEnd, Told};
use crate::run::{Abort, Readings, Verdict};
use crate::tool::CallId;

/// The stored form of [`Told`]. It changes only together with [`VERSION`](super::VERSION).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredTold {
    Stepped(StoredReadings),
    Replied(StoredModelReply),
    Failed { kind: String, message: String },
    Ended(Vec<StoredEnd>),
    ClientReplied(Vec<StoredToolReply>),
    Judged { call: String, allowed: bool },
    Stopped,
    Aborted { why: String, problem: String },
    Requested(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredReadings {
    now_ms: u64,
    usd: f64,
    tokens: u64,
    calls: u64,
    seconds: f64,
    context_tokens: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredModelReply {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    parts: Vec<StoredPart>,
    stop: StoredStop,
    usage: Option<StoredUsage>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredStop {
    EndOfTurn,
    ToolCalls,
    Length,
    StopSequence,
    Refusal,
    Filtered,
    Paused,
    CutOff,
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredUsage {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    reasoning: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredEnd {
    Replied(StoredToolReply),
    AwaitsApproval(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StoredToolReply(StoredReply);

impl StoredTold {
    pub fn of(told: &Told) -> Self {
        match told {
            Told::Stepped(readings) => Self::Stepped(StoredReadings::of(readings)),
            Told::Replied(reply) => Self::Replied(StoredModelReply::of(reply)),
            Told::Failed(error) => {
                Self::Failed { kind: error.kind.name().into(), message: error.message.clone() }
            }
            Told::Ended(ends) => Self::Ended(ends.iter().map(StoredEnd::of).collect()),
            Told::ClientReplied(replies) => Self::ClientReplied(
                replies.iter().map(|reply| StoredToolReply(StoredReply::of(reply))).collect(),
            ),
            Told::Judged { call, verdict } => {
                Self::Judged { call: call.0.clone(), allowed: *verdict == Verdict::Allowed }
            }
            Told::Stopped => Self::Stopped,
            Told::Aborted(why) => stored_abort(why),
            Told::Requested(text) => Self::Requested(text.clone()),
        }
    }

    pub fn into_told(self) -> Result<Told, SnapshotError> {
        Ok(match self {
            Self::Stepped(readings) => Told::Stepped(readings.into_readings()?),
            Self::Replied(reply) => Told::Replied(reply.into_reply()?),
            Self::Failed { kind, message } => {
                let kind = names::find("model error", &ModelErrorKind::ALL, ModelErrorKind::name, &kind)?;
                Told::Failed(ModelError::new(kind, message))
            }
            Self::Ended(ends) => {
                Told::Ended(ends.into_iter().map(StoredEnd::into_end).collect::<Result<_, _>>()?)
            }
            Self::ClientReplied(replies) => {
                let replies = replies.into_iter().map(|reply| reply.0.into_reply());
                Told::ClientReplied(replies.collect::<Result<_, _>>()?)
            }
            Self::Judged { call, allowed } => Told::Judged {
                call: CallId(call),
                verdict: if allowed { Verdict::Allowed } else { Verdict::Denied },
            },
            Self::Stopped => Told::Stopped,
            Self::Aborted { why, problem } => Told::Aborted(abort(why, problem)?),
            Self::Requested(text) => Told::Requested(text),
        })
    }
}

fn stored_abort(why: &Abort) -> StoredTold {
    let problem = match why {
        Abort::Interrupted | Abort::TimedOut => "",
        Abort::Unrecorded(problem) => problem.as_str(),
    };
    StoredTold::Aborted { why: why.name().into(), problem: problem.into() }
}

fn abort(why: String, problem: String) -> Result<Abort, SnapshotError> {
    match why.as_str() {
        "interrupted" => Ok(Abort::Interrupted),
        "timed_out" => Ok(Abort::TimedOut),
        "unrecorded" => Ok(Abort::Unrecorded(problem)),
        _ => Err(SnapshotError::UnknownWord { what: "reason of an abort", found: why }),
    }
}

impl StoredReadings {
    fn of(readings: &Readings) -> Self {
        let Readings { now_ms, spent: Spent { usd, tokens, calls, time }, context_tokens } = *readings;
        Self { now_ms, usd, tokens, calls, seconds: time.as_secs_f64(), context_tokens }
    }

    fn into_readings(self) -> Result<Readings, SnapshotError> {
        let Self { now_ms, usd, tokens, calls, seconds, context_tokens } = self;
        let broken = |_| SnapshotError::Broken { problem: "the seconds it took are no time".into() };
        let time = Duration::try_from_secs_f64(seconds).map_err(broken)?;
        Ok(Readings { now_ms, spent: Spent { usd, tokens, calls, time }, context_tokens })
    }
}

impl StoredModelReply {
    fn of(reply: &ModelReply) -> Self {
        // What was odd about it was told when it came; the run does not look at it.
        let ModelReply { id, model, parts, stop, usage, notes: _ } = reply;
        Self {
            id: id.clone(),
            model: model.clone(),
            parts: parts.iter().map(StoredPart::of).collect(),
            stop: StoredStop::of(stop),
            usage: usage.map(|usage| StoredUsage {
                input: usage.input,
                output: usage.output,
                cache_read: usage.cache_read,
                cache_write: usage.cache_write,
                reasoning: usage.reasoning,
            }),
        }
    }

    fn into_reply(self) -> Result<ModelReply, SnapshotError> {
        Ok(ModelReply {
            id: self.id,
            model: self.model,
            parts: self.parts.into_iter().map(StoredPart::into_part).collect::<Result<_, _>>()?,
            stop: self.stop.into_stop(),
            usage: self.usage.map(|usage| Usage {
                input: usage.input,
                output: usage.output,
                cache_read: usage.cache_read,
                cache_write: usage.cache_write,
                reasoning: usage.reasoning,
            }),
            notes: Vec::new(),
        })
    }
}

impl StoredStop {
    fn of(stop: &StopReason) -> Self {
        match stop {
            StopReason::EndOfTurn => Self::EndOfTurn,
            StopReason::ToolCalls => Self::ToolCalls,
            StopReason::Length => Self::Length,
            StopReason::StopSequence => Self::StopSequence,
            StopReason::Refusal => Self::Refusal,
            StopReason::Filtered => Self::Filtered,
            StopReason::Paused => Self::Paused,
            StopReason::CutOff => Self::CutOff,
            StopReason::Other(word) => Self::Other(word.clone()),
        }
    }

    fn into_stop(self) -> StopReason {
        match self {
            Self::EndOfTurn => StopReason::EndOfTurn,
            Self::ToolCalls => StopReason::ToolCalls,
            Self::Length => StopReason::Length,
            Self::StopSequence => StopReason::StopSequence,
            Self::Refusal => StopReason::Refusal,
            Self::Filtered => StopReason::Filtered,
            Self::Paused => StopReason::Paused,
            Self::CutOff => StopReason::CutOff,
            Self::Other(word) => StopReason::Other(word),
        }
    }
}

impl StoredEnd {
    fn of(end: &CallEnd) -> Self {
        match end {
            CallEnd::Replied(reply) => Self::Replied(StoredToolReply(StoredReply::of(reply))),
            CallEnd::AwaitsApproval(call) => Self::AwaitsApproval(call.0.clone()),
        }
    }

    fn into_end(self) -> Result<CallEnd, SnapshotError> {
        Ok(match self {
            Self::Replied(reply) => CallEnd::Replied(reply.0.into_reply()?),
            Self::AwaitsApproval(call) => CallEnd::AwaitsApproval(CallId(call)),
        })
    }
}
