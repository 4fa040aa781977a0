//! Maps a conversation to a session of Claude Code, and tracks which messages the session has not seen.

use std::sync::Arc;

use haft_core::conversation::{Conversation, Message, Role};
use haft_core::model_request::ModelRequest;

use super::command::WORD_BYTES_MAX;
use super::prompt::prompt;
use super::waiting::{WaitingCommand, WaitingSlot};
use crate::conversation_cache::ConversationState;

/// The prompt for a session that ended early.
const RESUME_PROMPT: &str = "Continue where you left off.";

/// A session of Claude Code, with the messages that it has seen.
#[derive(Debug, Default)]
pub(super) struct ClaudeSession {
    id: Option<String>,
    seen: Vec<Arc<Message>>,
    /// The `claude` process, if it waits for the results of its calls.
    waiting: Option<WaitingSlot>,
}

/// The input of one `claude` process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaudeInput {
    pub(super) session: Option<String>,
    pub(super) system: String,
    pub(super) prompt: String,
}

impl ClaudeSession {
    /// Returns the input for Claude Code: only the new messages if the session has seen the earlier ones.
    pub(super) fn turn(&self, request: &ModelRequest) -> ClaudeInput {
        let new = request.conversation.messages()[self.seen.len()..].iter();
        // Skip the reply of the session, which the session already contains.
        let own = |message: &&Arc<Message>| self.id.is_some() && message.role == Role::Assistant;
        let new_text = prompt(new.skip_while(own).map(AsRef::as_ref));
        let (system, before) = match request.system.len() {
            0..=WORD_BYTES_MAX => (request.system.as_ref(), ""),
            _ => ("", request.system.as_ref()),
        };
        let prompt = [before, &new_text].into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>();
        ClaudeInput { session: self.id.clone(), system: system.to_owned(), prompt: prompt.join("\n\n") }
    }

    /// Sends the results in the new messages to the process that waits for them, and returns the process.
    pub(super) fn continued(self, request: &ModelRequest) -> Option<WaitingCommand> {
        let new = &request.conversation.messages()[self.seen.len()..];
        self.waiting?.take()?.continued(new)
    }

    /// Returns the session after a reply. The session has seen the whole request.
    pub(super) fn after_reply(id: String, request: &ModelRequest) -> Self {
        Self { id: Some(id), seen: request.conversation.messages().to_vec(), waiting: None }
    }

    /// Returns the session after a reply that ends with calls.
    pub(super) fn after_calls(id: String, request: &ModelRequest, command: WaitingCommand) -> Self {
        let session = Self::after_reply(id, request);
        let last = session.seen.last().map(Arc::downgrade).unwrap_or_default();
        Self { waiting: Some(WaitingSlot::new(command, last)), ..session }
    }
}

impl ClaudeInput {
    /// Returns an input that resumes the session.
    pub(super) fn resuming(self, session: String) -> Self {
        Self { session: Some(session), prompt: RESUME_PROMPT.to_owned(), ..self }
    }
}

impl ConversationState for ClaudeSession {
    fn knows(&self, conversation: &Conversation) -> Option<usize> {
        let (known, messages) = (self.seen.len(), conversation.messages());
        let fits = known <= messages.len()
            && self.seen.iter().zip(messages).all(|(kept, new)| Arc::ptr_eq(kept, new));
        (known > 0 && fits).then_some(known)
    }

    fn bytes(&self) -> usize {
        self.seen.len() * size_of::<Arc<Message>>()
    }
}

#[cfg(test)]
mod tests {
    use haft_core::conversation::MessagePart;

    use super::*;

    #[test]
    fn resumed_claude_code_session_gets_only_new_messages() {
        let mut conversation = Conversation::default();
        conversation.push(Message::user("one")).unwrap();
        let first =
            ModelRequest { system: "s".into(), ..ModelRequest::new("m", Arc::new(conversation.clone())) };
        let turn = ClaudeSession::default().turn(&first);
        let expected = ClaudeInput { session: None, system: "s".into(), prompt: "one".into() };
        assert_eq!(turn, expected);
        let session = ClaudeSession::after_reply("id".into(), &first);
        conversation.push(Message::assistant(vec![MessagePart::text("reply")])).unwrap();
        conversation.push(Message::user("two")).unwrap();
        let second = ModelRequest { conversation: Arc::new(conversation), ..first };
        assert_eq!(session.knows(&second.conversation), Some(1));
        let turn = session.turn(&second);
        assert_eq!((turn.session.as_deref(), turn.prompt.as_str()), (Some("id"), "two"));
        assert_eq!(
            ClaudeSession::default().turn(&second).prompt,
            "User:\none\n\nAssistant:\nreply\n\nUser:\ntwo"
        );
    }

    #[test]
    fn system_text_too_long_for_argv_moves_into_the_prompt() {
        let mut conversation = Conversation::default();
        conversation.push(Message::user("one")).unwrap();
        let system: Arc<str> = "s".repeat(WORD_BYTES_MAX + 1).into();
        let request = ModelRequest { system, ..ModelRequest::new("m", Arc::new(conversation)) };
        let turn = ClaudeSession::default().turn(&request);
        assert!(turn.system.is_empty() && turn.prompt.ends_with("s\n\none"));
    }
}
