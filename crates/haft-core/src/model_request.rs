//! A request to a model.

use std::sync::Arc;

use serde_json::Value;

use crate::conversation::Conversation;

/// One request to a model, independent of any provider.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The provider's own name for the model.
    pub model: String,
    /// The instructions before the first message; empty for none.
    pub system: Arc<str>,
    /// The tools that the model sees. Encoders cache the encoded list by the identity of this `Arc`, not by its
    /// content: reuse the same `Arc` while the catalog does not change.
    pub tools: Arc<[ModelTool]>,
    /// Tools that the model does not see until a search finds them, for formats that load tools by name. Other formats
    /// ignore this list; for them the search result defines the tools as text.
    pub deferred: Arc<[ModelTool]>,
    /// The tools that the model may or must call.
    pub tool_choice: ToolChoice,
    /// Selects whether one reply may hold several calls.
    pub parallel_calls: ParallelCalls,
    /// The messages so far, shared with the run that sends the request.
    pub conversation: Arc<Conversation>,
    /// The required form of the answer text.
    pub output: OutputShape,
    /// Temperature and other sampling parameters.
    pub sampling: SamplingParameters,
    /// The reasoning effort; `None` for the provider's default.
    pub reasoning: Option<ReasoningEffort>,
    /// The length of the reasoning summary that the model writes; `None` for haft's default.
    pub reasoning_summary: Option<ReasoningSummary>,
    /// The length of the answer; `None` for the provider's default.
    pub verbosity: Option<Verbosity>,
    /// The maximum number of tokens in the reply, including reasoning; `None` for the provider's default.
    pub output_tokens_max: Option<u32>,
    /// The size of the context window in tokens, for providers that let the client set it.
    pub context_tokens: Option<u32>,
    /// Selects whether the provider caches the prompt.
    pub caching: PromptCaching,
}

impl ModelRequest {
    /// Creates a request for this model and conversation. All other fields keep the provider's defaults.
    pub fn new(model: impl Into<String>, conversation: Arc<Conversation>) -> Self {
        Self {
            model: model.into(),
            system: "".into(),
            tools: Arc::new([]),
            deferred: Arc::new([]),
            tool_choice: ToolChoice::Auto,
            parallel_calls: ParallelCalls::Allowed,
            conversation,
            output: OutputShape::Text,
            sampling: SamplingParameters::default(),
            reasoning: None,
            reasoning_summary: None,
            verbosity: None,
            output_tokens_max: None,
            context_tokens: None,
            caching: PromptCaching::Full,
        }
    }
}

/// Selects the use of the provider's prompt cache, for providers that cache only on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptCaching {
    /// Caches as much of the prompt as the provider can.
    Full,
    /// Requests no caching. A provider that caches automatically still does so.
    None,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTool {
    /// The exposed name, unique in the request.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The schema from the tool's provider. Each format encodes the parts of it that the format supports.
    pub input_schema: Arc<Value>,
    /// True if the provider must make the arguments follow the schema exactly.
    pub strict: bool,
}

impl ModelTool {
    /// Returns an approximation of the tool's text in the model's context, for counting tokens.
    pub fn context_text(&self) -> String {
        format!("{} {} {}", self.name, self.description, self.input_schema)
    }
}

/// The tools that the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model chooses between tools and text.
    Auto,
    /// The model must answer in text.
    None,
    /// The model must call at least one tool, of its own choice.
    Required,
    /// The model must call exactly this tool.
    Named(String),
    /// The model may call only these tools. The request still lists all tools, so that the prompt and its cache stay
    /// the same.
    Allowed {
        /// The exposed names of the tools.
        names: Vec<String>,
        /// Selects whether a reply without a call is acceptable.
        must_call: MustCall,
    },
}

/// Selects whether the model must call at least one of the allowed tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MustCall {
    /// The model may answer in text.
    No,
    /// The model must call one of the tools.
    Yes,
}

/// Selects whether one reply may hold several calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParallelCalls {
    /// A reply may hold any number of calls.
    Allowed,
    /// A reply may hold at most one call.
    OneAtATime,
}

/// The required form of the answer text.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputShape {
    /// The answer may be any text.
    Text,
    /// The answer must be a JSON object.
    Json,
    /// The answer must be JSON that follows this schema.
    Schema {
        /// A name for the schema, which some providers require.
        name: String,
        /// The schema as the caller wrote it. A format may enforce only a part of it.
        schema: Arc<Value>,
    },
}

/// The sampling parameters. `None` keeps the provider's default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SamplingParameters {
    /// The temperature, at least 0. Larger values give more varied text.
    pub temperature: Option<f64>,
    /// Restricts sampling to the likeliest tokens with this total probability, from 0 to 1.
    pub top_p: Option<f64>,
    /// Restricts sampling to this many of the likeliest tokens.
    pub top_k: Option<u32>,
    /// Makes sampling repeatable, if the provider supports it.
    pub seed: Option<u64>,
    /// Makes tokens that already occur in the text less likely; usually from -2 to 2.
    pub presence_penalty: Option<f64>,
    /// Makes tokens less likely the more often they already occur in the text; usually from -2 to 2.
    pub frequency_penalty: Option<f64>,
    /// Texts that end the reply; empty for none.
    pub stop: Vec<String>,
}

/// The reasoning effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningEffort {
    /// No reasoning, if the model supports that.
    Off,
    /// As little reasoning as the model supports.
    Minimal,
    /// Little reasoning, for speed.
    Low,
    /// The usual amount of reasoning for most models.
    Medium,
    /// Much reasoning, for difficult tasks.
    High,
    /// As much reasoning as the model supports.
    Highest,
}

/// The length of the summary that a model writes of its reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningSummary {
    /// The provider chooses the length.
    Auto,
    /// A short summary.
    Concise,
    /// A long summary.
    Detailed,
}

crate::name_table!(ReasoningSummary { Auto: "auto", Concise: "concise", Detailed: "detailed" });

/// The length of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// Short answers.
    Low,
    /// Answers of the usual length.
    Medium,
    /// Long answers.
    High,
}

crate::name_table!(Verbosity { Low: "low", Medium: "medium", High: "high" });
