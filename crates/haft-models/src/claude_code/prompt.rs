//! Renders messages as one text, because the `claude` command takes a prompt, not a conversation.

use std::fmt::Write;

use haft_core::conversation::{Message, MessagePart, PartBody, Role};
use haft_core::model_reply::ReplyNote;
use haft_core::model_request::{ModelRequest, OutputShape, ReasoningEffort, SamplingParameters, ToolChoice};
use haft_core::output::OutputContent;

/// Returns the text of a single user message unchanged. Several messages are joined, with a role name before each.
pub(super) fn prompt<'a>(messages: impl Iterator<Item = &'a Message>) -> String {
    let messages: Vec<&Message> = messages.collect();
    if let [Message { role: Role::User, parts }] = messages.as_slice() {
        return text_of_parts(parts);
    }
    labelled(messages.into_iter())
}

/// Returns messages as text, with a role name before each.
pub(super) fn labelled<'a>(messages: impl Iterator<Item = &'a Message>) -> String {
    let mut text = String::new();
    for message in messages {
        let who = match message.role {
            Role::System => "Note",
            Role::User => "User",
            Role::Assistant => "Assistant",
            Role::Tool => "Tool results",
        };
        let _ = write!(text, "{who}:\n{}\n\n", text_of_parts(&message.parts));
    }
    text.trim_end().to_owned()
}

fn text_of_parts(parts: &[MessagePart]) -> String {
    parts.iter().filter_map(|part| words(&part.body)).collect::<Vec<_>>().join("\n\n")
}

fn words(body: &PartBody) -> Option<String> {
    match body {
        PartBody::Text { text, .. } | PartBody::Refusal(text) => Some(text.clone()),
        PartBody::Call(call) => Some(format!("(called {} with {})", call.name, call.arguments.as_text())),
        PartBody::Reply(reply) => {
            let content: Vec<String> = reply.content.iter().map(OutputContent::as_text).collect();
            let how = if reply.is_error { "failed" } else { "answered" };
            Some(format!("({} {how})\n{}", reply.name, content.join("\n")))
        }
        PartBody::Image(_)
        | PartBody::Audio(_)
        | PartBody::File { .. }
        | PartBody::Reasoning(_)
        | PartBody::Opaque => None,
    }
}

/// Lists the features of a request that Claude Code does not support.
pub(super) fn unsupported(request: &ModelRequest) -> Vec<ReplyNote> {
    let parts = || request.conversation.messages().iter().flat_map(|message| &message.parts);
    let media = |part: &MessagePart| {
        matches!(part.body, PartBody::Image(_) | PartBody::Audio(_) | PartBody::File { .. })
    };
    let dropped = [
        (parts().any(media), "images, audio and files", "haft does not send them to Claude Code"),
        (request.sampling != SamplingParameters::default(), "sampling", "Claude Code decides"),
        (request.output_tokens_max.is_some(), "an output token limit", "Claude Code decides"),
        (request.tool_choice != ToolChoice::Auto, "a tool choice", "Claude Code decides"),
        (request.output == OutputShape::Json, "JSON without a schema", "haft does not request JSON"),
        (request.reasoning == Some(ReasoningEffort::Off), "reasoning off", "Claude Code decides"),
    ];
    let dropped = dropped.into_iter().filter(|(dropped, _, _)| *dropped);
    dropped
        .map(|(_, what, instead)| ReplyNote::FeatureDropped { what: what.into(), instead: instead.into() })
        .collect()
}

#[cfg(test)]
mod tests {
    use haft_core::arguments::RawArguments;
    use haft_core::conversation::ToolReply;
    use haft_core::tool::{CallId, ToolCall};

    use super::*;

    #[test]
    fn claude_code_prompt_labels_messages_with_their_role() {
        let check = |messages: &[Message], expected: &str| assert_eq!(prompt(messages.iter()), expected);
        check(&[Message::user("hi")], "hi");
        check(
            &[Message::user("hi"), Message::assistant(vec![MessagePart::text("ho")])],
            "User:\nhi\n\nAssistant:\nho",
        );
        let call =
            ToolCall { id: CallId("1".into()), name: "t".into(), arguments: RawArguments::from_text("{}") };
        let parts = vec![
            MessagePart::new(PartBody::Reasoning("hm".into())),
            MessagePart::new(PartBody::Call(call.clone())),
        ];
        let replies = Message::tool(vec![ToolReply::text(&call, "x")]);
        let expected = "Assistant:\n(called t with {})\n\nTool results:\n(t answered)\nx";
        check(&[Message::assistant(parts), replies], expected);
        let failed = Message::tool(vec![ToolReply::error(&call, "no such file")]);
        check(&[failed], "Tool results:\n(t failed)\nno such file");
    }
}
