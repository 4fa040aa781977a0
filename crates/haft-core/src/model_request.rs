//! A request to a model.

use std::sync::Arc;

use serde_json::Value;

use crate::conversation::Conversation;

/// One request to a model, independent of any provider.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The provider's own name of the model.
    pub model: String,
    pub system: Arc<str>,
    /// Encoders cache the encoded list by the identity of this `Arc`, not by its content: reuse the same `Arc` as long
    /// as the catalog does not change.
    pub tools: Arc<[ModelTool]>,
    pub tool_choice: ToolChoice,
    pub parallel_calls: ParallelCalls,
    pub conversation: Arc<Conversation>,
    pub output: OutputShape,
    pub sampling: Sampling,
    pub reasoning: Option<Effort>,
    pub output_tokens_max: Option<u32>,
    /// The size of the context window, for providers that let the client set it.
    pub context_tokens: Option<u32>,
    pub caching: PromptCaching,
}

impl ModelRequest {
    /// Creates a request with the provider's defaults for everything else.
    pub fn new(model: impl Into<String>, conversation: Arc<Conversation>) -> Self {
        Self {
            model: model.into(),
            system: "".into(),
            tools: Arc::new([]),
            tool_choice: ToolChoice::Auto,
            parallel_calls: ParallelCalls::Allowed,
            conversation,
            output: OutputShape::Text,
            sampling: Sampling::default(),
            reasoning: None,
            output_tokens_max: None,
            context_tokens: None,
            caching: PromptCaching::Full,
        }
    }
}

/// The choice to use the provider's prompt cache, for providers that need an explicit request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptCaching {
    Full,
    None,
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTool {
    pub name: String,
    pub description: String,
    /// The schema from the tool's provider. Each format encodes as much of it as it supports.
    pub input_schema: Arc<Value>,
}

/// The tools that the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    None,
    /// At least one, of the model's choice.
    Required,
    /// Exactly this one.
    Named(String),
    /// Only these. The request still lists all tools, so that the prompt and its cache stay the same.
    Allowed {
        names: Vec<String>,
        must_call: MustCall,
    },
}

/// The duty to call at least one of the allowed tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MustCall {
    No,
    Yes,
}

/// The permission for several calls in one reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParallelCalls {
    Allowed,
    OneAtATime,
}

/// The required form of the answer's text.
#[derive(Debug, Clone, PartialEq)]
pub enum OutputShape {
    Text,
    /// Any JSON object.
    Json,
    Schema {
        name: String,
        schema: Arc<Value>,
    },
}

/// The sampling parameters; `None` keeps the provider's default.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sampling {
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub top_k: Option<u32>,
    pub seed: Option<u64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub stop: Vec<String>,
}

/// The reasoning effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Highest,
}
