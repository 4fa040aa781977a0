//! What was said so far, in no provider's words: messages of parts that any wire format can carry on.
//!
//! A conversation grows only at its end, and what it holds is never changed. Encoders rely on that: what was encoded for
//! one turn is reused for the next.

mod order;
mod part;

use std::fmt;
use std::sync::Arc;

use crate::tool::{CallId, ToolCall};

pub use part::{Annotation, Body, Format, Mark, Media, Part, Source, ToolReply};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The operator, in the middle of a conversation; what stands before it all is the request's system text.
    System,
    User,
    Assistant,
    /// The tools: all replies to the calls of one turn.
    Tool,
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub role: Role,
    pub parts: Vec<Part>,
}

impl Message {
    pub fn system(text: impl Into<String>) -> Self {
        Self { role: Role::System, parts: vec![Part::text(text)] }
    }

    pub fn user(text: impl Into<String>) -> Self {
        Self { role: Role::User, parts: vec![Part::text(text)] }
    }

    pub fn assistant(parts: Vec<Part>) -> Self {
        Self { role: Role::Assistant, parts }
    }

    pub fn tool(replies: Vec<ToolReply>) -> Self {
        let parts = replies.into_iter().map(|reply| Part::new(Body::Reply(reply))).collect();
        Self { role: Role::Tool, parts }
    }

    /// The calls in it, in the order they were written.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(Part::as_call)
    }
}

/// Messages in an order that every provider accepts: calls are answered at once, together and each exactly once.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    messages: Vec<Arc<Message>>,
}

impl Conversation {
    /// Adds what was said next. Replies are put into the order of their calls, because some wires know no other link.
    pub fn push(&mut self, message: Message) -> Result<(), ConversationError> {
        let message = order::admit(self.open_calls(), message)?;
        self.messages.push(Arc::new(message));
        Ok(())
    }

    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// The first messages of it, as a conversation of their own; nothing when there are fewer.
    pub fn beginning(&self, messages: usize) -> Option<Self> {
        Some(Self { messages: self.messages.get(..messages)?.to_vec() })
    }

    /// The calls that nobody has answered: those of the last message.
    pub fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.messages.last().into_iter().flat_map(|message| message.calls())
    }
}

/// Why a message does not fit where it was put; read by whoever drives the conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationError {
    /// Something else was said although calls wait for their replies.
    Unanswered { calls: Vec<CallId> },
    /// A reply to a call that is not open, or a second one.
    NotAsked { call: CallId },
    /// Two calls of one message have the same id.
    SameId { call: CallId },
    /// A part that this role cannot say.
    Misplaced { role: Role, part: &'static str },
}

impl fmt::Display for ConversationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unanswered { calls } => {
                let ids: Vec<_> = calls.iter().map(|call| call.0.as_str()).collect();
                write!(
                    f,
                    "calls wait for replies: {}; push one tool message that answers them all",
                    ids.join(", ")
                )
            }
            Self::NotAsked { call } => {
                write!(
                    f,
                    "no open call has the id `{}`; a reply answers a call of the message before it",
                    call.0
                )
            }
            Self::SameId { call } => {
                write!(f, "two calls have the id `{}`; give each call of a message an id of its own", call.0)
            }
            Self::Misplaced { role, part } => {
                write!(
                    f,
                    "{part} cannot stand in a message of role {role:?}; put it into one that can say it"
                )
            }
        }
    }
}

impl std::error::Error for ConversationError {}

#[cfg(test)]
mod tests;
