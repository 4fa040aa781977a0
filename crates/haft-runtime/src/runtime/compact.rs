//! Compacts a conversation that does not belong to a run.

use std::sync::Arc;

use haft_core::conversation::{Conversation, ConversationError};
use haft_core::position::{RunPosition, SessionId};
use haft_core::trace_context::TraceContext;
use haft_engine::compact::{CompactError, CompactedConversation};

use super::{AnswerSource, RunHooks, Runtime, SessionStorage, StartError};
use crate::run_queue::QueueEntry;
use crate::runs::LeftSessions;
use crate::spec::{RunSecrets, RunSpec};

/// The reason why a conversation was not compacted.
#[derive(Debug, thiserror::Error)]
pub enum CompactFailure {
    /// The agent or its model cannot be used.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The conversation is not valid.
    #[error(transparent)]
    Conversation(#[from] ConversationError),
    /// Compaction failed; the conversation is unchanged.
    #[error(transparent)]
    Compact(#[from] CompactError),
}

impl Runtime {
    /// Replaces the old turns in the opening messages of a spec by a summary. Uses the model and the compaction rules
    /// of the spec's agent. The watchers of all runs see its model requests too. `trace_parent` is the span of the
    /// caller, which is the parent of the spans of these requests.
    pub async fn compact(
        &self,
        spec: RunSpec,
        trace_parent: Option<TraceContext>,
    ) -> Result<CompactedConversation, CompactFailure> {
        let mut place = self.enter_queue(&spec.principal, QueueEntry::Limited)?;
        place.admitted().await;
        let secrets = RunSecrets::none();
        let id = SessionId(uuid::Uuid::new_v4().as_u128());
        let (variables, (generation, _)) = (self.variables(&secrets), self.generation_for(&secrets).await?);
        let hooks = RunHooks {
            approvals: AnswerSource::Denied,
            elicitations: AnswerSource::Denied,
            sessions: SessionStorage::None,
            trace_parent,
            ..RunHooks::default()
        };
        self.adopt_caller(id, &hooks);
        let hooks = self.with_watchers(hooks);
        let prepared = self.prepare(id, &spec, variables, hooks, LeftSessions::Ignored, &generation).await?;
        let mut conversation = Conversation::default();
        for message in spec.opening {
            conversation.push(message)?;
        }
        let agent = Arc::clone(&prepared.agent.runnable().agent);
        let compacted = agent.compact(conversation, &prepared.context, RunPosition::first(id)).await;
        prepared.agent.end().await;
        if let Some(parents) = &self.shared.parents {
            parents.release(id);
        }
        Ok(compacted?)
    }
}
