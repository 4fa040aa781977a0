//! The stored form of compaction: its rules, its state, and the stage of a compaction in progress.

use serde::{Deserialize, Serialize};

use super::SnapshotError;
use crate::compaction::{ArchiveSpan, CompactionPlan, CompactionRules, CompactionScope, SummaryFault};
use crate::output_store::{Handle, StoreEntry};
use crate::run::compacting::{CompactionStage, CompactionState, CompactionWait};
use crate::run::note::{Compaction, SummaryAuthor};
use crate::stored::find;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCompactionRules {
    at_percent: u8,
    keep_turns: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_tokens_max: Option<u64>,
}

/// The stored form of the handle and size of an output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredEntry {
    handle: String,
    bytes: u64,
    lines: u64,
    complete: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredCompactionState {
    archives: Vec<StoredEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished: Option<StoredCompaction>,
    rounds: u32,
    rounds_turn: u32,
}

/// The stored form of a finished [`Compaction`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredCompaction {
    before_tokens: u64,
    after_tokens: u64,
    scope: String,
    items: u64,
    summary: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct StoredStage {
    scope: String,
    recent_from: usize,
    summary_tokens_max: u64,
    before_tokens: u64,
    /// The summary stage; absent while the archive is being written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    summary: Option<StoredSummaryWait>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredSummaryWait {
    span: Option<StoredSpan>,
    attempts: u32,
    fault: Option<StoredFault>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct StoredSpan {
    handle: String,
    first: u64,
    last: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredFault {
    Failed(String),
    Empty,
    Calls,
    Refused,
    Cut,
    TooLong,
}

impl StoredCompactionRules {
    pub(super) fn of(rules: &CompactionRules) -> Self {
        let CompactionRules { at_percent, keep_turns, model, request_tokens_max } = rules.clone();
        Self { at_percent, keep_turns, model, request_tokens_max }
    }

    pub(super) fn into_rules(self) -> CompactionRules {
        let Self { at_percent, keep_turns, model, request_tokens_max } = self;
        CompactionRules { at_percent, keep_turns, model, request_tokens_max }
    }
}

impl StoredEntry {
    pub(super) fn of(entry: &StoreEntry) -> Self {
        let StoreEntry { handle, bytes, lines, complete } = entry;
        Self { handle: handle.to_string(), bytes: *bytes, lines: *lines, complete: *complete }
    }

    pub(super) fn into_entry(self) -> Result<StoreEntry, SnapshotError> {
        let Self { handle: text, bytes, lines, complete } = self;
        Ok(StoreEntry { handle: handle(&text)?, bytes, lines, complete })
    }
}

fn handle(text: &str) -> Result<Handle, SnapshotError> {
    let broken = || SnapshotError::Broken { problem: "an archive has an invalid handle".into() };
    Handle::parse(text).ok_or_else(broken)
}

fn scope(name: &str) -> Result<CompactionScope, SnapshotError> {
    Ok(find("compaction scope", &CompactionScope::ALL, CompactionScope::name, name)?)
}

impl StoredCompactionState {
    pub(super) fn of(state: &CompactionState) -> Self {
        let CompactionState { archives, finished, rounds, rounds_turn } = state;
        Self {
            archives: archives.iter().map(StoredEntry::of).collect(),
            finished: finished.as_ref().map(StoredCompaction::of),
            rounds: *rounds,
            rounds_turn: *rounds_turn,
        }
    }

    pub(super) fn into_state(self) -> Result<CompactionState, SnapshotError> {
        let archives = self.archives.into_iter().map(StoredEntry::into_entry).collect::<Result<_, _>>()?;
        let finished = self.finished.map(StoredCompaction::into_compaction).transpose()?;
        Ok(CompactionState { archives, finished, rounds: self.rounds, rounds_turn: self.rounds_turn })
    }
}

impl StoredCompaction {
    /// Converts a compaction for storage.
    pub fn of(compaction: &Compaction) -> Self {
        let Compaction { before_tokens, after_tokens, scope, items, summary } = *compaction;
        let summary = summary.map(|author| author.name().to_owned());
        Self { before_tokens, after_tokens, scope: scope.name().into(), items, summary }
    }

    /// Restores the compaction. Fails for an unknown name.
    pub fn into_compaction(self) -> Result<Compaction, SnapshotError> {
        let author = |name: String| find("summary author", &SummaryAuthor::ALL, SummaryAuthor::name, &name);
        Ok(Compaction {
            before_tokens: self.before_tokens,
            after_tokens: self.after_tokens,
            scope: scope(&self.scope)?,
            items: self.items,
            summary: self.summary.map(author).transpose()?,
        })
    }
}

impl StoredStage {
    pub(super) fn of(stage: &CompactionStage) -> Self {
        let CompactionPlan { scope, recent_from, summary_tokens_max } = stage.plan;
        let summary = match &stage.waits {
            CompactionWait::Archive => None,
            CompactionWait::Summary { span, attempts, fault } => Some(StoredSummaryWait {
                span: span.as_ref().map(StoredSpan::of),
                attempts: *attempts,
                fault: fault.as_ref().map(StoredFault::of),
            }),
        };
        Self {
            scope: scope.name().into(),
            recent_from,
            summary_tokens_max,
            before_tokens: stage.before_tokens,
            summary,
        }
    }

    pub(super) fn into_stage(self) -> Result<CompactionStage, SnapshotError> {
        let Self { scope: name, recent_from, summary_tokens_max, before_tokens, summary } = self;
        let waits = match summary {
            None => CompactionWait::Archive,
            Some(StoredSummaryWait { span, attempts, fault }) => CompactionWait::Summary {
                span: span.map(StoredSpan::into_span).transpose()?,
                attempts,
                fault: fault.map(StoredFault::into_fault),
            },
        };
        let plan = CompactionPlan { scope: scope(&name)?, recent_from, summary_tokens_max };
        Ok(CompactionStage { plan, before_tokens, waits })
    }
}

impl StoredSpan {
    fn of(span: &ArchiveSpan) -> Self {
        Self { handle: span.handle.to_string(), first: span.first, last: span.last }
    }

    fn into_span(self) -> Result<ArchiveSpan, SnapshotError> {
        Ok(ArchiveSpan { handle: handle(&self.handle)?, first: self.first, last: self.last })
    }
}

impl StoredFault {
    fn of(fault: &SummaryFault) -> Self {
        match fault {
            SummaryFault::Failed(problem) => Self::Failed(problem.clone()),
            SummaryFault::Empty => Self::Empty,
            SummaryFault::Calls => Self::Calls,
            SummaryFault::Refused => Self::Refused,
            SummaryFault::Cut => Self::Cut,
            SummaryFault::TooLong => Self::TooLong,
        }
    }

    fn into_fault(self) -> SummaryFault {
        match self {
            Self::Failed(problem) => SummaryFault::Failed(problem),
            Self::Empty => SummaryFault::Empty,
            Self::Calls => SummaryFault::Calls,
            Self::Refused => SummaryFault::Refused,
            Self::Cut => SummaryFault::Cut,
            Self::TooLong => SummaryFault::TooLong,
        }
    }
}
