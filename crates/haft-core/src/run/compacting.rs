//! The steps of a compaction within a run: its start, the requests to the driver, and its end.

use std::sync::Arc;

use super::input::ArchiveOutcome;
use super::limits::RunContextLimit;
use super::note::{Compaction, RunNote, SummaryAuthor};
use super::state::{RunPhase, StopSignal};
use super::{AgentRun, ArchiveRequest, DriverReadings, RunError, RunStep};
use crate::compaction::size::conversation_tokens;
use crate::compaction::{
    ArchiveSpan, CompactionPlan, CompactionRules, CompactionScope, ConversationRoom, SummaryFault,
    SummaryRequest, SummaryText, read_summary,
};
use crate::conversation::{Conversation, ConversationError};
use crate::model_error::ModelError;
use crate::model_reply::ModelReply;
use crate::output_store::StoreEntry;

/// The maximum number of requests for one summary.
const SUMMARY_ATTEMPTS_MAX: u32 = 2;

/// The maximum number of compactions before the model must reply again. More than one is needed only if the first one
/// freed too little, because it was planned with estimates.
const COMPACTIONS_PER_TURN_MAX: u32 = 3;

/// A compaction is worth the lost prompt cache only if it frees at least the available tokens divided by this number.
const SAVING_SHARE: u64 = 8;

/// The minimum saving, in tokens, when the context is full.
const SAVING_TOKENS_MIN: u64 = 64;

/// The limits of the factor that corrects estimated sizes, in percent.
const SCALE_PERCENT_MIN: u64 = 50;
const SCALE_PERCENT_MAX: u64 = 400;

/// The percentage of its context window that a summarizing model may read. It is below 100 because sizes are estimates.
const RECORD_PERCENT: u64 = 80;

/// The average number of bytes in a token, for estimates by length.
const BYTES_PER_TOKEN: u64 = 4;

/// The data from earlier compactions that the run remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CompactionState {
    /// The archives of the session, the newest last.
    pub(super) archives: Vec<StoreEntry>,
    /// A finished compaction. Its note is added when the new context size is known.
    pub(super) finished: Option<Compaction>,
    /// The number of compactions since the last useful reply, and the number of useful replies at that time.
    pub(super) rounds: u32,
    pub(super) rounds_turn: u32,
}

impl CompactionState {
    /// Returns the state to keep for the next request in the same conversation.
    pub(super) fn for_next_request(self) -> Self {
        Self { archives: self.archives, finished: self.finished, ..Self::default() }
    }
}

/// A compaction in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CompactionStage {
    pub(super) plan: CompactionPlan,
    pub(super) before_tokens: u64,
    pub(super) waits: CompactionWait,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CompactionWait {
    /// The driver is storing the removed text in the archive.
    Archive,
    /// The model is writing the summary. The turns are in the archive, unless storing them failed.
    Summary { span: Option<ArchiveSpan>, attempts: u32, fault: Option<SummaryFault> },
}

impl CompactionStage {
    pub(super) fn waits_for(&self) -> &'static str {
        match self.waits {
            CompactionWait::Archive => "the result of an archive step",
            CompactionWait::Summary { .. } => "the summary of old turns",
        }
    }
}

/// The sizes that determine whether to compact. All are estimates by length, corrected by the measured size of the
/// context.
#[derive(Debug, Clone, Copy)]
struct CompactionSizes {
    room: ConversationRoom,
    /// The maximum size of old turns that the summarizing model can read, in bytes.
    record_bytes_max: usize,
}

impl AgentRun {
    /// Returns the next step of a compaction that is in progress or that must start now.
    pub(super) fn step_for_compaction(&mut self, readings: &DriverReadings) -> Option<RunStep> {
        self.note_finished_compaction(readings);
        if self.state.signal == StopSignal::Stop
            && let RunPhase::Compacting(_) = self.state.phase
        {
            self.state.phase = RunPhase::Model;
        }
        if let RunPhase::Model = self.state.phase {
            let stage = self.due_compaction(readings)?;
            self.state.phase = RunPhase::Compacting(stage);
        }
        self.compaction_step(readings)
    }

    /// Adds the note of a finished compaction, once the driver has measured the new context.
    fn note_finished_compaction(&mut self, readings: &DriverReadings) {
        if let Some(finished) = self.state.compaction.finished.take() {
            let after_tokens = readings.context_tokens.unwrap_or_default();
            self.notes.push(RunNote::Compacted(Compaction { after_tokens, ..finished }));
        }
    }

    /// Decides if a compaction starts. A run that ends after the next turn, or that cannot pay for more than one
    /// request, does not compact. While a reply is being continued, no compaction starts, because the partial reply
    /// must stay in place.
    fn due_compaction(&self, readings: &DriverReadings) -> Option<CompactionStage> {
        let (rules, limit) = (self.plan.compaction.as_ref()?, self.plan.limits.context?);
        let tokens = readings.context_tokens?;
        let state = &self.state;
        let is_full = limit.is_full(tokens);
        let is_due = is_full || tokens > threshold(limit, rules) && self.last_turn().is_none();
        let is_last = state.final_turn.is_some() || state.signal == StopSignal::Stop;
        if !is_due || is_last || state.partial.is_some() || self.is_budget_spent(readings) {
            return None;
        }
        let rounds =
            if state.compaction.rounds_turn == state.counts.turns { state.compaction.rounds } else { 0 };
        if rounds >= COMPACTIONS_PER_TURN_MAX || rounds > 0 && !is_full {
            return None;
        }
        let sizes = self.compaction_sizes(rules, limit, tokens, readings);
        let plan = CompactionPlan::of(self.conversation(), &sizes.room)?;
        let first = CompactionStage { plan, before_tokens: tokens, waits: CompactionWait::Archive };
        is_affordable(&first, readings).then_some(first)
    }

    /// Converts the limits to estimated tokens. A provider may count more or fewer tokens than an estimate by length,
    /// so the ratio of the two scales the limits.
    fn compaction_sizes(
        &self,
        rules: &CompactionRules,
        limit: RunContextLimit,
        tokens: u64,
        readings: &DriverReadings,
    ) -> CompactionSizes {
        let fixed = readings.fixed_tokens.unwrap_or_default();
        let estimated = fixed.saturating_add(conversation_tokens(self.conversation())).max(1);
        let scale = tokens.saturating_mul(100) / estimated;
        let scale = scale.clamp(SCALE_PERCENT_MIN, SCALE_PERCENT_MAX);
        let in_estimates = |tokens: u64| tokens.saturating_mul(100) / scale;
        let room_tokens = in_estimates(limit.usable_tokens()).saturating_sub(fixed);
        let saving_tokens_min =
            if limit.is_full(tokens) { SAVING_TOKENS_MIN } else { room_tokens / SAVING_SHARE };
        let readable = rules.request_tokens_max.unwrap_or(limit.usable_tokens());
        let record_bytes = in_estimates(readable).saturating_mul(BYTES_PER_TOKEN * RECORD_PERCENT) / 100;
        CompactionSizes {
            room: ConversationRoom { room_tokens, saving_tokens_min, keep_turns: rules.keep_turns },
            record_bytes_max: usize::try_from(record_bytes).unwrap_or(usize::MAX),
        }
    }

    fn compaction_step(&mut self, readings: &DriverReadings) -> Option<RunStep> {
        let RunPhase::Compacting(stage) = &self.state.phase else { return None };
        match stage.waits.clone() {
            CompactionWait::Archive => Some(RunStep::Archive(ArchiveRequest {
                archive: self.state.compaction.archives.last().cloned(),
                text: stage.plan.archive_text(self.conversation()),
            })),
            // A spent budget pays for only one more request, and the answer is worth more than a summary.
            CompactionWait::Summary { .. } if self.is_budget_spent(readings) => {
                self.give_up_compaction();
                None
            }
            CompactionWait::Summary { fault, .. } => self.summary_step(fault.as_ref(), readings),
        }
    }

    fn summary_step(&mut self, fault: Option<&SummaryFault>, readings: &DriverReadings) -> Option<RunStep> {
        let RunPhase::Compacting(stage) = &self.state.phase else { return None };
        let (rules, limit) = (self.plan.compaction.clone()?, self.plan.limits.context?);
        let sizes = self.compaction_sizes(&rules, limit, stage.before_tokens, readings);
        let record_bytes_max = sizes.record_bytes_max;
        let about = SummaryRequest { like: &self.request, rules: &rules, record_bytes_max, fault };
        match stage.plan.summary_request(self.conversation(), about) {
            Ok(request) => Some(RunStep::Summarize(Box::new(request))),
            Err(error) => {
                self.end_on_conversation_error(&error);
                None
            }
        }
    }

    /// Reports whether the text of the last [`RunStep::Archive`] was stored.
    pub fn archived(&mut self, outcome: ArchiveOutcome) -> Result<(), RunError> {
        let stage = self.expect_stage("the result of an archive step")?;
        if stage.waits != CompactionWait::Archive {
            return Err(RunError::Unexpected {
                given: "the result of an archive step",
                waits_for: stage.waits_for(),
            });
        }
        let span = match outcome {
            ArchiveOutcome::Stored(entry) => Some(self.keep_archive(entry)),
            ArchiveOutcome::Failed(why) => {
                self.notes.push(RunNote::CompactionFault {
                    why: format!("haft could not archive old messages: {why}"),
                });
                None
            }
        };
        match (stage.plan.scope, span) {
            (CompactionScope::Turns, span) => {
                let waits = CompactionWait::Summary { span, attempts: 0, fault: None };
                self.state.phase = RunPhase::Compacting(CompactionStage { waits, ..stage });
            }
            (CompactionScope::Outputs, Some(span)) => {
                let items = stage.plan.outputs(self.conversation());
                let compacted = stage.plan.without_outputs(self.conversation(), &span);
                self.replace_conversation(&stage, compacted, items, None);
            }
            // Outputs are removed from the conversation only if they stay readable. Otherwise the turns are summarized.
            (CompactionScope::Outputs, None) => {
                let plan = CompactionPlan { scope: CompactionScope::Turns, ..stage.plan };
                let waits = CompactionWait::Summary { span: None, attempts: 0, fault: None };
                self.state.phase = RunPhase::Compacting(CompactionStage { plan, waits, ..stage });
            }
        }
        Ok(())
    }

    /// Reports the model's reply to the last [`RunStep::Summarize`].
    pub fn summarized(&mut self, reply: &ModelReply) -> Result<(), RunError> {
        let stage = self.expect_summary("a summary")?;
        match read_summary(reply, &stage.plan, self.conversation()) {
            Ok(words) => self.end_with_summary(&stage, Some(words)),
            Err(fault) => self.take_summary_fault(stage, fault),
        }
        Ok(())
    }

    /// Reports that the last [`RunStep::Summarize`] failed and that a retry cannot help.
    pub fn summary_failed(&mut self, error: &ModelError) -> Result<(), RunError> {
        let stage = self.expect_summary("a failed summary")?;
        self.take_summary_fault(stage, SummaryFault::Failed(error.to_string()));
        Ok(())
    }

    fn take_summary_fault(&mut self, stage: CompactionStage, fault: SummaryFault) {
        self.notes.push(RunNote::CompactionFault {
            why: format!("haft could not summarize the old turns: {fault}"),
        });
        let CompactionWait::Summary { span, attempts, .. } = stage.waits.clone() else { return };
        match (attempts + 1 < SUMMARY_ATTEMPTS_MAX, &span) {
            (true, _) => {
                let waits = CompactionWait::Summary { span, attempts: attempts + 1, fault: Some(fault) };
                self.state.phase = RunPhase::Compacting(CompactionStage { waits, ..stage });
            }
            (false, Some(_)) => self.end_with_summary(&stage, None),
            // Turns are removed from the conversation only if they are in the archive or in a summary.
            (false, None) => self.give_up_compaction(),
        }
    }

    /// Continues with the whole conversation, and does not try to compact again before the next reply.
    fn give_up_compaction(&mut self) {
        self.count_round(COMPACTIONS_PER_TURN_MAX);
        self.state.phase = RunPhase::Model;
    }

    fn end_with_summary(&mut self, stage: &CompactionStage, words: Option<String>) {
        let CompactionWait::Summary { span, .. } = &stage.waits else { return };
        let author = if words.is_some() { SummaryAuthor::Model } else { SummaryAuthor::List };
        let newest = span.as_ref().map(|span| &span.handle);
        let archives = self.state.compaction.archives.iter().map(|entry| entry.handle.clone());
        let older = archives.filter(|handle| Some(handle) != newest).collect();
        let summary = SummaryText { words, span: span.clone(), older };
        let items = stage.plan.messages(self.conversation());
        let compacted = stage.plan.with_summary(self.conversation(), &summary);
        self.replace_conversation(stage, compacted, items, Some(author));
    }

    fn replace_conversation(
        &mut self,
        stage: &CompactionStage,
        compacted: Result<Conversation, ConversationError>,
        items: usize,
        summary: Option<SummaryAuthor>,
    ) {
        let compacted = match compacted {
            Ok(compacted) => compacted,
            Err(error) => return self.end_on_conversation_error(&error),
        };
        self.state.phase = RunPhase::Model;
        if conversation_tokens(&compacted) >= conversation_tokens(self.conversation()) {
            return self.count_round(COMPACTIONS_PER_TURN_MAX);
        }
        self.count_round(1);
        self.request.conversation = Arc::new(compacted);
        if stage.plan.scope == CompactionScope::Turns {
            // The instruction about the tool choice may have been removed with the old turns, so the run gives it
            // again.
            self.state.told_choice = None;
        }
        self.state.compaction.finished = Some(Compaction {
            before_tokens: stage.before_tokens,
            after_tokens: 0,
            scope: stage.plan.scope,
            items: items as u64,
            summary,
        });
    }

    fn count_round(&mut self, rounds: u32) {
        let compaction = &mut self.state.compaction;
        if compaction.rounds_turn != self.state.counts.turns {
            (compaction.rounds, compaction.rounds_turn) = (0, self.state.counts.turns);
        }
        compaction.rounds = compaction.rounds.saturating_add(rounds);
    }

    /// Remembers the archive, and returns the range of archive lines that contains the new text.
    fn keep_archive(&mut self, entry: StoreEntry) -> ArchiveSpan {
        let archives = &mut self.state.compaction.archives;
        let span = ArchiveSpan::appended(archives.last(), &entry);
        archives.retain(|archive| archive.handle != entry.handle);
        archives.push(entry);
        span
    }

    fn expect_stage(&self, given: &'static str) -> Result<CompactionStage, RunError> {
        match &self.state.phase {
            RunPhase::Compacting(stage) => Ok(stage.clone()),
            phase @ (RunPhase::Model | RunPhase::Calls(_) | RunPhase::Ended(_)) => {
                Err(RunError::Unexpected { given, waits_for: phase.waits_for() })
            }
        }
    }

    fn expect_summary(&self, given: &'static str) -> Result<CompactionStage, RunError> {
        let stage = self.expect_stage(given)?;
        match stage.waits {
            CompactionWait::Summary { .. } => Ok(stage),
            CompactionWait::Archive => Err(RunError::Unexpected { given, waits_for: stage.waits_for() }),
        }
    }
}

fn threshold(limit: RunContextLimit, rules: &CompactionRules) -> u64 {
    limit.usable_tokens().saturating_mul(rules.at_percent.into()) / 100
}

/// Returns true if the budget pays for the summary and for the request after it.
fn is_affordable(stage: &CompactionStage, readings: &DriverReadings) -> bool {
    match stage.plan.scope {
        CompactionScope::Outputs => true,
        CompactionScope::Turns => {
            let tokens = stage.before_tokens.saturating_mul(2);
            let usd = readings.request_usd.unwrap_or(0.0) * 2.0;
            !readings.left.is_below(tokens, usd)
        }
    }
}
