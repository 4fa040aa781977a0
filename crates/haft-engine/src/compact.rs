//! Compacts one conversation outside a run, for callers that store the conversation themselves.

use futures_util::StreamExt as _;
use haft_core::compaction::size::conversation_tokens;
use haft_core::compaction::{
    CompactionPlan, CompactionRules, ConversationRoom, SummaryFault, SummaryRequest, SummaryText,
    read_summary,
};
use haft_core::conversation::{Conversation, ConversationError};
use haft_core::model_error::{ModelError, ModelErrorKind};
use haft_core::model_provider::{ModelContext, ModelProvider};
use haft_core::model_reply::{ModelReply, ReplyFold, TokenUsage};
use haft_core::model_request::ModelRequest;

/// The maximum number of requests for one summary.
const SUMMARY_ATTEMPTS_MAX: u32 = 2;

/// The average number of bytes in a token, for estimates by length.
const BYTES_PER_TOKEN: u64 = 4;

/// The percentage of the context window that the old turns may take in the request for a summary. It is below 100
/// because sizes are estimates.
const RECORD_PERCENT: u64 = 80;

/// A conversation with a summary in place of its old turns.
#[derive(Debug, Clone)]
pub struct CompactedConversation {
    /// The new conversation: the first request, the summary, the newest request and the recent turns.
    pub conversation: Conversation,
    /// The summary that the model wrote.
    pub summary: String,
    /// The number of messages that the summary replaces.
    pub messages: usize,
    /// The estimated tokens of the conversation before compaction.
    pub before_tokens: u64,
    /// The estimated tokens of the conversation after compaction.
    pub after_tokens: u64,
    /// The token usage of the request that returned the summary; `None` if the provider did not report it. The events
    /// report every attempt.
    pub usage: Option<TokenUsage>,
}

/// The reason why a conversation cannot be compacted.
#[derive(Debug, thiserror::Error)]
pub enum CompactError {
    /// There are no old turns, or a summary would not be shorter than these turns.
    #[error("the conversation has no old turns that a summary could shorten")]
    NothingToCompact,
    /// No request returned a usable summary. The value is the problem with the last one.
    #[error("haft could not summarize the old turns: {0}")]
    NoSummary(SummaryFault),
    /// The provider accepts no requests for some time, because of a rate limit or an exhausted quota.
    #[error("haft could not summarize the old turns: {0}")]
    Limited(ModelError),
    /// The compacted conversation would be invalid.
    #[error(transparent)]
    Conversation(#[from] ConversationError),
}

/// Replaces the old turns of a conversation by a summary. `like` is a request that contains the conversation; its model
/// and settings are used for the summary. `usable_tokens` is the number of tokens that messages may take in the context
/// window of this model. The turns are not archived, because the caller still has the old conversation.
pub async fn compact(
    like: &ModelRequest,
    rules: &CompactionRules,
    usable_tokens: u64,
    (models, cx): (&dyn ModelProvider, &ModelContext),
) -> Result<CompactedConversation, CompactError> {
    let conversation = &*like.conversation;
    let before_tokens = conversation_tokens(conversation);
    let room = ConversationRoom {
        // The caller wants a smaller conversation now, even if the context window has space.
        room_tokens: usable_tokens.min(before_tokens),
        saving_tokens_min: 1,
        keep_turns: rules.keep_turns,
    };
    let plan = CompactionPlan::of_turns(conversation, &room).ok_or(CompactError::NothingToCompact)?;
    let record_bytes = usable_tokens.saturating_mul(BYTES_PER_TOKEN * RECORD_PERCENT) / 100;
    let record_bytes_max = usize::try_from(record_bytes).unwrap_or(usize::MAX);
    let mut fault = None;
    for _ in 0..SUMMARY_ATTEMPTS_MAX {
        let about = SummaryRequest { like, rules, record_bytes_max, fault: fault.as_ref() };
        let reply = match ask(models, plan.summary_request(conversation, about)?, cx).await {
            Err(error) if is_limited(error.kind) => return Err(CompactError::Limited(error)),
            reply => reply,
        };
        let read = reply
            .map_err(|error| SummaryFault::Failed(error.to_string()))
            .and_then(|reply| Ok((read_summary(&reply, &plan, conversation)?, reply.usage)));
        match read {
            Ok((words, usage)) => return replaced(&plan, conversation, words, usage),
            Err(problem) => fault = Some(problem),
        }
    }
    Err(CompactError::NoSummary(fault.unwrap_or(SummaryFault::Empty)))
}

fn is_limited(kind: ModelErrorKind) -> bool {
    matches!(kind, ModelErrorKind::RateLimited | ModelErrorKind::QuotaExhausted)
}

async fn ask(
    models: &dyn ModelProvider,
    request: ModelRequest,
    cx: &ModelContext,
) -> Result<ModelReply, ModelError> {
    let mut events = models.ask(request, cx);
    let mut fold = ReplyFold::default();
    while let Some(event) = events.next().await {
        fold.apply(&event?);
    }
    Ok(fold.finish())
}

fn replaced(
    plan: &CompactionPlan,
    conversation: &Conversation,
    words: String,
    usage: Option<TokenUsage>,
) -> Result<CompactedConversation, CompactError> {
    let text = SummaryText { words: Some(words.clone()), span: None, older: Vec::new() };
    let compacted = plan.with_summary(conversation, &text)?;
    let before_tokens = conversation_tokens(conversation);
    let after_tokens = conversation_tokens(&compacted);
    if after_tokens >= before_tokens {
        return Err(CompactError::NothingToCompact);
    }
    Ok(CompactedConversation {
        messages: plan.messages(conversation),
        conversation: compacted,
        summary: words,
        before_tokens,
        after_tokens,
        usage,
    })
}
