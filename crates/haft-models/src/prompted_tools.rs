//! Emulates tool calls for models that do not support them: the prompt describes the tools, and calls are parsed from
//! tagged JSON.

mod parse;

use std::fmt::Write as _;
use std::sync::Arc;

use haft_core::conversation::{
    Conversation, ConversationError, Media, MediaSource, Message, MessagePart, PartBody, Role,
};
use haft_core::model_request::{ModelRequest, ModelTool, MustCall, ParallelCalls, ToolChoice};
use haft_core::output::OutputContent;

use crate::media;

pub use parse::read_calls;

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

const ONE_AT_A_TIME: &str = "Make one call at a time.";

/// A conversation rewritten without tool calls. The copy grows with the original, so that each message is rewritten and
/// encoded only once.
#[derive(Debug, Default)]
pub struct PromptedConversation {
    seen: Vec<Arc<Message>>,
    plain: Conversation,
    tool_prompt: Option<ToolPrompt>,
}

/// A system prompt with its tools, and the text that replaces both.
#[derive(Debug)]
struct ToolPrompt {
    system: Arc<str>,
    tools: Arc<[ModelTool]>,
    text: Arc<str>,
}

impl PromptedConversation {
    /// Returns the request without tools: the system prompt describes them, and calls and results are text.
    pub fn rewrite(&mut self, request: &ModelRequest) -> Result<ModelRequest, ConversationError> {
        let messages = request.conversation.messages();
        if !self.fits(messages) {
            *self = Self::default();
        }
        for message in &messages[self.seen.len()..] {
            self.plain.push(plain(message))?;
            self.seen.push(message.clone());
        }
        let mut rewritten = request.clone();
        rewritten.conversation = Arc::new(self.plain.clone());
        rewritten.system = self.system(request);
        rewritten.tools = Arc::new([]);
        rewritten.tool_choice = ToolChoice::Auto;
        Ok(rewritten)
    }

    /// Returns the number of messages that are already rewritten, or `None` for another conversation.
    pub(crate) fn known_messages(&self, conversation: &Conversation) -> Option<usize> {
        let known = self.seen.len();
        (known > 0 && self.fits(conversation.messages())).then_some(known)
    }

    fn fits(&self, messages: &[Arc<Message>]) -> bool {
        self.seen.len() <= messages.len()
            && self.seen.iter().zip(messages).all(|(kept, new)| Arc::ptr_eq(kept, new))
    }

    /// Returns the size of the rewritten text, in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        let parts = self.plain.messages().iter().flat_map(|message| &message.parts);
        parts.filter_map(MessagePart::as_text).map(str::len).sum()
    }

    /// Returns the system prompt with the tools. The tool choice changes from turn to turn, so it comes last, and the
    /// text before it stays the same.
    fn system(&mut self, request: &ModelRequest) -> Arc<str> {
        if request.tools.is_empty() || request.tool_choice == ToolChoice::None {
            return request.system.clone();
        }
        let fits = |tool_prompt: &ToolPrompt| {
            tool_prompt.system == request.system && Arc::ptr_eq(&tool_prompt.tools, &request.tools)
        };
        let tool_prompt = self.tool_prompt.take().filter(fits).unwrap_or_else(|| ToolPrompt {
            system: request.system.clone(),
            tools: request.tools.clone(),
            text: described(&request.system, &request.tools).into(),
        });
        let text = self.tool_prompt.insert(tool_prompt).text.clone();
        let one = (request.parallel_calls == ParallelCalls::OneAtATime).then(|| ONE_AT_A_TIME.to_owned());
        match one.into_iter().chain(tool_choice_text(&request.tool_choice)).collect::<Vec<_>>().join(" ") {
            nothing if nothing.is_empty() => text,
            choice => format!("{text}\n{choice}").into(),
        }
    }
}

fn described(system: &str, tools: &[ModelTool]) -> String {
    let mut text = String::from(system);
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str("You can use tools. To call one, write this and nothing after it:\n");
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{OPEN}{{\"name\": \"NAME\", \"arguments\": {{...}}}}{CLOSE}");
    text.push_str("Several calls may follow each other. The results come in the next message.\nThe tools:\n");
    for tool in tools {
        let _ = writeln!(text, "- {}: {}\n  arguments: {}", tool.name, tool.description, tool.input_schema);
    }
    text
}

fn tool_choice_text(choice: &ToolChoice) -> Option<String> {
    match choice {
        ToolChoice::Auto | ToolChoice::None => None,
        ToolChoice::Required => Some("Call a tool now.".into()),
        ToolChoice::Named(name) => Some(format!("Call the tool `{name}` now.")),
        ToolChoice::Allowed { names, must_call: MustCall::No } => {
            Some(format!("Call only: {}.", names.join(", ")))
        }
        ToolChoice::Allowed { names, must_call: MustCall::Yes } => {
            Some(format!("Call one of these now: {}.", names.join(", ")))
        }
    }
}

/// Returns a message in which calls and results are text. Results become user messages, because no other role fits
/// better.
fn plain(message: &Message) -> Message {
    let parts = message.parts.iter().flat_map(plain_parts).collect();
    match message.role {
        Role::Tool => Message { role: Role::User, parts },
        Role::System | Role::User | Role::Assistant => Message { role: message.role, parts },
    }
}

fn plain_parts(part: &MessagePart) -> Vec<MessagePart> {
    match &part.body {
        PartBody::Call(call) => {
            let arguments = crate::object_arguments::object_json(&call.arguments);
            let name = serde_json::Value::from(call.name.as_str());
            vec![MessagePart::text(format!("{OPEN}{{\"name\": {name}, \"arguments\": {arguments}}}{CLOSE}"))]
        }
        PartBody::Reply(reply) => {
            let outcome = if reply.is_error { " outcome=\"error\"" } else { "" };
            let text = media::text_beside_images(reply);
            let tool_prompt =
                format!("<tool_result name=\"{}\"{outcome}>\n{text}\n</tool_result>\n", reply.name);
            std::iter::once(MessagePart::text(tool_prompt))
                .chain(reply.content.iter().filter_map(shown))
                .collect()
        }
        PartBody::Text { .. }
        | PartBody::Refusal(_)
        | PartBody::Image(_)
        | PartBody::Audio(_)
        | PartBody::File { .. }
        | PartBody::Reasoning(_)
        | PartBody::Opaque => vec![part.clone()],
    }
}

/// Returns an image in a tool result as a user image.
fn shown(piece: &OutputContent) -> Option<MessagePart> {
    let (media_type, bytes) = piece.as_image()?;
    let source = MediaSource::Bytes(Arc::clone(bytes));
    Some(MessagePart::new(PartBody::Image(Media { media_type: media_type.to_owned(), source })))
}

#[cfg(test)]
mod tests;
