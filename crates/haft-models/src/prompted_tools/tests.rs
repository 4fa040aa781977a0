use haft_core::arguments::RawArguments;
use haft_core::conversation::ToolReply;
use haft_core::model_reply::{ModelReply, StopReason};
use haft_core::tool::{CallId, ToolCall};
use serde_json::json;

use super::*;
use crate::wire::DecodeContext;

fn reply(text: &str) -> ModelReply {
    ModelReply {
        id: None,
        model: None,
        parts: vec![MessagePart::text(text)],
        stop: StopReason::EndOfTurn,
        usage: None,
        notes: Vec::new(),
    }
}

fn check(text: &str, said: &str, calls: &[&str]) {
    let reply = read_calls(reply(text), &DecodeContext { turn: 3, ..DecodeContext::default() });
    let found: Vec<_> =
        reply.calls().map(|call| format!("{} {}", call.name, call.arguments.as_text())).collect();
    assert_eq!(
        (reply.text().as_str(), found),
        (said, calls.iter().map(|call| (*call).to_owned()).collect()),
        "{text}"
    );
    assert_eq!(reply.stop == StopReason::ToolCalls, !calls.is_empty(), "{text}");
}

#[test]
fn only_tagged_json_is_parsed_as_a_call() {
    check("hello", "hello", &[]);
    check(
        "I look.\n<tool_call>{\"name\": \"read\", \"arguments\": { \"path\":1.0 }}</tool_call>\n<tool_call>\n{\"name\":\"now\"}\n</tool_call>",
        "I look.",
        &["read { \"path\":1.0 }", "now {}"],
    );
    check("<tool_call>{\"name\":\"now\",\"parameters\":{}}", "", &["now {}"]);
    check("a <tool_call>nonsense</tool_call> b", "a <tool_call>nonsense</tool_call> b", &[]);
    check("a <tool_call>", "a <tool_call>", &[]);
}

#[test]
fn almost_valid_tagged_call_is_repaired_and_noted() {
    let notes = |text: &str| {
        let read = read_calls(reply(text), &DecodeContext::default());
        read.notes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    let broken = "<tool_call>{'name': 'read', 'arguments': {'path': 'a',}}</tool_call>";
    check(broken, "", &["read {\"path\":\"a\"}"]);
    assert!(notes(broken).starts_with("haft repaired the model's call to `read`: "), "{}", notes(broken));
    let fenced = "<tool_call>\n```json\n{\"name\": \"now\"}\n```\n</tool_call>";
    check(fenced, "", &["now {}"]);
    let half = "<tool_call>{\"name\": \"read\", \"arguments\": {\"path\": \"/et";
    check(half, half, &[]);
    assert!(notes(half).ends_with("the JSON of the call is incomplete"), "{}", notes(half));
    assert!(notes("<tool_call>{\"a\": 1}</tool_call>").contains("the call has no `name`"));
    assert_eq!(notes("<tool_call>{\"name\": \"now\"}</tool_call>"), "");
}

#[test]
fn images_of_tool_replies_are_sent_as_user_parts() {
    let call =
        ToolCall { id: CallId("a".into()), name: "look".into(), arguments: RawArguments::from_text("{}") };
    let mut told = ToolReply::text(&call, "here");
    told.content
        .push(OutputContent::Image { media_type: "image/png".into(), bytes: b"png".as_slice().into() });
    let mut conversation = Conversation::default();
    conversation.push(Message::assistant(vec![MessagePart::new(PartBody::Call(call))])).unwrap();
    conversation.push(Message::tool(vec![told])).unwrap();
    let request = ModelRequest::new("m", Arc::new(conversation));
    let rewritten = PromptedConversation::default().rewrite(&request).unwrap();
    let last = &rewritten.conversation.messages()[1];
    assert_eq!(last.role, Role::User);
    assert!(matches!(&last.parts[0].body, PartBody::Text { text, .. } if text.contains("here")));
    let png = Media { media_type: "image/png".into(), source: MediaSource::Bytes(b"png".as_slice().into()) };
    assert_eq!(last.parts[1].body, PartBody::Image(png));
}

#[test]
fn tools_calls_and_replies_are_rewritten_as_prompt_text() {
    let call = ToolCall {
        id: CallId("a".into()),
        name: "read".into(),
        arguments: RawArguments::from_text("{\"path\": 1}"),
    };
    let mut conversation = Conversation::default();
    conversation.push(Message::user("go")).unwrap();
    conversation.push(Message::assistant(vec![MessagePart::new(PartBody::Call(call.clone()))])).unwrap();
    conversation.push(Message::tool(vec![ToolReply::error(&call, "no such file")])).unwrap();
    let mut request = ModelRequest::new("m", Arc::new(conversation.clone()));
    request.system = "Be brief.".into();
    let tool = ModelTool {
        name: "read".into(),
        description: "Reads.".into(),
        input_schema: Arc::new(json!({})),
        strict: false,
    };
    request.tools = Arc::new([tool]);
    let mut prompted = PromptedConversation::default();
    let first = prompted.rewrite(&request).unwrap();
    assert!(first.tools.is_empty());
    assert!(
        first.system.starts_with("Be brief.") && first.system.contains("- read: Reads."),
        "{}",
        first.system
    );
    let texts: Vec<_> =
        first.conversation.messages().iter().map(|message| format!("{:?}", message.parts)).collect();
    assert!(
        texts[1].contains("<tool_call>{\\\"name\\\": \\\"read\\\", \\\"arguments\\\": {\\\"path\\\": 1}}"),
        "{}",
        texts[1]
    );
    assert!(texts[2].contains("outcome=\\\"error\\\"") && texts[2].contains("no such file"), "{}", texts[2]);

    conversation.push(Message::user("and?")).unwrap();
    request.conversation = Arc::new(conversation);
    request.tool_choice = ToolChoice::Required;
    let second = prompted.rewrite(&request).unwrap();
    assert!(second.system.starts_with(&*first.system));
    assert!(second.system.ends_with("\nCall a tool now."), "{}", second.system);
    request.parallel_calls = ParallelCalls::OneAtATime;
    let third = prompted.rewrite(&request).unwrap().system;
    assert!(third.ends_with("\nMake one call at a time. Call a tool now."), "{third}");
    assert!(Arc::ptr_eq(&first.conversation.messages()[2], &second.conversation.messages()[2]));
}
