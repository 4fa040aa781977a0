//! The content of a request, independent of its format.

use serde::Deserialize;
use serde_json::Value;

/// A request in a common form for all formats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedRequest {
    pub(crate) model: String,
    pub(crate) delivery: ResponseDelivery,
    pub(crate) talk: ConversationSummary,
    pub(crate) tools: Vec<String>,
    /// The tool choice; `None` if the format has no tool choice.
    pub(crate) tool_choice: Option<RequestToolChoice>,
    pub(crate) usage: UsageReporting,
    /// The id of the response that this request continues, for conversations that the server stores.
    pub(crate) previous: Option<String>,
}

/// The conversation so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConversationSummary {
    pub(crate) system: String,
    /// The first user message, which identifies the conversation.
    pub(crate) first_user: Option<String>,
    pub(crate) last_user: String,
    /// The number of model turns so far. Consecutive model entries count as one turn.
    pub(crate) turns: usize,
    /// The tool results since the last model turn.
    pub(crate) tool_results: Vec<String>,
    pub(crate) spoke_last: LastSpeaker,
}

/// Selects whether a reply is sent as a whole or as a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResponseDelivery {
    #[default]
    Whole,
    Streamed,
}

/// Selects whether a stream contains the usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UsageReporting {
    #[default]
    Included,
    Omitted,
}

/// The tools that the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RequestToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Tool(String),
    /// The model may call one of these tools, but none of the other offered tools.
    AutoOf(Vec<String>),
    RequiredOf(Vec<String>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LastSpeaker {
    #[default]
    Client,
    Model,
}

impl ConversationSummary {
    pub(crate) fn add_model_turn(&mut self) {
        match self.spoke_last {
            LastSpeaker::Model => {}
            LastSpeaker::Client => {
                self.turns += 1;
                self.tool_results.clear();
            }
        }
        self.spoke_last = LastSpeaker::Model;
    }

    pub(crate) fn add_user_message(&mut self, text: String) {
        self.first_user.get_or_insert_with(|| text.clone());
        self.last_user = text;
        self.spoke_last = LastSpeaker::Client;
    }

    pub(crate) fn add_tool_result(&mut self, text: String) {
        self.tool_results.push(text);
        self.spoke_last = LastSpeaker::Client;
    }

    pub(crate) fn add_system_text(&mut self, text: &str) {
        if !self.system.is_empty() {
            self.system.push('\n');
        }
        self.system.push_str(text);
    }
}

/// Returns the text of a message content, which is a string or a list of parts.
pub(crate) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).collect(),
        Value::Object(part) => part.get("text").map(text_of).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// Returns the entries of a list that may be absent.
pub(crate) fn entries<'a>(body: &'a Value, key: &str) -> &'a [Value] {
    body.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn string(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(crate) fn delivery(body: &Value) -> ResponseDelivery {
    match body.get("stream").and_then(Value::as_bool) {
        Some(true) => ResponseDelivery::Streamed,
        Some(false) | None => ResponseDelivery::Whole,
    }
}
