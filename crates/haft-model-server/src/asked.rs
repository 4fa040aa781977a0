//! What a request asks, whatever its format.

use serde::Deserialize;
use serde_json::Value;

/// A request as every format means it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) model: String,
    pub(crate) delivery: Delivery,
    pub(crate) talk: Talk,
    pub(crate) tools: Vec<String>,
    /// None where the format has no word for it.
    pub(crate) tool_choice: Option<ToolChoice>,
    pub(crate) usage: UsageWish,
    /// The answer that this request goes on from, where the server remembers it.
    pub(crate) previous: Option<String>,
}

/// The conversation so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Talk {
    pub(crate) system: String,
    /// The conversation is known by it.
    pub(crate) first_user: Option<String>,
    pub(crate) last_user: String,
    /// How often the model has spoken: a run of its entries is one turn.
    pub(crate) turns: usize,
    /// What tools answered since then.
    pub(crate) tool_results: Vec<String>,
    pub(crate) spoke_last: Speaker,
}

/// In one piece, or as it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Delivery {
    #[default]
    Whole,
    Streamed,
}

/// Whether a stream should tell what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UsageWish {
    #[default]
    Told,
    Silent,
}

/// Which tools the model may or must call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToolChoice {
    #[default]
    Auto,
    None,
    Required,
    Tool(String),
    /// One of these, and none of the others that are offered.
    AutoOf(Vec<String>),
    RequiredOf(Vec<String>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Speaker {
    #[default]
    Client,
    Model,
}

impl Talk {
    pub(crate) fn model_spoke(&mut self) {
        match self.spoke_last {
            Speaker::Model => {}
            Speaker::Client => {
                self.turns += 1;
                self.tool_results.clear();
            }
        }
        self.spoke_last = Speaker::Model;
    }

    pub(crate) fn user_spoke(&mut self, text: String) {
        self.first_user.get_or_insert_with(|| text.clone());
        self.last_user = text;
        self.spoke_last = Speaker::Client;
    }

    pub(crate) fn tool_answered(&mut self, text: String) {
        self.tool_results.push(text);
        self.spoke_last = Speaker::Client;
    }

    pub(crate) fn system_said(&mut self, text: &str) {
        if !self.system.is_empty() {
            self.system.push('\n');
        }
        self.system.push_str(text);
    }
}

/// The text of a content: a string, or parts of which some have text.
pub(crate) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text_of).collect(),
        Value::Object(part) => part.get("text").map(text_of).unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

/// The entries of a list that may be absent.
pub(crate) fn entries<'a>(body: &'a Value, key: &str) -> &'a [Value] {
    body.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn string(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(crate) fn delivery(body: &Value) -> Delivery {
    match body.get("stream").and_then(Value::as_bool) {
        Some(true) => Delivery::Streamed,
        Some(false) | None => Delivery::Whole,
    }
}
