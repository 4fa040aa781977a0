//! The stored form of a request to a model.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{StoredError, StoredMessage};
use crate::conversation::Conversation;
use crate::model_request::{
    ModelRequest, ModelTool, MustCall, OutputShape, ParallelCalls, PromptCaching, ReasoningEffort,
    ReasoningSummary, SamplingParameters, ToolChoice, Verbosity,
};

/// A model request, or only the parts that differ from an earlier request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredRequest {
    model: String,
    /// The system text; `None` if it is the same as in the earlier request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<StoredTool>>,
    /// The deferred tools; `None` if there are none, or if they are the same as in the earlier request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deferred: Option<Vec<StoredTool>>,
    tool_choice: StoredToolChoice,
    #[serde(default, skip_serializing_if = "is_false")]
    one_call_at_a_time: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output: Option<StoredShape>,
    #[serde(default, skip_serializing_if = "StoredSampling::is_empty")]
    sampling: StoredSampling,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reasoning: Option<StoredEffort>,
    /// The name of a [`ReasoningSummary`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reasoning_summary: Option<String>,
    /// The name of a [`Verbosity`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verbosity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_tokens_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context_tokens: Option<u32>,
    messages: Vec<StoredMessage>,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredTool {
    name: String,
    description: String,
    input_schema: Value,
    #[serde(default, skip_serializing_if = "is_false")]
    strict: bool,
}

/// The tools that the model may or must call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredToolChoice {
    /// See [`ToolChoice::Auto`].
    Auto,
    /// See [`ToolChoice::None`].
    None,
    /// See [`ToolChoice::Required`].
    Required,
    /// See [`ToolChoice::Named`].
    Named(String),
    /// See [`ToolChoice::Allowed`].
    Allowed {
        /// The exposed names of the tools.
        names: Vec<String>,
        /// True if a reply without a call is not acceptable.
        must_call: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredShape {
    Json,
    Schema { name: String, schema: Value },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct StoredSampling {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredEffort {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Highest,
}

impl StoredRequest {
    /// Converts a whole request for storage.
    pub fn of(request: &ModelRequest) -> Self {
        Self::after(request, None, 0)
    }

    /// Returns the parts of a request that differ from the request `before`. Both share the first `messages` messages.
    pub fn after(request: &ModelRequest, before: Option<&ModelRequest>, messages: usize) -> Self {
        let same_system = before.is_some_and(|before| before.system == request.system);
        let same_tools = before.is_some_and(|before| Arc::ptr_eq(&before.tools, &request.tools));
        let same_deferred = request.deferred.is_empty()
            || before.is_some_and(|before| Arc::ptr_eq(&before.deferred, &request.deferred));
        let new = request.conversation.messages().get(messages..).unwrap_or_default();
        Self {
            model: request.model.clone(),
            system: (!same_system).then(|| request.system.as_ref().to_owned()),
            tools: (!same_tools).then(|| request.tools.iter().map(StoredTool::of).collect()),
            deferred: (!same_deferred).then(|| request.deferred.iter().map(StoredTool::of).collect()),
            tool_choice: StoredToolChoice::of(&request.tool_choice),
            one_call_at_a_time: request.parallel_calls == ParallelCalls::OneAtATime,
            output: StoredShape::of(&request.output),
            sampling: StoredSampling::of(&request.sampling),
            reasoning: request.reasoning.map(StoredEffort::of),
            reasoning_summary: request.reasoning_summary.map(|summary| summary.name().to_owned()),
            verbosity: request.verbosity.map(|verbosity| verbosity.name().to_owned()),
            output_tokens_max: request.output_tokens_max,
            context_tokens: request.context_tokens,
            messages: new.iter().map(|message| StoredMessage::of(message)).collect(),
        }
    }

    /// Restores the whole request. `before` is the earlier request, with the number of messages that both share.
    pub fn into_request(self, before: Option<(&ModelRequest, usize)>) -> Result<ModelRequest, StoredError> {
        let alone = || StoredError::Broken {
            problem: "a request continues an earlier request that is missing".into(),
        };
        let mut conversation = begun(before)?;
        for message in self.messages {
            let message = message.into_message()?;
            conversation.push(message).map_err(|error| StoredError::Broken { problem: error.to_string() })?;
        }
        let system = match (self.system, before) {
            (Some(system), _) => system.into(),
            (None, Some((before, _))) => Arc::clone(&before.system),
            (None, None) => return Err(alone()),
        };
        let tools = match (self.tools, before) {
            (Some(tools), _) => tools.into_iter().map(StoredTool::into_tool).collect(),
            (None, Some((before, _))) => Arc::clone(&before.tools),
            (None, None) => return Err(alone()),
        };
        let deferred = match (self.deferred, before) {
            (Some(tools), _) => tools.into_iter().map(StoredTool::into_tool).collect(),
            (None, Some((before, _))) => Arc::clone(&before.deferred),
            (None, None) => Arc::new([]),
        };
        Ok(ModelRequest {
            model: self.model,
            system,
            tools,
            deferred,
            tool_choice: self.tool_choice.into_choice(),
            parallel_calls: if self.one_call_at_a_time {
                ParallelCalls::OneAtATime
            } else {
                ParallelCalls::Allowed
            },
            // Prompt caching does not change the content of a request, so the stored form omits it.
            caching: PromptCaching::Full,
            conversation: Arc::new(conversation),
            output: self.output.map_or(OutputShape::Text, StoredShape::into_shape),
            sampling: self.sampling.into_sampling(),
            reasoning: self.reasoning.map(StoredEffort::into_effort),
            reasoning_summary: self.reasoning_summary.as_deref().and_then(ReasoningSummary::from_name),
            verbosity: self.verbosity.as_deref().and_then(Verbosity::from_name),
            output_tokens_max: self.output_tokens_max,
            context_tokens: self.context_tokens,
        })
    }
}

fn begun(before: Option<(&ModelRequest, usize)>) -> Result<Conversation, StoredError> {
    let Some((before, count)) = before else { return Ok(Conversation::default()) };
    let beginning = before.conversation.beginning(count);
    beginning.ok_or_else(|| StoredError::Broken {
        problem: format!(
            "a request reuses {count} messages of an earlier request, but that request has fewer"
        ),
    })
}

impl StoredTool {
    /// Converts a tool for storage.
    pub fn of(tool: &ModelTool) -> Self {
        let ModelTool { name, description, input_schema, strict } = tool;
        Self {
            name: name.clone(),
            description: description.clone(),
            input_schema: input_schema.as_ref().clone(),
            strict: *strict,
        }
    }

    /// Restores the tool.
    pub fn into_tool(self) -> ModelTool {
        let Self { name, description, input_schema, strict } = self;
        ModelTool { name, description, input_schema: Arc::new(input_schema), strict }
    }
}

impl StoredToolChoice {
    /// Converts a choice for storage.
    pub fn of(choice: &ToolChoice) -> Self {
        match choice {
            ToolChoice::Auto => Self::Auto,
            ToolChoice::None => Self::None,
            ToolChoice::Required => Self::Required,
            ToolChoice::Named(name) => Self::Named(name.clone()),
            ToolChoice::Allowed { names, must_call } => {
                Self::Allowed { names: names.clone(), must_call: *must_call == MustCall::Yes }
            }
        }
    }

    /// Restores the choice.
    pub fn into_choice(self) -> ToolChoice {
        match self {
            Self::Auto => ToolChoice::Auto,
            Self::None => ToolChoice::None,
            Self::Required => ToolChoice::Required,
            Self::Named(name) => ToolChoice::Named(name),
            Self::Allowed { names, must_call } => {
                ToolChoice::Allowed { names, must_call: if must_call { MustCall::Yes } else { MustCall::No } }
            }
        }
    }
}

impl StoredShape {
    fn of(shape: &OutputShape) -> Option<Self> {
        match shape {
            OutputShape::Text => None,
            OutputShape::Json => Some(Self::Json),
            OutputShape::Schema { name, schema } => {
                Some(Self::Schema { name: name.clone(), schema: schema.as_ref().clone() })
            }
        }
    }

    fn into_shape(self) -> OutputShape {
        match self {
            Self::Json => OutputShape::Json,
            Self::Schema { name, schema } => OutputShape::Schema { name, schema: Arc::new(schema) },
        }
    }
}

impl StoredSampling {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn of(sampling: &SamplingParameters) -> Self {
        let SamplingParameters { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, stop } =
            sampling.clone();
        Self { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, stop }
    }

    fn into_sampling(self) -> SamplingParameters {
        let Self { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, stop } = self;
        SamplingParameters { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty, stop }
    }
}

impl StoredEffort {
    fn of(effort: ReasoningEffort) -> Self {
        match effort {
            ReasoningEffort::Off => Self::Off,
            ReasoningEffort::Minimal => Self::Minimal,
            ReasoningEffort::Low => Self::Low,
            ReasoningEffort::Medium => Self::Medium,
            ReasoningEffort::High => Self::High,
            ReasoningEffort::Highest => Self::Highest,
        }
    }

    fn into_effort(self) -> ReasoningEffort {
        match self {
            Self::Off => ReasoningEffort::Off,
            Self::Minimal => ReasoningEffort::Minimal,
            Self::Low => ReasoningEffort::Low,
            Self::Medium => ReasoningEffort::Medium,
            Self::High => ReasoningEffort::High,
            Self::Highest => ReasoningEffort::Highest,
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "`skip_serializing_if` calls the function with a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
