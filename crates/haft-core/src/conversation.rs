//! The conversation so far, in a form that does not depend on a provider: messages that consist of parts.
//!
//! A conversation only grows at its end, and its messages never change. Encoders rely on this and reuse the encoded
//! messages of one turn for the next one.

mod order;
mod part;

use std::sync::Arc;

use crate::tool::{CallId, ToolCall};

pub use part::{
    Annotation, Media, MediaSource, MessagePart, ModelApiFormat, PartBody, ToolReply, UrlCitation,
    WireIdentity,
};

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The operator, in the middle of a conversation. Instructions before the first message are in the system text of
    /// the request.
    System,
    /// The person or program that the model works for.
    User,
    /// The model, from any provider.
    Assistant,
    /// The tools: one message holds the replies to all calls of a turn.
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The author. It restricts the kinds of parts: for example, only a model's messages hold calls.
    pub role: Role,
    /// The content, in the order in which the author wrote it.
    pub parts: Vec<MessagePart>,
}

impl Message {
    /// Creates an operator instruction in the middle of a conversation.
    pub fn system(text: impl Into<String>) -> Self {
        Self { role: Role::System, parts: vec![MessagePart::text(text)] }
    }

    /// Creates a user request.
    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, parts: vec![MessagePart::text(text)] }
    }

    /// Creates a model message.
    pub fn assistant(parts: Vec<MessagePart>) -> Self {
        Self { role: Role::Assistant, parts }
    }

    /// Creates the message with the replies to all calls of one turn.
    pub fn tool(replies: Vec<ToolReply>) -> Self {
        let parts = replies.into_iter().map(|reply| MessagePart::new(PartBody::Reply(reply))).collect();
        Self { role: Role::Tool, parts }
    }

    /// Returns the tool calls of the message, in the order in which the model wrote them.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(MessagePart::as_call)
    }
}

/// Messages in an order that every provider accepts: the message right after tool calls replies to each of them exactly
/// once.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    messages: Vec<Arc<Message>>,
}

impl Conversation {
    /// Appends a message. Sorts replies into the order of their calls, because some wire formats match them by order
    /// alone.
    pub fn push(&mut self, message: Message) -> Result<(), ConversationError> {
        let message = order::admit(self.open_calls(), message)?;
        self.messages.push(Arc::new(message));
        Ok(())
    }

    /// Appends a message of another conversation without copying it, so that caches recognize it. Its replies must be
    /// in the order of their calls, as in every conversation.
    pub fn push_shared(&mut self, message: Arc<Message>) -> Result<(), ConversationError> {
        order::admit(self.open_calls(), Message::clone(&message))?;
        self.messages.push(message);
        Ok(())
    }

    /// Returns all messages, the oldest first.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// Returns the first `messages` messages as a separate conversation, or `None` if there are fewer.
    pub fn beginning(&self, messages: usize) -> Option<Self> {
        Some(Self { messages: self.messages.get(..messages)?.to_vec() })
    }

    /// Returns the calls without a reply. Only the last message can have such calls.
    pub fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.messages.last().into_iter().flat_map(|message| message.calls())
    }
}

/// The reason why a message cannot come next. The error is for the code that drives the conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversationError {
    /// Calls wait for replies, but the message is not a complete set of tool replies.
    #[error("tool calls have no replies yet: {}; push one tool message that answers all of them", joined(.calls))]
    Unanswered {
        /// The ids of the calls without a reply.
        calls: Vec<CallId>,
    },
    /// A reply to a call that is not open, or a second reply to the same call.
    #[error("no open tool call has the id `{}`; a tool reply must answer a call of the message before it", .call.0)]
    NotAsked {
        /// The call id in the tool reply.
        call: CallId,
    },
    /// Two calls of one message have the same id.
    #[error("two tool calls have the id `{}`; give each call of a message a unique id", .call.0)]
    SameId {
        /// The call id that occurs twice.
        call: CallId,
    },
    /// A message with this role cannot hold this kind of part.
    #[error("{part} is not allowed in a message of role {role:?}; put it into a message of another role")]
    Misplaced {
        /// The role of the message.
        role: Role,
        /// The kind of part, such as `a tool call`.
        part: &'static str,
    },
}

fn joined(calls: &[CallId]) -> String {
    calls.iter().map(|call| call.0.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
