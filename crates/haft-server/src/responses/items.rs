//! Input items, and the conversation that they continue.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haft_core::arguments::RawArguments;
use haft_core::conversation::{Media, MediaSource, Message, MessagePart, PartBody, Role, ToolReply};
use haft_core::name::ToolName;
use haft_core::output::OutputContent;
use haft_core::tool::{CallId, ToolCall};
use haft_engine::delimited_text;
use serde_json::{Map, Value};

use super::field::{RequestField, invalid, required};
use super::hosted_items;
use super::mcp_error;
use super::tool_origin::identity_name;
use crate::error::ApiError;

/// The maximum length of a call id, in characters.
const CALL_ID_CHARS_MAX: usize = 64;

/// One input item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InputItem {
    /// A message of a user, an assistant, or the developer of the client.
    Message { role: Role, parts: Vec<MessagePart> },
    /// A call that a model made earlier.
    Call(ToolCall),
    /// The output of a call that the client ran.
    Output { call: String, output: FunctionOutput },
    /// A call that a server ran, with its result.
    Finished { call: ToolCall, output: FunctionOutput, is_error: bool },
    /// The answer to an approval request.
    ApprovalResponse { request: String, approve: bool, reason: AnswerReason },
    /// A reference to an item of a stored response, by its id.
    Reference(String),
    /// An encrypted conversation.
    Compaction(String),
    /// An encrypted turn.
    Sealed(String),
    /// An item that the model does not need, such as reasoning of another turn, a list of tools, or a warning of haft.
    Dropped,
    /// An item of another server's tool without content for the model. The text is the warning for the client.
    Skipped(String),
}

/// Tells whether an answer to an approval request contains a `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerReason {
    None,
    /// The answer has a reason. The server ignores it with a warning, because a run stores no reason of an answer.
    Ignored,
}

/// The output of a function.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct FunctionOutput {
    pub(super) content: Vec<OutputContent>,
    /// The images by URL and the files. They become parts of a user message after the replies, because most model
    /// providers accept such parts only in user messages.
    attachments: Vec<MessagePart>,
}

impl InputItem {
    /// Parses the item at `path`.
    pub(crate) fn parse(path: &str, value: &Value) -> Result<Self, ApiError> {
        let Value::Object(item) = value else {
            return Err(invalid(path, format!("`{path}` must be an object")));
        };
        let kind = match item.get("type") {
            None | Some(Value::Null) if item.contains_key("role") => "message",
            None | Some(Value::Null) if reference_id(value).is_some() => "item_reference",
            Some(Value::String(kind)) => kind,
            _ => return Err(invalid(format!("{path}.type"), format!("`{path}.type` must be a string"))),
        };
        match kind {
            "message" => message(path, item),
            "function_call" => {
                let name = tool_name(path, item)?;
                Ok(Self::Call(call(path, item, "call_id", name)?))
            }
            "function_call_output" => Ok(Self::Output {
                call: call_id(path, item, "call_id")?,
                output: FunctionOutput::parse(&format!("{path}.output"), item.get("output"))?,
            }),
            "mcp_call" => {
                let label = required(path, item, "server_label")?;
                // A model provider refuses a name with characters such as `.`.
                let name = ToolName::sanitize(&identity_name(&label, &required(path, item, "name")?));
                // The client got the output without the delimiters, so add them again for the model.
                finished(path, item, name.to_string()).map(InputItem::delimited)
            }
            "haft:tool_call" => {
                let name = tool_name(path, item)?;
                finished(path, item, name)
            }
            "mcp_approval_response" => {
                let approve = RequestField::new(format!("{path}.approve"), item.get("approve").cloned());
                let reason = RequestField::new(format!("{path}.reason"), item.get("reason").cloned());
                let reason = reason.text()?.filter(|text| !text.is_empty());
                Ok(Self::ApprovalResponse {
                    reason: reason.map_or(AnswerReason::None, |_| AnswerReason::Ignored),
                    request: required(path, item, "approval_request_id")?,
                    approve: approve.boolean()?.ok_or_else(|| approve.wrong("true or false"))?,
                })
            }
            "item_reference" => Ok(Self::Reference(required(path, item, "id")?)),
            "compaction" | "compaction_summary" => {
                Ok(Self::Compaction(required(path, item, "encrypted_content")?))
            }
            "reasoning" if item.get("encrypted_content").is_some_and(|text| !text.is_null()) => {
                Ok(Self::Sealed(required(path, item, "encrypted_content")?))
            }
            "reasoning" | "mcp_list_tools" | "mcp_approval_request" => Ok(Self::Dropped),
            // Clients and conversations send all output items back, so refuse no item without content.
            kind if is_extension(kind) && !has_model_content(item) => Ok(Self::Dropped),
            _ => hosted_items::parse(path, kind, item)?.ok_or_else(|| {
                let message = format!("this server does not accept items of type `{kind}`");
                invalid(format!("{path}.type"), message)
            }),
        }
    }

    /// Returns the warning about an item that the server skipped.
    pub(super) fn warning(&self) -> Option<&str> {
        match self {
            Self::Skipped(warning) => Some(warning),
            Self::ApprovalResponse { reason: AnswerReason::Ignored, .. } => {
                Some("the server ignored `reason` of an `mcp_approval_response`; the model does not see it")
            }
            Self::Message { .. }
            | Self::Call(_)
            | Self::Output { .. }
            | Self::Finished { .. }
            | Self::ApprovalResponse { reason: AnswerReason::None, .. }
            | Self::Reference(_)
            | Self::Compaction(_)
            | Self::Sealed(_)
            | Self::Dropped => None,
        }
    }

    /// Marks the output of a call as data of the tool, which is not an instruction.
    pub(super) fn delimited(self) -> Self {
        match self {
            Self::Finished { call, output, is_error } => {
                let output = output.delimited(&call.name);
                Self::Finished { call, output, is_error }
            }
            other => other,
        }
    }
}

/// Returns the id of the item that an `item_reference` names; `None` for any other item.
pub(crate) fn reference_id(item: &Value) -> Option<&str> {
    // A reference may have no `type`.
    let is_bare = item["type"].is_null() && item.get("role").is_none();
    let is_reference = item["type"] == "item_reference" || is_bare && item.as_object()?.len() <= 2;
    item["id"].as_str().filter(|_| is_reference)
}

/// Returns the error for the reference at `path`.
pub(super) fn unknown_reference(path: &str, id: &str) -> ApiError {
    invalid(format!("{path}.id"), format!("there is no stored item `{id}`")).with_code("item_not_found")
}

/// Returns true for the type of an extension item: a name of its server, a colon and a name.
fn is_extension(kind: &str) -> bool {
    kind.split_once(':').is_some_and(|(server, name)| !server.is_empty() && !name.is_empty())
}

/// The fields in which items have content for the model. If haft dropped such an item of another server, the model would
/// answer without it, and the client would not notice.
const CONTENT_FIELDS: [&str; 6] = ["content", "output", "arguments", "result", "results", "text"];

fn has_model_content(item: &Map<String, Value>) -> bool {
    CONTENT_FIELDS.iter().any(|name| item.get(*name).is_some_and(|value| !value.is_null()))
}

fn finished(path: &str, item: &Map<String, Value>, name: String) -> Result<InputItem, ApiError> {
    let call = call(path, item, "id", name)?;
    let error = item.get("error").filter(|error| !error.is_null());
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let output =
        error.map(mcp_error::text).or_else(|| item.get("output").filter(|value| !value.is_null()).map(text));
    let output = FunctionOutput::of_text(output.unwrap_or_default());
    Ok(InputItem::Finished { call, output, is_error: error.is_some() })
}

/// Reads the name of a called tool. A model provider refuses a name with characters such as `.`, which another server
/// may have allowed.
fn tool_name(path: &str, item: &Map<String, Value>) -> Result<String, ApiError> {
    let name = required(path, item, "name")?;
    if name.is_empty() {
        return Err(invalid(format!("{path}.name"), format!("`{path}.name` must not be empty")));
    }
    Ok(ToolName::sanitize(&name).to_string())
}

fn call(path: &str, item: &Map<String, Value>, id: &str, name: String) -> Result<ToolCall, ApiError> {
    let id = call_id(path, item, id)?;
    let arguments = required(path, item, "arguments")?;
    Ok(ToolCall { id: CallId(id), name, arguments: RawArguments::from_text(arguments) })
}

pub(super) fn call_id(path: &str, item: &Map<String, Value>, name: &str) -> Result<String, ApiError> {
    let id = required(path, item, name)?;
    let param = format!("{path}.{name}");
    // Ids from other servers may be longer than the specification allows.
    if id.is_empty() || id.chars().count() > CALL_ID_CHARS_MAX * 4 {
        return Err(invalid(
            param.clone(),
            format!("`{param}` must have 1 to {} characters", CALL_ID_CHARS_MAX * 4),
        ));
    }
    Ok(id)
}

fn message(path: &str, item: &Map<String, Value>) -> Result<InputItem, ApiError> {
    let role = RequestField::new(format!("{path}.role"), item.get("role").cloned());
    let word = role.word(&["user", "assistant", "system", "developer"])?;
    let role = match word.ok_or_else(|| role.wrong("one of user, assistant, system, developer"))? {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => Role::System,
    };
    let parts = match item.get("content") {
        Some(Value::String(text)) => vec![MessagePart::text(text.clone())],
        Some(Value::Array(parts)) => {
            let read = |(at, part): (usize, &Value)| content(&format!("{path}.content[{at}]"), part, role);
            parts.iter().enumerate().map(read).collect::<Result<_, _>>()?
        }
        _ => {
            let param = format!("{path}.content");
            return Err(invalid(param.clone(), format!("`{param}` must be a string or an array")));
        }
    };
    Ok(InputItem::Message { role, parts })
}

fn content(path: &str, value: &Value, role: Role) -> Result<MessagePart, ApiError> {
    let Value::Object(part) = value else {
        return Err(invalid(path, format!("`{path}` must be an object")));
    };
    let kind = required(path, part, "type")?;
    let refused = || {
        let message = format!("a message with this role cannot have a part of type `{kind}`");
        Err(invalid(format!("{path}.type"), message))
    };
    match (kind.as_str(), role) {
        ("input_text" | "output_text" | "text" | "summary_text", _) => {
            Ok(MessagePart::text(required(path, part, "text")?))
        }
        ("refusal", Role::Assistant) => {
            Ok(MessagePart::new(PartBody::Refusal(required(path, part, "refusal")?)))
        }
        ("input_image", Role::User) => Ok(MessagePart::new(PartBody::Image(image(path, part)?))),
        ("input_file", Role::User) => file(path, part),
        _ => refused(),
    }
}

fn image(path: &str, part: &Map<String, Value>) -> Result<Media, ApiError> {
    let url = match part.get("image_url") {
        // The Chat Completions API puts the URL into a nested object.
        Some(Value::Object(nested)) => required(&format!("{path}.image_url"), nested, "url")?,
        _ => required(path, part, "image_url")?,
    };
    media(&format!("{path}.image_url"), &url, "image/*")
}

fn file(path: &str, part: &Map<String, Value>) -> Result<MessagePart, ApiError> {
    if part.get("file_id").is_some_and(|id| !id.is_null()) {
        let message = "this server stores no files; send the content as `file_data`, or a `file_url`";
        return Err(invalid(format!("{path}.file_id"), message));
    }
    let name = RequestField::new(format!("{path}.filename"), part.get("filename").cloned()).text()?;
    let media = match part.get("file_data") {
        Some(Value::String(data)) if data.starts_with("data:") => {
            media(&format!("{path}.file_data"), data, "")?
        }
        Some(Value::String(data)) => {
            Media { media_type: "application/pdf".into(), source: bytes(&format!("{path}.file_data"), data)? }
        }
        _ => media(&format!("{path}.file_url"), &required(path, part, "file_url")?, "application/pdf")?,
    };
    Ok(MessagePart::new(PartBody::File { name, media }))
}

/// Decodes a `data:` URL. Keeps any other URL, which the model provider fetches.
fn media(param: &str, url: &str, unknown_type: &str) -> Result<Media, ApiError> {
    if let Some(data) = url.strip_prefix("data:") {
        let wrong = || invalid(param, format!("`{param}` must be `data:TYPE;base64,DATA`"));
        let (head, data) = data.split_once(',').ok_or_else(wrong)?;
        let media_type = head.strip_suffix(";base64").ok_or_else(wrong)?.to_owned();
        return Ok(Media { media_type, source: bytes(param, data)? });
    }
    if url.starts_with("https://") || url.starts_with("http://") {
        return Ok(Media { media_type: unknown_type.to_owned(), source: MediaSource::Url(url.to_owned()) });
    }
    Err(invalid(param, format!("`{param}` must be an http, https or data URL")))
}

fn bytes(param: &str, data: &str) -> Result<MediaSource, ApiError> {
    bytes_of(param, data).map(MediaSource::Bytes)
}

/// Decodes base64.
pub(super) fn bytes_of(param: &str, data: &str) -> Result<Arc<[u8]>, ApiError> {
    let decoded = STANDARD.decode(data).map_err(|error| invalid(param, format!("`{param}`: {error}")))?;
    Ok(Arc::from(decoded))
}

/// The beginning of the text before the attachments of a function output.
pub(super) const ATTACHMENTS_OF: &str = "Attachments of the function call output ";

impl FunctionOutput {
    pub(super) fn of_text(text: String) -> Self {
        Self::of_content(OutputContent::Text(text))
    }

    pub(super) fn of_content(content: OutputContent) -> Self {
        Self { content: vec![content], attachments: Vec::new() }
    }

    fn delimited(mut self, source: &str) -> Self {
        for content in &mut self.content {
            if let OutputContent::Text(text) = content {
                *text = delimited_text(std::mem::take(text), source);
            }
        }
        self
    }

    pub(super) fn parse(path: &str, value: Option<&Value>) -> Result<Self, ApiError> {
        let mut output = Self::default();
        match value {
            Some(Value::String(text)) => output.content.push(OutputContent::Text(text.clone())),
            Some(Value::Array(parts)) => {
                for (at, part) in parts.iter().enumerate() {
                    output.add_part(&format!("{path}[{at}]"), part)?;
                }
            }
            _ => return Err(invalid(path, format!("`{path}` must be a string or an array"))),
        }
        Ok(output)
    }

    fn add_part(&mut self, path: &str, part: &Value) -> Result<(), ApiError> {
        let Value::Object(part) = part else {
            return Err(invalid(path, format!("`{path}` must be an object")));
        };
        match part.get("type").and_then(Value::as_str) {
            None | Some("input_text" | "output_text" | "text") => {
                self.content.push(OutputContent::Text(required(path, part, "text")?));
            }
            Some("input_image") => self.add_image(path, part)?,
            Some("input_file") => self.add_file(path, part)?,
            Some(kind) => {
                let message = format!(
                    "the output of a function cannot have a part of type `{kind}`; send text, an image or a file"
                );
                return Err(invalid(format!("{path}.type"), message));
            }
        }
        Ok(())
    }

    pub(super) fn add_image(&mut self, path: &str, part: &Map<String, Value>) -> Result<(), ApiError> {
        let Media { media_type, source } = image(path, part)?;
        match source {
            MediaSource::Bytes(bytes) if media_type.starts_with("image/") => {
                self.content.push(OutputContent::Image { media_type, bytes });
            }
            MediaSource::Bytes(_) => {
                let message = format!("an image cannot have the media type `{media_type}`");
                return Err(invalid(format!("{path}.image_url"), message));
            }
            MediaSource::Url(_) => {
                self.attach("image", MessagePart::new(PartBody::Image(Media { media_type, source })));
            }
        }
        Ok(())
    }

    /// Adds a text file to the text of the output, because every model can read it there. Attaches other files.
    fn add_file(&mut self, path: &str, part: &Map<String, Value>) -> Result<(), ApiError> {
        let file = file(path, part)?;
        if let PartBody::File { name, media: Media { media_type, source: MediaSource::Bytes(bytes) } } =
            &file.body
            && media_type.starts_with("text/")
        {
            let param = format!("{path}.file_data");
            let wrong = |_| invalid(param.clone(), format!("`{param}` is not text in UTF-8"));
            let text = std::str::from_utf8(bytes).map_err(wrong)?;
            let name = name.as_deref().map_or_else(String::new, |name| format!("File {name}:\n"));
            self.content.push(OutputContent::Text(format!("{name}{text}")));
            return Ok(());
        }
        self.attach("file", file);
        Ok(())
    }

    fn attach(&mut self, kind: &str, part: MessagePart) {
        self.attachments.push(part);
        let number = self.attachments.len();
        let text = format!("[Attachment {number}, {kind}: in the next user message]");
        self.content.push(OutputContent::Text(text));
    }
}

/// Builds a conversation from complete messages and from calls that have no replies yet.
#[derive(Debug, Default)]
pub(crate) struct ConversationBuilder {
    messages: Vec<Message>,
    /// Parts of the assistant's message that is not complete yet.
    assistant: Vec<MessagePart>,
    replies: Vec<ToolReply>,
    /// The attachments of the replies.
    attachments: Vec<MessagePart>,
}

impl ConversationBuilder {
    /// Continues the conversation of a stored response. The replies to the calls in `open` are placeholders, which the
    /// client's outputs replace.
    pub(crate) fn after(mut messages: Vec<Message>, open: &[String]) -> Self {
        let mut builder = Self::default();
        if !open.is_empty() && messages.last().is_some_and(|last| last.role == Role::Tool) {
            let replies = messages.pop().map(|last| last.parts).unwrap_or_default();
            let known = replies.into_iter().filter_map(|part| match part.body {
                PartBody::Reply(reply) if !open.contains(&reply.call.0) => Some(reply),
                _ => None,
            });
            builder.replies = known.collect();
            builder.assistant = messages.pop().map(|calls| calls.parts).unwrap_or_default();
        }
        builder.messages = messages;
        builder
    }

    /// Appends the messages of a whole turn, which may end with calls that the client runs.
    pub(crate) fn push_turn(
        mut self,
        path: &str,
        messages: Vec<Message>,
        open: &[String],
    ) -> Result<Self, ApiError> {
        self.close(path)?;
        self.messages.extend(messages);
        Ok(Self::after(self.messages, open))
    }

    /// Appends the item at `path`.
    pub(crate) fn push(&mut self, path: &str, item: InputItem) -> Result<(), ApiError> {
        match item {
            InputItem::Message { role: Role::Assistant, parts } => {
                self.close_replies(path)?;
                self.assistant.extend(parts);
            }
            InputItem::Message { role, parts } => {
                self.close(path)?;
                self.messages.push(Message { role, parts });
            }
            InputItem::Call(call) => {
                self.close_replies(path)?;
                self.add_call(path, call)?;
            }
            InputItem::Output { call, output: FunctionOutput { content, attachments } } => {
                self.answer(path, &call, content, false)?;
                self.attach(&call, attachments);
            }
            InputItem::Finished { call, output, is_error } => {
                let id = call.id.0.clone();
                self.close_replies(path)?;
                self.add_call(path, call)?;
                self.answer(path, &id, output.content, is_error)?;
                self.attach(&id, output.attachments);
            }
            // Skip an approval answer in an old item: the server used the answer when it was new.
            InputItem::Dropped | InputItem::Skipped(_) | InputItem::ApprovalResponse { .. } => {}
            InputItem::Compaction(_) | InputItem::Sealed(_) => {
                return Err(invalid(
                    path,
                    "the server does not accept an encrypted item at this position of `input`",
                ));
            }
            InputItem::Reference(id) => return Err(unknown_reference(path, &id)),
        }
        Ok(())
    }

    /// Returns the messages. Every call must have a reply.
    pub(crate) fn finish(mut self) -> Result<Vec<Message>, ApiError> {
        self.close("input")?;
        Ok(self.messages)
    }

    fn add_call(&mut self, path: &str, call: ToolCall) -> Result<(), ApiError> {
        if self.open_calls().any(|open| open.id == call.id) {
            let message = format!("`input` has two function calls with the id `{}`", call.id.0);
            return Err(invalid(format!("{path}.call_id"), message));
        }
        self.assistant.push(MessagePart::new(PartBody::Call(call)));
        Ok(())
    }

    fn answer(
        &mut self,
        path: &str,
        id: &str,
        content: Vec<OutputContent>,
        is_error: bool,
    ) -> Result<(), ApiError> {
        let param = format!("{path}.call_id");
        let Some(call) = self.open_calls().find(|call| call.id.0 == id).cloned() else {
            return Err(invalid(
                param,
                format!("no tool call found for the function call output with call_id {id}"),
            ));
        };
        if self.replies.iter().any(|reply| reply.call.0 == id) {
            return Err(invalid(param, format!("`input` has two outputs for the function call {id}")));
        }
        self.replies.push(ToolReply { call: call.id, name: call.name, content, is_error });
        Ok(())
    }

    fn attach(&mut self, call: &str, attachments: Vec<MessagePart>) {
        if !attachments.is_empty() {
            self.attachments.push(MessagePart::text(format!("{ATTACHMENTS_OF}{call}:")));
            self.attachments.extend(attachments);
        }
    }

    fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.assistant.iter().filter_map(MessagePart::as_call)
    }

    /// Ends a turn whose calls all have replies, so that the next parts of the assistant begin a new message.
    fn close_replies(&mut self, path: &str) -> Result<(), ApiError> {
        if self.replies.is_empty() { Ok(()) } else { self.close(path) }
    }

    fn close(&mut self, path: &str) -> Result<(), ApiError> {
        let missing = self.open_calls().find(|call| self.replies.iter().all(|reply| reply.call != call.id));
        if let Some(call) = missing {
            let message = format!("no tool output found for function call {}", call.id.0);
            return Err(invalid(path, message));
        }
        if !self.assistant.is_empty() {
            self.messages.push(Message::assistant(std::mem::take(&mut self.assistant)));
        }
        if !self.replies.is_empty() {
            self.messages.push(Message::tool(std::mem::take(&mut self.replies)));
        }
        if !self.attachments.is_empty() {
            let parts = std::mem::take(&mut self.attachments);
            self.messages.push(Message { role: Role::User, parts });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use haft_core::conversation::Conversation;
    use serde_json::json;

    use super::*;

    fn build(history: ConversationBuilder, items: &[Value]) -> Result<Vec<Message>, ApiError> {
        let mut builder = history;
        for (at, item) in items.iter().enumerate() {
            let path = format!("input[{at}]");
            builder.push(&path, InputItem::parse(&path, item)?)?;
        }
        builder.finish()
    }

    fn roles(messages: &[Message]) -> Vec<Role> {
        let mut conversation = Conversation::default();
        for message in messages {
            conversation.push(message.clone()).unwrap();
        }
        messages.iter().map(|message| message.role).collect()
    }

    fn call(id: &str) -> Value {
        json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"})
    }

    fn result(id: &str) -> Value {
        json!({"type": "function_call_output", "call_id": id, "output": "1"})
    }

    #[test]
    fn items_become_messages_that_every_provider_accepts() {
        let items = [
            json!({"role": "developer", "content": "Be brief."}),
            json!({"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}),
            json!({"type": "reasoning", "id": "rs_1", "summary": []}),
            json!({"type": "message", "role": "assistant", "phase": "commentary",
                   "content": [{"type": "output_text", "text": "I look.", "annotations": []}]}),
            call("a"),
            call("b"),
            result("b"),
            result("a"),
            json!({"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "t", "arguments": "{}", "output": "x"}),
            json!({"role": "user", "content": "And now?"}),
        ];
        let messages = build(ConversationBuilder::default(), &items).unwrap();
        let (assistant, tool, user) = (Role::Assistant, Role::Tool, Role::User);
        assert_eq!(roles(&messages), [Role::System, user, assistant, tool, assistant, tool, user]);
    }

    #[test]
    fn extension_items_without_content_are_dropped_and_others_are_refused() {
        let parse = |item: Value| InputItem::parse("input[0]", &item).map_err(|error| error.param);
        let warning = json!({"type": "haft:warning", "id": "hw_1", "status": "completed", "message": "m"});
        assert_eq!(parse(warning), Ok(InputItem::Dropped));
        assert_eq!(parse(json!({"type": "acme:trace", "id": "t_1", "output": null})), Ok(InputItem::Dropped));
        let refused = Err(Some("input[0].type".to_owned()));
        assert_eq!(parse(json!({"type": "acme:search", "id": "s_1", "results": ["a"]})), refused);
        for kind in ["teapot", ":warning", "haft:", ":"] {
            assert_eq!(parse(json!({"type": kind, "id": "x_1"})), refused, "{kind}");
        }
    }

    #[test]
    fn call_and_output_are_refused_if_one_of_them_is_missing() {
        let check = |items: &[Value], param: &str| {
            let error = build(ConversationBuilder::default(), items).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{items:?}");
        };
        check(&[result("a")], "input[0].call_id");
        check(&[call("a"), result("a"), result("a")], "input[2].call_id");
        check(&[call("a"), call("a")], "input[1].call_id");
        check(&[call("a")], "input");
        check(&[call("a"), json!({"role": "user", "content": "x"})], "input[1]");
        check(&[json!({"type": "function_call_output", "output": "x"})], "input[0].call_id");
    }

    #[test]
    fn client_outputs_replace_the_placeholders_of_a_stored_turn() {
        let calls = [("s", "server"), ("c", "client")].map(|(id, name)| ToolCall::new(id, name, &json!({})));
        let parts = calls.iter().map(|call| MessagePart::new(PartBody::Call(call.clone()))).collect();
        let replies = vec![ToolReply::text(&calls[0], "done"), ToolReply::error(&calls[1], "placeholder")];
        let history = vec![Message::user("go"), Message::assistant(parts), Message::tool(replies)];
        let after = || ConversationBuilder::after(history.clone(), &["c".to_owned()]);
        let messages = build(after(), &[result("c")]).unwrap();
        let text = format!("{:?}", messages[2]);
        assert!(
            text.contains("done") && text.contains("Text(\"1\")") && !text.contains("placeholder"),
            "{text}"
        );
        assert_eq!(roles(&messages), [Role::User, Role::Assistant, Role::Tool]);
        assert!(build(after(), &[json!({"role": "user", "content": "x"})]).is_err());
        assert!(build(after(), &[result("s")]).is_err(), "the server ran this call");
    }

    fn output_of(part: &Value) -> Result<Vec<Message>, ApiError> {
        let output = json!({"type": "function_call_output", "call_id": "a", "output": [part]});
        let next = json!({"role": "user", "content": "Go on."});
        build(ConversationBuilder::default(), &[call("a"), output, next])
    }

    #[test]
    fn images_by_url_and_files_of_function_outputs_follow_in_a_user_message() {
        let attached = |part: Value| {
            let messages = output_of(&part).unwrap();
            let (assistant, tool, user) = (Role::Assistant, Role::Tool, Role::User);
            assert_eq!(roles(&messages), [assistant, tool, user, user]);
            let reply = format!("{:?}", messages[1]);
            assert!(reply.contains("Attachment 1"), "{reply}");
            let intro = messages[2].parts[0].as_text().unwrap();
            assert_eq!(intro, "Attachments of the function call output a:");
            messages[2].parts[1].body.clone()
        };
        let image = attached(json!({"type": "input_image", "image_url": "https://example.org/a.png"}));
        assert!(matches!(image, PartBody::Image(Media { source: MediaSource::Url(_), .. })), "{image:?}");
        for part in [
            json!({"type": "input_file", "filename": "a.pdf", "file_data": "eA=="}),
            json!({"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,eA=="}),
            json!({"type": "input_file", "filename": "a.pdf", "file_url": "https://example.org/a.pdf"}),
        ] {
            let file = attached(part);
            let is_pdf = matches!(&file, PartBody::File { name: Some(name), media }
                if name == "a.pdf" && media.media_type == "application/pdf");
            assert!(is_pdf, "{file:?}");
        }
    }

    #[test]
    fn text_file_of_a_function_output_becomes_text_of_the_reply() {
        let data = "data:text/csv;base64,YSxi";
        let messages =
            output_of(&json!({"type": "input_file", "filename": "a.csv", "file_data": data})).unwrap();
        assert_eq!(roles(&messages), [Role::Assistant, Role::Tool, Role::User]);
        assert!(format!("{:?}", messages[1]).contains("File a.csv:\\na,b"), "{messages:?}");
    }

    #[test]
    fn unusable_parts_of_function_outputs_are_refused_with_their_path() {
        let check = |part: Value, field: &str| {
            let error = output_of(&part).unwrap_err();
            assert_eq!(error.param, Some(format!("input[1].output[0].{field}")), "{part}");
        };
        check(json!({"type": "input_video", "video_url": "https://x/"}), "type");
        check(json!({"type": "input_file", "file_id": "file_1"}), "file_id");
        check(json!({"type": "input_file"}), "file_url");
        check(json!({"type": "input_file", "file_url": "file:///etc/passwd"}), "file_url");
        check(json!({"type": "input_file", "file_data": "%"}), "file_data");
        check(json!({"type": "input_file", "file_data": "data:text/plain;base64,/w=="}), "file_data");
        check(json!({"type": "input_image", "image_url": "file:///etc/passwd"}), "image_url");
    }

    #[test]
    fn image_must_be_a_data_url_or_an_http_url() {
        let image = |url: &str| {
            let item = json!({"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "auto"}]});
            build(ConversationBuilder::default(), &[item])
        };
        let messages = image("data:image/png;base64,iVBORw0KGgo=").unwrap();
        assert!(
            matches!(&messages[0].parts[0].body, PartBody::Image(media) if media.media_type == "image/png")
        );
        assert!(image("https://example.com/x.png").is_ok());
        for wrong in ["file:///etc/passwd", "data:image/png,abc", "data:image/png;base64,%%%", ""] {
            let error = image(wrong).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("input[0].content[0].image_url"), "{wrong}");
        }
    }
}
