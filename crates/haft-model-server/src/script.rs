//! The script of the model. A script is written once, and every format encodes it.

use serde::Deserialize;
use serde_json::Value;

use crate::expect::RequestExpectation;
use crate::fault::{ErrorResponse, ResponseFault};
use crate::pace::ResponsePace;

/// A whole script: the replies for each conversation, turn by turn.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Script {
    pub order: StepOrder,
    /// The names of the models in the model lists.
    pub models: Vec<String>,
    /// The required API key. The server rejects a request without this key in the provider's header.
    pub key: Option<String>,
    pub chat_reasoning: ChatReasoning,
    /// The maximum number of tokens in a request, at four bytes per token. The server rejects a larger request. With
    /// this limit, the server computes the usage of each reply from its request instead of taking it from the script.
    pub context_window: Option<u64>,
    /// The steps for specific conversations. They are checked in order, before `steps`.
    pub conversations: Vec<ScriptConversation>,
    /// The steps for every request that matches none of the `conversations`.
    pub steps: Vec<ScriptStep>,
}

/// Selects how the step for a request is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StepOrder {
    /// The step is chosen by the number of model turns in the request, so that concurrent runs do not use each other's
    /// steps.
    #[default]
    ByTurn,
    /// The steps are used one after the other, regardless of the request.
    Strict,
}

/// Selects how `/v1/chat/completions` shows reasoning. OpenAI never shows it; compatible servers use one of two forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChatReasoning {
    Hidden,
    #[default]
    ReasoningContent,
    OpenRouter,
}

/// The steps for conversations whose first user message contains this text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScriptConversation {
    pub about: String,
    pub steps: Vec<ScriptStep>,
}

/// One model reply, or one failure.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptStep {
    /// The number of model turns before this step. The server computes the default from the steps before this one;
    /// after a step with a failure or a fault, the next step is for the same turn.
    pub turn: Option<usize>,
    pub expect: RequestExpectation,
    pub say: Vec<ScriptPart>,
    /// The stop reason. By default it is derived from `say`.
    pub stop: Option<ScriptStop>,
    pub usage: ScriptUsage,
    pub pace: ResponsePace,
    /// A failure that the server sends instead of `say`.
    pub fail: Option<ErrorResponse>,
    /// A fault in the middle of the reply.
    pub fault: Option<ResponseFault>,
}

/// A part of a model reply.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScriptPart {
    Text(String),
    /// Structured output: this value as JSON text.
    Json(Value),
    Reasoning(ScriptReasoning),
    /// Reasoning without readable text. It has only the state that the client must send back.
    Redacted(String),
    Call(ScriptCall),
    Refusal(String),
    /// Text with its source, for formats with citations.
    Cited(CitedText),
}

/// A text and the source that it cites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CitedText {
    pub text: String,
    pub url: String,
    pub title: String,
}

/// Reasoning, with the state by which its provider recognizes it: a signature, encrypted content or a thought
/// signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptReasoning {
    /// The reasoning. The Responses API sends it as a summary, with one summary part for each paragraph.
    pub text: String,
    pub state: Option<String>,
}

/// A tool call in a model reply.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptCall {
    pub name: String,
    /// The arguments. In a string, `{{word PREFIX}}` is replaced by the first word that starts with the prefix in the
    /// last tool result or user message.
    pub arguments: Value,
    /// The exact arguments text, which may be invalid JSON. It has priority over `arguments`.
    pub arguments_text: Option<String>,
    /// The call id. If the format has ids, the default is a generated id.
    pub id: Option<String>,
}

/// The reason why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScriptStop {
    End,
    Calls,
    Length,
    Refusal,
    /// The provider blocked the prompt or the reply.
    Blocked,
    /// A stop reason that no provider uses.
    Other(String),
}

/// The token usage of a reply. `input` is the whole prompt, including `cacheRead` and `cacheWrite`; `output` is all
/// generated tokens, including `reasoning`. Each format computes its own fields from these numbers in the same way as
/// its provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScriptUsage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub reasoning: u64,
}

impl Default for ScriptUsage {
    fn default() -> Self {
        Self { input: 10, output: 5, cache_read: 0, cache_write: 0, reasoning: 0 }
    }
}

impl Script {
    /// Creates a script with the same steps for all conversations.
    pub fn of(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// Parses JSON with comments and trailing commas.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = jsonc_parser::parse_to_serde_value::<Value>(text, &jsonc_parser::ParseOptions::default())
            .map_err(|error| format!("the script is not JSON: {error}"))?;
        let script: Self =
            serde_json::from_value(value).map_err(|error| format!("the script is invalid: {error}"))?;
        if script.steps.is_empty() && script.conversations.is_empty() {
            return Err("the script is empty; add `steps` or `conversations`".to_owned());
        }
        Ok(script)
    }

    pub fn in_order(self, order: StepOrder) -> Self {
        Self { order, ..self }
    }

    pub fn with_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// Adds steps for conversations whose first user message contains this text.
    pub fn about(mut self, text: &str, steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        self.conversations
            .push(ScriptConversation { about: text.to_owned(), steps: steps.into_iter().collect() });
        self
    }
}

impl ScriptStep {
    pub fn say(parts: impl IntoIterator<Item = ScriptPart>) -> Self {
        Self { say: parts.into_iter().collect(), ..Self::default() }
    }

    pub fn text(text: &str) -> Self {
        Self::say([ScriptPart::Text(text.to_owned())])
    }

    pub fn call(name: &str, arguments: Value) -> Self {
        Self::say([ScriptPart::call(name, arguments)])
    }

    pub fn fail(failure: ErrorResponse) -> Self {
        Self { fail: Some(failure), ..Self::default() }
    }

    pub fn expecting(self, expect: RequestExpectation) -> Self {
        Self { expect, ..self }
    }

    pub fn stopping(self, stop: ScriptStop) -> Self {
        Self { stop: Some(stop), ..self }
    }

    pub fn at_turn(self, turn: usize) -> Self {
        Self { turn: Some(turn), ..self }
    }

    pub fn using(self, usage: ScriptUsage) -> Self {
        Self { usage, ..self }
    }

    pub fn at_pace(self, pace: ResponsePace) -> Self {
        Self { pace, ..self }
    }

    pub fn with_fault(self, fault: ResponseFault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Returns true if the client has the complete turn after this step. Otherwise, the next step is for the same turn.
    pub(crate) fn completes_the_turn(&self) -> bool {
        self.fail.is_none() && self.fault.is_none()
    }

    pub(crate) fn stop(&self) -> ScriptStop {
        self.stop.clone().unwrap_or_else(|| {
            let calls = self.say.iter().any(|part| matches!(part, ScriptPart::Call(_)));
            let refuses = self.say.iter().any(|part| matches!(part, ScriptPart::Refusal(_)));
            if refuses {
                ScriptStop::Refusal
            } else if calls {
                ScriptStop::Calls
            } else {
                ScriptStop::End
            }
        })
    }
}

impl ScriptPart {
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::Call(ScriptCall { name: name.to_owned(), arguments, ..ScriptCall::default() })
    }

    pub fn reasoning(text: &str, state: &str) -> Self {
        Self::Reasoning(ScriptReasoning { text: text.to_owned(), state: Some(state.to_owned()) })
    }
}

impl ScriptReasoning {
    /// Returns the paragraphs, which an empty line separates.
    pub(crate) fn paragraphs(&self) -> impl Iterator<Item = &str> {
        self.text.split("\n\n")
    }
}

impl ScriptCall {
    pub(crate) fn text(&self) -> String {
        match (&self.arguments_text, &self.arguments) {
            (Some(text), _) => text.clone(),
            (None, Value::Null) => "{}".to_owned(),
            (None, arguments) => arguments.to_string(),
        }
    }

    /// Returns the arguments for formats in which arguments are a JSON value. Invalid JSON becomes a string.
    pub(crate) fn value(&self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }
}
