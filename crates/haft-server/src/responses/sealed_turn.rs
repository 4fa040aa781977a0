//! Turns that the server does not store. The client keeps such a turn, encrypted ("sealed"), in an item of type
//! `reasoning`.
//!
//! A sealed turn contains the messages of one response in the engine's form, with the provider's reasoning and
//! signatures, which the other output items do not have. A client sends back the sealed turn and the other items, so
//! this module removes the items that the sealed turn also contains.

use haft_core::conversation::{Conversation, Message, MessagePart, Role};
use haft_core::stored::StoredMessage;
use haft_core::tool::ToolCall;
use serde::{Deserialize, Serialize};

use super::field::invalid;
use super::items::InputItem;
use super::sealed_text;
use crate::auth::Caller;
use crate::error::ApiError;
use crate::server::ServerState;

/// The messages of one response.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SealedTurn {
    pub(super) messages: Vec<Message>,
    /// The ids of the calls that the client runs. Their replies are placeholders.
    pub(super) open_calls: Vec<String>,
    pub(super) scope: TurnScope,
    /// The name of the workspace of the run.
    pub(super) workspace: Option<String>,
    /// The id of the response.
    response: String,
}

/// The part of the conversation that a sealed turn contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TurnScope {
    /// The messages of the response.
    Response,
    /// All messages of the conversation, because the run changed earlier messages, for example by compaction.
    Conversation,
}

/// The text that is encrypted.
#[derive(Serialize, Deserialize)]
struct TurnText {
    response: String,
    scope: TurnScope,
    messages: Vec<StoredMessage>,
    open_calls: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
}

/// Encrypts the turn of a response. `opening` is the conversation before the response.
pub(super) async fn seal(
    state: &ServerState,
    caller: &Caller,
    response: &str,
    (conversation, opening): (&Conversation, &[StoredMessage]),
    (open_calls, workspace): (Vec<String>, Option<String>),
) -> Result<String, ApiError> {
    let mut messages: Vec<StoredMessage> =
        conversation.messages().iter().map(|message| StoredMessage::of(message)).collect();
    let is_extended = !opening.is_empty() && messages.starts_with(opening);
    let scope = if is_extended { TurnScope::Response } else { TurnScope::Conversation };
    if is_extended {
        messages.drain(..opening.len());
    }
    let text = TurnText { response: response.to_owned(), scope, messages, open_calls, workspace };
    sealed_text::seal(state, caller, move || serde_json::to_vec(&text)).await
}

/// Reads the decrypted turn of the item at `path`.
pub(super) fn read(path: &str, text: &[u8]) -> Result<SealedTurn, ApiError> {
    let unreadable = |error: String| {
        let message = format!("the encrypted item contains no valid turn: {error}");
        invalid(format!("{path}.encrypted_content"), message).with_code(sealed_text::INVALID)
    };
    let text: TurnText = serde_json::from_slice(text).map_err(|error| unreadable(error.to_string()))?;
    let TurnText { response, scope, messages, open_calls, workspace } = text;
    let messages = messages.into_iter().map(StoredMessage::into_message);
    let messages = messages.collect::<Result<_, _>>().map_err(|error| unreadable(error.to_string()))?;
    Ok(SealedTurn { messages, open_calls, scope, workspace, response })
}

/// An input item after decryption.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OpenedItem {
    Item(InputItem),
    Turn(SealedTurn),
    /// A compacted conversation.
    Compacted(Vec<Message>),
}

/// An item and its path in the request.
pub(super) type OpenedEntry = (String, OpenedItem);

/// Removes the items that a sealed turn also contains, and moves the turn to the position of the first removed item.
/// Searches the items on both sides of the turn, because clients send items either in output order or in the order in
/// which the items were completed.
pub(super) fn without_repeats(items: Vec<OpenedEntry>) -> Vec<OpenedEntry> {
    let mut places: Vec<Option<usize>> = (0..items.len()).map(Some).collect();
    for (at, (_, item)) in items.iter().enumerate() {
        let OpenedItem::Turn(turn) = item else { continue };
        let of_turn = |at: &usize| matches!(&items[*at].1, OpenedItem::Item(item) if turn.surrounds(item));
        let before = (0..at).rev().take_while(of_turn);
        let after = (at + 1..items.len()).take_while(of_turn);
        for place in before.chain(after) {
            let OpenedItem::Item(item) = &items[place].1 else { continue };
            if turn.repeats(item) {
                places[place] = None;
                places[at] = places[at].map(|first| first.min(place));
            }
        }
    }
    let mut kept: Vec<(usize, OpenedEntry)> =
        places.into_iter().zip(items).filter_map(|(place, item)| Some((place?, item))).collect();
    kept.sort_by_key(|(place, _)| *place);
    kept.into_iter().map(|(_, item)| item).collect()
}

impl SealedTurn {
    /// Returns true if an item can be between items of this turn: it comes from the model, or is the output of a call
    /// of the turn.
    fn surrounds(&self, item: &InputItem) -> bool {
        match item {
            InputItem::Message { role, .. } => *role == Role::Assistant,
            InputItem::Call(_) | InputItem::Finished { .. } | InputItem::Dropped | InputItem::Skipped(_) => {
                true
            }
            InputItem::Output { call, .. } => self.open_calls.contains(call),
            InputItem::ApprovalResponse { .. }
            | InputItem::Reference(_)
            | InputItem::Compaction(_)
            | InputItem::Sealed(_) => false,
        }
    }

    fn repeats(&self, item: &InputItem) -> bool {
        match item {
            InputItem::Message { role: Role::Assistant, parts } => self.has_text(&text(parts)),
            InputItem::Call(call) => self.calls().any(|own| own.id == call.id),
            InputItem::Finished { call, .. } => self.has_finished(call),
            InputItem::Dropped => true,
            InputItem::Message { .. }
            | InputItem::Output { .. }
            | InputItem::Skipped(_)
            | InputItem::ApprovalResponse { .. }
            | InputItem::Reference(_)
            | InputItem::Compaction(_)
            | InputItem::Sealed(_) => false,
        }
    }

    /// Returns true if the turn contains a finished call. If the call id does not contain the response id, compares
    /// name and arguments, because clients that do not use stored responses omit the response id.
    fn has_finished(&self, call: &ToolCall) -> bool {
        let hex = self.response.trim_start_matches("resp_");
        let is_same =
            |own: &ToolCall| own.name == call.name && own.arguments.as_text() == call.arguments.as_text();
        call.id.0.contains(hex) || self.calls().any(is_same)
    }

    fn has_text(&self, found: &str) -> bool {
        let replies = self.messages.iter().filter(|message| message.role == Role::Assistant);
        let own = |message: &Message| {
            let single = message.parts.iter().filter_map(shown_text);
            single.map(str::trim).any(|part| part == found) || text(&message.parts) == found
        };
        replies.into_iter().any(own)
    }

    fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.messages.iter().flat_map(Message::calls)
    }
}

/// Returns the whole text of a message.
fn text(parts: &[MessagePart]) -> String {
    parts.iter().filter_map(shown_text).collect::<String>().trim().to_owned()
}

/// Returns the text that a client sees in a part.
fn shown_text(part: &MessagePart) -> Option<&str> {
    part.as_text().or(part.as_refusal())
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use haft_core::conversation::{PartBody, ToolReply};
    use serde_json::{Value, json};

    use super::*;

    fn turn() -> SealedTurn {
        let calls = [
            ToolCall::new("call_s", "docs__look", &json!({"n": 1})),
            ToolCall::new("call_c", "weather", &json!({})),
        ];
        let mut parts =
            vec![MessagePart::new(PartBody::Reasoning("hm".into())), MessagePart::text("I look. ")];
        parts.extend(calls.iter().map(|call| MessagePart::new(PartBody::Call(call.clone()))));
        let replies = calls.iter().map(|call| ToolReply::text(call, "x")).collect();
        SealedTurn {
            messages: vec![Message::assistant(parts), Message::tool(replies)],
            open_calls: vec!["call_c".into()],
            scope: TurnScope::Response,
            workspace: None,
            response: "resp_abc".into(),
        }
    }

    /// Checks which items are left, by their paths; the path of the turn is `sealed`.
    fn check(before: &[Value], after: &[Value], expected: &[&str]) {
        let entry = |(at, item): (usize, &Value)| {
            let path = format!("{at}");
            let item = InputItem::parse(&path, item).unwrap();
            (path, OpenedItem::Item(item))
        };
        let mut items: Vec<OpenedEntry> = before.iter().chain(after).enumerate().map(entry).collect();
        items.insert(before.len(), ("sealed".into(), OpenedItem::Turn(turn())));
        let left: Vec<String> = without_repeats(items).into_iter().map(|(path, _)| path).collect();
        assert_eq!(left, expected, "{before:?} {after:?}");
    }

    #[test]
    fn sealed_turn_replaces_only_its_own_items_in_any_order() {
        let user = json!({"role": "user", "content": "I look."});
        let said = json!({"type": "message", "role": "assistant", "content": "I look."});
        let other = json!({"type": "message", "role": "assistant", "content": "Earlier."});
        let looked = |id: &str| json!({"type": "mcp_call", "id": id, "server_label": "docs", "name": "look", "arguments": "{\"n\":1}"});
        let call =
            |id: &str| json!({"type": "function_call", "call_id": id, "name": "weather", "arguments": "{}"});
        let output = json!({"type": "function_call_output", "call_id": "call_c", "output": "1"});
        let items = [said.clone(), looked("m"), call("call_c")];
        check(
            from_ref(&user),
            &[said.clone(), looked("m"), call("call_c"), output.clone()],
            &["0", "sealed", "4"],
        );
        check(&items, from_ref(&output), &["sealed", "3"]);
        check(&[call("call_c"), output.clone()], from_ref(&said), &["sealed", "1"]);
        check(from_ref(&other), from_ref(&said), &["0", "sealed"]);
        check(&[call("call_d")], &[], &["0", "sealed"]);
        check(&[said.clone(), user.clone()], &[said.clone(), user, said], &["0", "1", "sealed", "3", "4"]);
        let renamed = json!({"type": "mcp_call", "id": "mcp_abc0001", "server_label": "x", "name": "y", "arguments": "{}"});
        check(&[], &[renamed], &["sealed"]);
    }
}
