//! The keys of models and their providers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use haft_core::conversation::ModelApiFormat;
use haft_core::settings::models::{
    CLAUDE_CODE, CLAUDE_CODE_COMMAND, CLAUDE_CODE_RESUMES_MAX, CLAUDE_CODE_TURNS_MAX, PROVIDER_NAMES,
    ReplyDelivery, ToolCalling,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::super::default;
use super::super::value_format::{AnyJson, Millis, TemplateText, words};

/// Values that may hold a secret stay as written: `haft config show` shows the variable, not its value.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct RawProvider {
    /// The known provider; by default the one of the same name, else `compatible`
    pub(in super::super) kind: Option<KindText>,

    /// The base URL; by default the provider's usual variable, else its public address
    pub(in super::super) base_url: Option<TemplateText>,

    /// The API key, best as a variable; by default the provider's usual variable
    pub(in super::super) api_key: Option<TemplateText>,

    /// More headers for every request
    pub(in super::super) headers: Option<BTreeMap<String, TemplateText>>,

    /// A PEM file with certificate authorities to trust, in addition to those of the machine
    pub(in super::super) ca_file: Option<TemplateText>,

    /// The wire format, if it differs from the format of `kind`
    pub(in super::super) format: Option<RawWireFormat>,

    /// More fields for the body of every request; objects are merged, and these fields win
    pub(in super::super) extra_body: Option<AnyJson>,

    /// Whether replies are streamed or sent whole
    #[schemars(extend("default" = "streamed"))]
    pub(in super::super) delivery: Option<RawDelivery>,

    /// The longest time to connect
    #[schemars(extend("default" = default::CONNECT_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) connect_timeout: Option<Millis>,

    /// The longest time until the reply begins
    #[schemars(extend("default" = default::FIRST_BYTE_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) first_byte_timeout: Option<Millis>,

    /// The longest pause within a reply
    #[schemars(extend("default" = default::CHUNK_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) chunk_timeout: Option<Millis>,

    /// The longest time for a request with all its attempts
    #[schemars(extend("default" = default::REQUEST_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) request_timeout: Option<Millis>,

    /// The most attempts for one request
    #[schemars(range(min = 1, max = 100), extend("default" = default::ATTEMPTS_MAX))]
    pub(in super::super) max_attempts: Option<u32>,

    /// `claude-code` only: the command, by its name or its path
    #[schemars(extend("default" = CLAUDE_CODE_COMMAND))]
    pub(in super::super) command: Option<String>,

    /// `claude-code` only: the most turns of one run of the command before haft resumes it
    #[schemars(range(min = 1), extend("default" = CLAUDE_CODE_TURNS_MAX))]
    pub(in super::super) max_turns: Option<u32>,

    /// `claude-code` only: the command's own tools that need no permission; an empty list removes all tools
    pub(in super::super) allowed_tools: Option<Vec<String>>,

    /// `claude-code` only: how often haft resumes its session before the request fails
    #[schemars(range(max = 100), extend("default" = CLAUDE_CODE_RESUMES_MAX))]
    pub(in super::super) max_resumes: Option<u32>,

    /// The longest wait that a provider may ask for; if it asks for more, the request fails
    #[schemars(extend("default" = default::RETRY_AFTER_MAX_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) max_retry_after: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct RawModels {
    /// The model to use if none is named, as `provider/model`
    pub(in super::super) default: Option<String>,

    /// A model of the same provider for simple steps; by default `models.default`
    pub(in super::super) fast: Option<String>,

    /// A model of the same provider for difficult steps; by default `models.default`
    pub(in super::super) complex: Option<String>,

    /// Models to ask in order if the default fails, as `provider/model`
    #[schemars(extend("default" = []))]
    pub(in super::super) fallback: Option<Vec<String>>,

    /// Settings of single models, by `provider/model`
    pub(in super::super) settings: Option<BTreeMap<String, RawModelSettings>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct RawModelSettings {
    /// The price of its tokens, instead of the built-in table
    pub(in super::super) price: Option<RawPrice>,

    /// The way it gets tools; by default `native`, and `prompted` after its provider has refused tools
    pub(in super::super) tool_calling: Option<RawToolCalling>,

    /// The most tokens of one reply of the model
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub(in super::super) max_output_tokens: Option<u32>,

    /// The size of the context window, for providers that let the client set it
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub(in super::super) context_tokens: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct RawPrice {
    /// Tokens of the request
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) input: f64,

    /// Tokens of the reply
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) output: f64,

    /// Tokens read from the provider's cache; by default the price of `input`
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) cache_read: Option<f64>,

    /// Tokens written to the provider's cache; by default the price of `input`
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) cache_write: Option<f64>,
}

/// The name of a known provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(in super::super) struct KindText(pub(in super::super) String);

impl JsonSchema for KindText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ProviderKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = PROVIDER_NAMES.iter().copied().chain([CLAUDE_CODE]).collect();
        json_schema!({ "type": "string", "enum": names })
    }
}

words! {
    pub(in super::super) RawToolCalling for ToolCalling { "native" Native, "prompted" Prompted, "none" None }
    pub(in super::super) RawDelivery for ReplyDelivery { "streamed" Streamed, "whole" Whole }
    pub(in super::super) RawWireFormat for ModelApiFormat {
        "openai_chat" OpenaiChat, "openai_responses" OpenaiResponses, "anthropic" Anthropic, "gemini" Gemini, "ollama" Ollama
    }
}
