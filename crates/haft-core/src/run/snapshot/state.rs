//! The stored form of a run's state.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::SnapshotError;
use super::compaction::{StoredCompactionState, StoredStage};
use crate::digest::Digest;
use crate::internal_tools::batch::BatchCompleteness;
use crate::internal_tools::final_report::{ReportContent, ReportStatus, RunReport};
use crate::internal_tools::handoff::Handoff;
use crate::internal_tools::report_format::ReportFormat;
use crate::model_error::ModelErrorKind;
use crate::run::calls::{CallPosition, CallState, OpenCall, OpenCalls};
use crate::run::final_turn::FinalTurnReason;
use crate::run::finish::{FinishReason, RunAnswer, RunFinish};
use crate::run::limits::RunCounters;
use crate::run::repeat::RepeatCounts;
use crate::run::state::{AgentRunState, RunPhase, StopSignal};
use crate::stored::{StoredCall, StoredReply, find};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredState {
    phase: StoredPhase,
    counts: StoredCounts,
    /// The number of consecutive turns with each call, by call digest.
    repeats: BTreeMap<String, u32>,
    stopping: bool,
    forced: Option<String>,
    final_turn: Option<String>,
    ending: Option<StoredFinish>,
    to_tell: Vec<String>,
    told_choice: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partial: Option<String>,
    #[serde(default)]
    wanted_more: bool,
    #[serde(default)]
    compaction: StoredCompactionState,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    appended: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredPhase {
    Model,
    Calls(Vec<StoredOpenCall>),
    Compacting(StoredStage),
    Ended(StoredFinish),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredCounts {
    turns: u32,
    tool_turns: u32,
    tool_calls: u32,
    attempts: u32,
    bad_reports: u32,
    crowded_turns: u32,
    #[serde(default)]
    long_replies: u32,
    #[serde(default)]
    search_turns: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredOpenCall {
    call: StoredCall,
    /// The index of the batch that contains the call, and the call's id in it.
    batch: Option<(usize, String)>,
    state: StoredCallState,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredCallState {
    New,
    Running,
    Approval,
    Client,
    Batch { cut_off: bool },
    Ended(StoredReply),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredFinish {
    reason: StoredReason,
    answer: Option<StoredAnswer>,
    detail: String,
    ended_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredReason {
    Plain(String),
    Handoff { agent: String, message: Option<String> },
    ModelFailed(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredAnswer {
    Text(String),
    Report { status: String, format: String, content: StoredReportContent, metadata: Map<String, Value> },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredReportContent {
    Text(String),
    Json(Value),
}

impl StoredState {
    pub(super) fn of(state: &AgentRunState) -> Self {
        let AgentRunState {
            phase,
            counts,
            repeats,
            signal,
            forced,
            final_turn,
            ending,
            pending_instructions,
            wanted_more,
            partial,
            told_choice,
            compaction,
            appended,
        } = state;
        Self {
            phase: StoredPhase::of(phase),
            counts: StoredCounts::of(counts),
            repeats: repeats.0.iter().map(|(digest, times)| (digest.to_string(), *times)).collect(),
            stopping: *signal == StopSignal::Stop,
            forced: forced.map(|why| why.name().into()),
            final_turn: final_turn.map(|why| why.name().into()),
            ending: ending.as_ref().map(StoredFinish::of),
            to_tell: pending_instructions.clone(),
            told_choice: told_choice.clone(),
            partial: partial.clone(),
            wanted_more: *wanted_more,
            compaction: StoredCompactionState::of(compaction),
            appended: appended.clone(),
        }
    }

    pub(super) fn into_state(self) -> Result<AgentRunState, SnapshotError> {
        Ok(AgentRunState {
            phase: self.phase.into_phase()?,
            counts: self.counts.into_counts(),
            repeats: repeats(self.repeats)?,
            signal: if self.stopping { StopSignal::Stop } else { StopSignal::Go },
            forced: self.forced.as_deref().map(why).transpose()?,
            final_turn: self.final_turn.as_deref().map(why).transpose()?,
            ending: self.ending.map(StoredFinish::into_finish).transpose()?,
            pending_instructions: self.to_tell,
            told_choice: self.told_choice,
            partial: self.partial,
            wanted_more: self.wanted_more,
            compaction: self.compaction.into_state()?,
            appended: self.appended,
        })
    }
}

impl StoredPhase {
    fn of(phase: &RunPhase) -> Self {
        match phase {
            RunPhase::Model => Self::Model,
            RunPhase::Calls(calls) => Self::Calls(calls.0.iter().map(StoredOpenCall::of).collect()),
            RunPhase::Compacting(stage) => Self::Compacting(StoredStage::of(stage)),
            RunPhase::Ended(finish) => Self::Ended(StoredFinish::of(finish)),
        }
    }

    fn into_phase(self) -> Result<RunPhase, SnapshotError> {
        Ok(match self {
            Self::Model => RunPhase::Model,
            Self::Calls(calls) => {
                let calls = calls.into_iter().map(StoredOpenCall::into_open_call);
                RunPhase::Calls(OpenCalls(calls.collect::<Result<_, _>>()?))
            }
            Self::Compacting(stage) => RunPhase::Compacting(stage.into_stage()?),
            Self::Ended(finish) => RunPhase::Ended(finish.into_finish()?),
        })
    }
}

impl StoredCounts {
    fn of(counts: &RunCounters) -> Self {
        Self {
            turns: counts.turns,
            tool_turns: counts.tool_turns,
            tool_calls: counts.tool_calls,
            attempts: counts.attempts,
            bad_reports: counts.bad_reports,
            crowded_turns: counts.crowded_turns,
            long_replies: counts.long_replies,
            search_turns: counts.search_turns,
        }
    }

    fn into_counts(self) -> RunCounters {
        RunCounters {
            turns: self.turns,
            tool_turns: self.tool_turns,
            tool_calls: self.tool_calls,
            attempts: self.attempts,
            bad_reports: self.bad_reports,
            crowded_turns: self.crowded_turns,
            long_replies: self.long_replies,
            search_turns: self.search_turns,
        }
    }
}

impl StoredOpenCall {
    fn of(open: &OpenCall) -> Self {
        let batch = match &open.position {
            CallPosition::Turn => None,
            CallPosition::Batch { parent, item } => Some((*parent, item.clone())),
        };
        let state = match &open.state {
            CallState::New => StoredCallState::New,
            CallState::Running => StoredCallState::Running,
            CallState::Approval => StoredCallState::Approval,
            CallState::Client => StoredCallState::Client,
            CallState::Batch(extent) => {
                StoredCallState::Batch { cut_off: *extent == BatchCompleteness::CutOff }
            }
            CallState::Ended(reply) => StoredCallState::Ended(StoredReply::of(reply)),
        };
        Self { call: StoredCall::of(&open.call), batch, state }
    }

    fn into_open_call(self) -> Result<OpenCall, SnapshotError> {
        let position = match self.batch {
            None => CallPosition::Turn,
            Some((parent, item)) => CallPosition::Batch { parent, item },
        };
        let state = match self.state {
            StoredCallState::New => CallState::New,
            StoredCallState::Running => CallState::Running,
            StoredCallState::Approval => CallState::Approval,
            StoredCallState::Client => CallState::Client,
            StoredCallState::Batch { cut_off: true } => CallState::Batch(BatchCompleteness::CutOff),
            StoredCallState::Batch { cut_off: false } => CallState::Batch(BatchCompleteness::Whole),
            StoredCallState::Ended(reply) => CallState::Ended(reply.into_reply()?),
        };
        Ok(OpenCall { call: self.call.into_call(), position, state })
    }
}

impl StoredFinish {
    fn of(finish: &RunFinish) -> Self {
        let RunFinish { reason, answer, detail, ended_ms, retry_after } = finish;
        Self {
            reason: StoredReason::of(reason),
            answer: answer.as_ref().map(StoredAnswer::of),
            detail: detail.clone(),
            ended_ms: *ended_ms,
            retry_after_ms: retry_after.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        }
    }

    fn into_finish(self) -> Result<RunFinish, SnapshotError> {
        let Self { reason, answer, detail, ended_ms, retry_after_ms } = self;
        let answer = answer.map(StoredAnswer::into_answer).transpose()?;
        let retry_after = retry_after_ms.map(Duration::from_millis);
        Ok(RunFinish { reason: reason.into_reason()?, answer, detail, ended_ms, retry_after })
    }
}

impl StoredReason {
    fn of(reason: &FinishReason) -> Self {
        match reason {
            FinishReason::Handoff(Handoff { agent, message }) => {
                Self::Handoff { agent: agent.clone(), message: message.clone() }
            }
            FinishReason::ModelFailed(kind) => Self::ModelFailed(kind.name().into()),
            plain => Self::Plain(plain.name().into()),
        }
    }

    fn into_reason(self) -> Result<FinishReason, SnapshotError> {
        match self {
            Self::Handoff { agent, message } => Ok(FinishReason::Handoff(Handoff { agent, message })),
            Self::ModelFailed(kind) => {
                let kind = find("model error", &ModelErrorKind::ALL, ModelErrorKind::name, &kind)?;
                Ok(FinishReason::ModelFailed(kind))
            }
            Self::Plain(name) => {
                let found = FinishReason::PLAIN.into_iter().find(|reason| reason.name() == name);
                found.ok_or(SnapshotError::UnknownWord { what: "finish reason", found: name })
            }
        }
    }
}

impl StoredAnswer {
    fn of(answer: &RunAnswer) -> Self {
        match answer {
            RunAnswer::Text(text) => Self::Text(text.clone()),
            RunAnswer::Report(RunReport { status, format, content, metadata }) => Self::Report {
                status: status.name().into(),
                format: format.name().into(),
                content: match content {
                    ReportContent::Text(text) => StoredReportContent::Text(text.clone()),
                    ReportContent::Json(value) => StoredReportContent::Json(value.clone()),
                },
                metadata: metadata.clone(),
            },
        }
    }

    fn into_answer(self) -> Result<RunAnswer, SnapshotError> {
        Ok(match self {
            Self::Text(text) => RunAnswer::Text(text),
            Self::Report { status, format, content, metadata } => RunAnswer::Report(RunReport {
                status: find("report status", &ReportStatus::ALL, ReportStatus::name, &status)?,
                format: find("report format", &ReportFormat::ALL, ReportFormat::name, &format)?,
                content: match content {
                    StoredReportContent::Text(text) => ReportContent::Text(text),
                    StoredReportContent::Json(value) => ReportContent::Json(value),
                },
                metadata,
            }),
        })
    }
}

fn why(name: &str) -> Result<FinalTurnReason, SnapshotError> {
    Ok(find("final turn reason", &FinalTurnReason::ALL, FinalTurnReason::name, name)?)
}

fn repeats(stored: BTreeMap<String, u32>) -> Result<RepeatCounts, SnapshotError> {
    let digests = stored.into_iter().map(|(digest, times)| match Digest::from_hex(&digest) {
        Some(digest) => Ok((digest, times)),
        None => Err(SnapshotError::UnknownWord { what: "digest", found: digest }),
    });
    digests.collect::<Result<_, _>>().map(RepeatCounts)
}
