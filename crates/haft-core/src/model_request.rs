//! What a model is asked.

use std::sync::Arc;

use serde_json::Value;

use crate::conversation::Conversation;

/// One request to a model, in no provider's words.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The provider's own name of the model.
    pub model: String,
    pub system: Arc<str>,
    /// The same list, not an equal one, is encoded only once: keep it for as long as the catalog does not change.
    pub tools: Arc<[ModelTool]>,
    pub tool_choice: ToolChoice,
    pub parallel_calls: ParallelCalls,
    pub conversation: Arc<Conversation>,
    pub output: OutputShape,
    pub sampling: Sampling,
    pub reasoning: Option<Effort>,
    pub output_tokens_max: Option<u32>,
    /// How much the model may see at once, where that is for the asker to set.
    pub context_tokens: Option<u32>,
    pub caching: PromptCaching,
}

impl ModelRequest {
    /// A request that leaves everything else to the provider.
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

/// Whether a provider is asked to keep what it has read for the next request, where it wants to be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptCaching {
    Full,
    None,
}

/// A tool, as a model is shown it.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelTool {
    pub name: String,
    pub description: String,
    /// As the tool's provider wrote it; each format says as much of it as it can.
    pub input_schema: Arc<Value>,
}

/// Which tools the model may or must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    None,
    /// At least one, whichever.
    Required,
    /// This one.
    Named(String),
    /// Only these; all stay visible, so that the prompt stays the same.
    Allowed {
        names: Vec<String>,
        must_call: MustCall,
    },
}

/// Whether one of the allowed tools has to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MustCall {
    No,
    Yes,
}

/// Whether one reply may have several calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParallelCalls {
    Allowed,
    OneAtATime,
}

/// What the text of the answer must look like.
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

/// How the next token is chosen; `None` leaves it to the provider.
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

/// How long a model may think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Highest,
}
