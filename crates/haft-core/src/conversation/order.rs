//! Decides if a message may come next, given the open calls.

use std::collections::HashSet;

use super::{ConversationError, Message, MessagePart, PartBody, Role};
use crate::tool::{CallId, ToolCall};

/// Returns the message with its replies in the order of their calls, or the reason why the message cannot come next.
pub(super) fn admit<'a>(
    open: impl Iterator<Item = &'a ToolCall>,
    message: Message,
) -> Result<Message, ConversationError> {
    let open: Vec<&CallId> = open.map(|call| &call.id).collect();
    check_part_roles(&message)?;
    match message.role {
        Role::Tool => in_call_order(&open, message),
        Role::System | Role::User | Role::Assistant if open.is_empty() => {
            check_ids(&message).map(|()| message)
        }
        Role::System | Role::User | Role::Assistant => Err(unanswered(&open)),
    }
}

fn unanswered(open: &[&CallId]) -> ConversationError {
    ConversationError::Unanswered { calls: open.iter().map(|id| (*id).clone()).collect() }
}

fn check_part_roles(message: &Message) -> Result<(), ConversationError> {
    let role = message.role;
    match message.parts.iter().find(|part| !role_allows_body(role, &part.body)) {
        Some(part) => Err(ConversationError::Misplaced { role, part: part.body.name() }),
        None => Ok(()),
    }
}

fn role_allows_body(role: Role, body: &PartBody) -> bool {
    match body {
        PartBody::Text { .. } => role != Role::Tool,
        PartBody::Image(_) | PartBody::Audio(_) | PartBody::File { .. } => {
            matches!(role, Role::User | Role::Assistant)
        }
        PartBody::Refusal(_) | PartBody::Reasoning(_) | PartBody::Call(_) | PartBody::Opaque => {
            role == Role::Assistant
        }
        PartBody::Reply(_) => role == Role::Tool,
    }
}

fn check_ids(message: &Message) -> Result<(), ConversationError> {
    let mut seen = HashSet::new();
    match message.calls().find(|call| !seen.insert(&call.id)) {
        Some(call) => Err(ConversationError::SameId { call: call.id.clone() }),
        None => Ok(()),
    }
}

fn in_call_order(open: &[&CallId], message: Message) -> Result<Message, ConversationError> {
    let mut places: Vec<Option<MessagePart>> = open.iter().map(|_| None).collect();
    for part in message.parts {
        let PartBody::Reply(reply) = &part.body else { continue };
        let place = open.iter().position(|id| **id == reply.call).filter(|place| places[*place].is_none());
        match place {
            Some(place) => places[place] = Some(part),
            None => return Err(ConversationError::NotAsked { call: reply.call.clone() }),
        }
    }
    let missing: Vec<_> =
        open.iter().zip(&places).filter(|(_, part)| part.is_none()).map(|(id, _)| *id).collect();
    if !missing.is_empty() {
        return Err(unanswered(&missing));
    }
    Ok(Message { role: Role::Tool, parts: places.into_iter().flatten().collect() })
}
