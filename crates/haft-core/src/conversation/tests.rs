use super::*;
use crate::arguments::RawArguments;

fn call(id: &str) -> ToolCall {
    ToolCall { id: CallId(id.into()), name: "read".into(), arguments: RawArguments::from_text("{}") }
}

fn calls(ids: &[&str]) -> Message {
    Message::assistant(ids.iter().map(|id| MessagePart::new(PartBody::Call(call(id)))).collect())
}

fn replies(ids: &[&str]) -> Message {
    Message::tool(ids.iter().map(|id| ToolReply::text(&call(id), *id)).collect())
}

fn after(messages: Vec<Message>, last: Message) -> Result<Conversation, ConversationError> {
    let mut conversation = Conversation::default();
    for message in messages {
        conversation.push(message).unwrap();
    }
    conversation.push(last).map(|()| conversation)
}

#[test]
fn tool_replies_are_stored_in_call_order() {
    let conversation = after(vec![calls(&["a", "b"])], replies(&["b", "a"])).unwrap();
    let kept = &conversation.messages()[1];
    let ids = kept.parts.iter().filter_map(|part| match &part.body {
        PartBody::Reply(reply) => Some(reply.call.0.as_str()),
        _ => None,
    });
    assert_eq!(ids.collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(conversation.open_calls().count(), 0);
}

#[test]
fn message_after_unanswered_calls_is_rejected() {
    let unanswered = |ids: &[&str]| ConversationError::Unanswered {
        calls: ids.iter().map(|id| CallId((*id).into())).collect(),
    };
    assert_eq!(after(vec![calls(&["a"])], Message::user("well?")).unwrap_err(), unanswered(&["a"]));
    assert_eq!(after(vec![calls(&["a", "b"])], replies(&["a"])).unwrap_err(), unanswered(&["b"]));
}

#[test]
fn reply_without_an_open_call_is_rejected() {
    let not_asked = ConversationError::NotAsked { call: CallId("a".into()) };
    assert_eq!(after(vec![Message::user("hi")], replies(&["a"])).unwrap_err(), not_asked);
    assert_eq!(after(vec![calls(&["a"])], replies(&["a", "a"])).unwrap_err(), not_asked);
    assert_eq!(after(vec![calls(&["a"]), replies(&["a"])], replies(&["a"])).unwrap_err(), not_asked);
}

#[test]
fn misplaced_parts_and_duplicate_call_ids_are_rejected() {
    let spoken = Message { role: Role::User, parts: calls(&["a"]).parts };
    let error = after(vec![], spoken).unwrap_err();
    assert_eq!(error, ConversationError::Misplaced { role: Role::User, part: "a tool call" });
    assert_eq!(
        after(vec![], calls(&["a", "a"])).unwrap_err(),
        ConversationError::SameId { call: CallId("a".into()) }
    );
}

#[test]
fn wire_identity_is_visible_only_to_its_own_api_format() {
    let mark =
        WireIdentity { format: ModelApiFormat::Gemini, id: Some("7".into()), state: Some("sig".into()) };
    let part = MessagePart::text("hi").marked(mark);
    assert_eq!(
        (part.id_for(ModelApiFormat::Gemini), part.state_for(ModelApiFormat::Gemini)),
        (Some("7"), Some("sig"))
    );
    assert_eq!((part.id_for(ModelApiFormat::Ollama), part.state_for(ModelApiFormat::Ollama)), (None, None));
}
