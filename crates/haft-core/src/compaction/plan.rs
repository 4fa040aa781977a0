//! Decides what to compact.

use std::ops::Range;
use std::sync::Arc;

use super::replace::freed_by_outputs;
use super::size::{conversation_tokens, message_tokens};
use super::summary::is_summary;
use crate::conversation::{Conversation, Message, Role};

/// The percentage of the available tokens that a conversation may take after compaction. It leaves space for many more
/// turns, because each compaction invalidates the prompt cache.
const GOAL_PERCENT: u64 = 60;

/// The percentage of the available tokens that the recent turns may take.
const RECENT_PERCENT: u64 = 40;

/// The maximum length of a summary: a percentage of the available tokens, within the two limits below.
const SUMMARY_PERCENT: u64 = 15;
const SUMMARY_TOKENS_MIN: u64 = 200;
const SUMMARY_TOKENS_MAX: u64 = 4_000;

/// The tokens of the fixed text around a summary.
const SUMMARY_FRAME_TOKENS: u64 = 150;

/// The space for a conversation, and the limits of a compaction. All token numbers are estimates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversationRoom {
    /// The tokens that the conversation may take: the context window without reply, buffer, system text and tools.
    pub room_tokens: u64,
    /// The minimum number of tokens that a compaction must save to be worthwhile.
    pub saving_tokens_min: u64,
    /// The number of recent turns that are kept word for word if they are small enough.
    pub keep_turns: u32,
}

/// The kind of content that compaction removes from the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionScope {
    /// Old tool outputs. The messages stay, and each output is replaced by a reference to the archive.
    Outputs,
    /// Old turns. A summary takes their place.
    Turns,
}

crate::name_table!(CompactionScope { Outputs: "outputs", Turns: "turns" });

/// A compaction of one conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The kind of content that is removed.
    pub scope: CompactionScope,
    /// The index of the first recent message. This message and all later ones stay unchanged.
    pub recent_from: usize,
    /// The maximum length of the summary, in estimated tokens.
    pub summary_tokens_max: u64,
}

impl CompactionPlan {
    /// Decides what to compact; returns `None` if no compaction would save enough tokens. Moving old outputs to the
    /// archive loses nothing and needs no model request, so this is tried first. If it frees too few tokens, old turns
    /// are summarized in one step, from their full text.
    pub fn of(conversation: &Conversation, room: &ConversationRoom) -> Option<Self> {
        let messages = conversation.messages();
        let recent_from = recent_from(messages, room);
        let plan = |scope| Self { scope, recent_from, summary_tokens_max: summary_tokens_max(room) };
        let total = conversation_tokens(conversation);
        let by_outputs = freed_by_outputs(messages, recent_from);
        let goal = room.room_tokens.saturating_mul(GOAL_PERCENT) / 100;
        if by_outputs >= room.saving_tokens_min && total.saturating_sub(by_outputs) <= goal {
            return Some(plan(CompactionScope::Outputs));
        }
        let by_turns = plan(CompactionScope::Turns).freed_by_summary(messages);
        if by_turns >= room.saving_tokens_min && by_turns >= by_outputs {
            return Some(plan(CompactionScope::Turns));
        }
        (by_outputs >= room.saving_tokens_min).then(|| plan(CompactionScope::Outputs))
    }

    /// Returns the plan to summarize all old turns now, or `None` if that would save too few tokens.
    pub fn of_turns(conversation: &Conversation, room: &ConversationRoom) -> Option<Self> {
        let messages = conversation.messages();
        let plan = Self {
            scope: CompactionScope::Turns,
            recent_from: recent_from(messages, room),
            summary_tokens_max: summary_tokens_max(room),
        };
        let replaced: u64 = plan.replaced(messages).map(|message| message_tokens(message)).sum();
        (replaced > room.saving_tokens_min.saturating_add(SUMMARY_FRAME_TOKENS)).then_some(plan)
    }

    /// Returns the old messages that the summary replaces. The first and the newest user request are never among them.
    pub(super) fn replaced<'a>(
        &self,
        messages: &'a [Arc<Message>],
    ) -> impl Iterator<Item = &'a Arc<Message>> {
        let pinned = self.pinned(messages);
        let old = self.old(messages);
        let positions = old.clone().filter(move |at| Some(*at) != pinned);
        positions.filter_map(|at| messages.get(at))
    }

    /// Returns the range of messages after the first request and before the recent messages.
    pub(super) fn old(&self, messages: &[Arc<Message>]) -> Range<usize> {
        let end = self.recent_from.min(messages.len());
        head(messages).min(end)..end
    }

    /// Returns the index of the newest user request if it is older than the recent messages. A summary must not replace
    /// it.
    pub(super) fn pinned(&self, messages: &[Arc<Message>]) -> Option<usize> {
        let newest =
            messages.iter().rposition(|message| message.role == Role::User && !is_summary(message))?;
        self.old(messages).contains(&newest).then_some(newest)
    }

    fn freed_by_summary(&self, messages: &[Arc<Message>]) -> u64 {
        let replaced: u64 = self.replaced(messages).map(|message| message_tokens(message)).sum();
        replaced.saturating_sub(self.summary_tokens_max.saturating_add(SUMMARY_FRAME_TOKENS))
    }
}

/// Returns the number of messages up to and including the first request.
pub(super) fn head(messages: &[Arc<Message>]) -> usize {
    messages.iter().position(|message| message.role == Role::User).map_or(0, |at| at + 1)
}

fn summary_tokens_max(room: &ConversationRoom) -> u64 {
    let share = room.room_tokens.saturating_mul(SUMMARY_PERCENT) / 100;
    share.clamp(SUMMARY_TOKENS_MIN, SUMMARY_TOKENS_MAX)
}

/// Returns the index at which the recent turns begin. A turn is a model reply and everything up to the next reply, so a
/// call and its result are never separated. The last turn is always recent: the model has not seen its results yet, and
/// its calls may be open.
fn recent_from(messages: &[Arc<Message>], room: &ConversationRoom) -> usize {
    let tokens_max = room.room_tokens.saturating_mul(RECENT_PERCENT) / 100;
    let (mut from, mut tokens, mut turns) = (0, 0, 0);
    for (at, message) in messages.iter().enumerate().rev() {
        tokens += message_tokens(message);
        if message.role != Role::Assistant {
            continue;
        }
        if turns > 0 && (turns >= room.keep_turns || tokens > tokens_max) {
            break;
        }
        (from, turns) = (at, turns + 1);
    }
    from
}
