//! What the scripted model says, written once and spoken in every format.

use serde::Deserialize;
use serde_json::Value;

use crate::expect::Expect;
use crate::fault::{Failure, Fault};
use crate::pace::Pace;

/// A whole script: what is said in each conversation, turn by turn.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Script {
    pub order: Order,
    /// What the lists of models name.
    pub models: Vec<String>,
    /// When set, a request that does not carry this key where its provider wants it is refused.
    pub key: Option<String>,
    pub chat_reasoning: ChatReasoning,
    /// Looked through in order before `steps`.
    pub conversations: Vec<Conversation>,
    /// For every request that belongs to none of `conversations`.
    pub steps: Vec<Step>,
}

/// How the step that answers a request is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// By the number of model turns in the request, so that runs at the same time do not take each other's steps.
    #[default]
    ByTurn,
    /// One after the other, whatever the requests contain.
    Strict,
}

/// How `/v1/chat/completions` shows reasoning, which its inventor never does and its imitators do in two ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ChatReasoning {
    Hidden,
    #[default]
    ReasoningContent,
    OpenRouter,
}

/// Steps for the conversations whose first user message contains a text.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Conversation {
    pub about: String,
    pub steps: Vec<Step>,
}

/// One answer of the model, or one way in which it does not come.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Step {
    /// The number of model turns before this one. Counted when it is not given: a step that fails, or that a fault
    /// befalls, is followed by another for the same turn.
    pub turn: Option<usize>,
    pub expect: Expect,
    pub say: Vec<Part>,
    /// Told from `say` when it is not given.
    pub stop: Option<Stop>,
    pub usage: Usage,
    pub pace: Pace,
    /// Answered instead of `say`.
    pub fail: Option<Failure>,
    /// What goes wrong on the way.
    pub fault: Option<Fault>,
}

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Part {
    Text(String),
    /// Structured output: the text of this value.
    Json(Value),
    Reasoning(Reasoning),
    /// Reasoning of which nothing can be read: only the state that must come back.
    Redacted(String),
    Call(Call),
    Refusal(String),
    /// Text with where it comes from, in formats that have a place for that.
    Cited(Cited),
}

/// A text and its source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cited {
    pub text: String,
    pub url: String,
    pub title: String,
}

/// Reasoning, and the state by which its provider knows it again: signature, encrypted content, thought signature.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reasoning {
    pub text: String,
    pub state: Option<String>,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Call {
    pub name: String,
    /// `{{word BEGINNING}}` in a text is the first word in what the model was told last that begins so.
    pub arguments: Value,
    /// The arguments to the letter, also when they are not JSON; stronger than `arguments`.
    pub arguments_text: Option<String>,
    /// Made up when it is not given, where the format has ids.
    pub id: Option<String>,
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stop {
    End,
    Calls,
    Length,
    Refusal,
    /// The provider itself kept the question from its model, or the answer back.
    Blocked,
    /// A word that no provider has said so far.
    Other(String),
}

/// What the answer cost. `input` counts all tokens of the prompt, of which `cacheRead` and `cacheWrite` are a part;
/// `output` counts all that was made, of which `reasoning` is a part. Each format subtracts as its provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Usage {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub reasoning: u64,
}

impl Default for Usage {
    fn default() -> Self {
        Self { input: 10, output: 5, cache_read: 0, cache_write: 0, reasoning: 0 }
    }
}

impl Script {
    /// A script in which every conversation goes the same way.
    pub fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self { steps: steps.into_iter().collect(), ..Self::default() }
    }

    /// Reads JSON with comments and trailing commas.
    pub fn parse(text: &str) -> Result<Self, String> {
        let value = jsonc_parser::parse_to_serde_value::<Value>(text, &jsonc_parser::ParseOptions::default())
            .map_err(|error| format!("the script is not JSON: {error}"))?;
        let script: Self =
            serde_json::from_value(value).map_err(|error| format!("the script is not one: {error}"))?;
        if script.steps.is_empty() && script.conversations.is_empty() {
            return Err("the script says nothing; give it `steps` or `conversations`".to_owned());
        }
        Ok(script)
    }

    pub fn in_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    pub fn with_key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    /// Another list of steps, for conversations that begin with this text somewhere in the user's words.
    pub fn about(mut self, text: &str, steps: impl IntoIterator<Item = Step>) -> Self {
        self.conversations.push(Conversation { about: text.to_owned(), steps: steps.into_iter().collect() });
        self
    }
}

impl Step {
    pub fn say(parts: impl IntoIterator<Item = Part>) -> Self {
        Self { say: parts.into_iter().collect(), ..Self::default() }
    }

    pub fn text(text: &str) -> Self {
        Self::say([Part::Text(text.to_owned())])
    }

    pub fn call(name: &str, arguments: Value) -> Self {
        Self::say([Part::call(name, arguments)])
    }

    pub fn fail(failure: Failure) -> Self {
        Self { fail: Some(failure), ..Self::default() }
    }

    pub fn expecting(self, expect: Expect) -> Self {
        Self { expect, ..self }
    }

    pub fn stopping(self, stop: Stop) -> Self {
        Self { stop: Some(stop), ..self }
    }

    pub fn at_turn(self, turn: usize) -> Self {
        Self { turn: Some(turn), ..self }
    }

    pub fn using(self, usage: Usage) -> Self {
        Self { usage, ..self }
    }

    pub fn at_pace(self, pace: Pace) -> Self {
        Self { pace, ..self }
    }

    pub fn with_fault(self, fault: Fault) -> Self {
        Self { fault: Some(fault), ..self }
    }

    /// Whether the client has this turn when the step is over. If not, the next step is for the same turn.
    pub(crate) fn completes_the_turn(&self) -> bool {
        self.fail.is_none() && self.fault.is_none()
    }

    pub(crate) fn stop(&self) -> Stop {
        self.stop.clone().unwrap_or_else(|| {
            let calls = self.say.iter().any(|part| matches!(part, Part::Call(_)));
            let refuses = self.say.iter().any(|part| matches!(part, Part::Refusal(_)));
            if refuses {
                Stop::Refusal
            } else if calls {
                Stop::Calls
            } else {
                Stop::End
            }
        })
    }
}

impl Part {
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::Call(Call { name: name.to_owned(), arguments, ..Call::default() })
    }

    pub fn reasoning(text: &str, state: &str) -> Self {
        Self::Reasoning(Reasoning { text: text.to_owned(), state: Some(state.to_owned()) })
    }
}

impl Call {
    pub(crate) fn text(&self) -> String {
        match (&self.arguments_text, &self.arguments) {
            (Some(text), _) => text.clone(),
            (None, Value::Null) => "{}".to_owned(),
            (None, arguments) => arguments.to_string(),
        }
    }

    /// For formats that carry arguments as a value; what is not JSON can only be a string there.
    pub(crate) fn value(&self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }
}
