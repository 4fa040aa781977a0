//! The configuration keys of models and their providers, as the configuration file contains them, before defaults are
//! applied.

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

/// The keys of one provider. A value that may hold a secret is kept as written, so that `haft config show` shows the
/// variable and not its value.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct RawProvider {
    /// The known provider whose defaults apply; by default the provider with the same name, else `compatible`
    pub(in super::super) kind: Option<KindText>,

    /// The base URL; by default the value of the provider's usual environment variable, else the provider's public URL
    pub(in super::super) base_url: Option<TemplateText>,

    /// The API key, preferably as a variable; by default the value of the provider's usual environment variable
    pub(in super::super) api_key: Option<TemplateText>,

    /// More headers that haft sends with every request
    pub(in super::super) headers: Option<BTreeMap<String, TemplateText>>,

    /// A PEM file with certificate authorities to trust, in addition to those that the machine trusts
    pub(in super::super) ca_file: Option<TemplateText>,

    /// The wire format, if it differs from the usual format of `kind`
    pub(in super::super) format: Option<RawWireFormat>,

    /// More fields for the body of every request; objects are merged, and these fields override haft's own
    pub(in super::super) extra_body: Option<AnyJson>,

    /// Whether the provider streams a reply or sends it whole
    #[schemars(extend("default" = "streamed"))]
    pub(in super::super) delivery: Option<RawDelivery>,

    /// The maximum time that a connection may take to open
    #[schemars(extend("default" = default::CONNECT_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) connect_timeout: Option<Millis>,

    /// The maximum time until the first byte of the reply
    #[schemars(extend("default" = default::FIRST_BYTE_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) first_byte_timeout: Option<Millis>,

    /// The maximum pause between two parts of a reply
    #[schemars(extend("default" = default::CHUNK_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) chunk_timeout: Option<Millis>,

    /// The time limit for a request, including all attempts
    #[schemars(extend("default" = default::REQUEST_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) request_timeout: Option<Millis>,

    /// The maximum number of attempts for one request
    #[schemars(range(min = 1, max = 100), extend("default" = default::ATTEMPTS_MAX))]
    pub(in super::super) max_attempts: Option<u32>,

    /// `claude-code` only: the name or path of the command
    #[schemars(extend("default" = CLAUDE_CODE_COMMAND))]
    pub(in super::super) command: Option<String>,

    /// `claude-code` only: the maximum number of turns in one run of the command; after them, haft resumes the session
    #[schemars(range(min = 1), extend("default" = CLAUDE_CODE_TURNS_MAX))]
    pub(in super::super) max_turns: Option<u32>,

    /// `claude-code` only: the command's own tools, such as `Read` or `Bash(git *)`, that the model can use in addition to haft's tools
    pub(in super::super) allowed_tools: Option<Vec<String>>,

    /// `claude-code` only: how often haft resumes the session before the request fails
    #[schemars(range(max = 100), extend("default" = CLAUDE_CODE_RESUMES_MAX))]
    pub(in super::super) max_resumes: Option<u32>,

    /// The maximum wait that haft accepts from `Retry-After`; if the provider asks for a longer wait, the request fails
    #[schemars(extend("default" = default::RETRY_AFTER_MAX_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) max_retry_after: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct RawModels {
    /// The model for runs that name none, as `provider/model`
    pub(in super::super) default: Option<String>,

    /// The model for simple steps, from the same provider as `models.default`; by default `models.default`
    pub(in super::super) fast: Option<String>,

    /// The model for difficult steps, from the same provider as `models.default`; by default `models.default`
    pub(in super::super) complex: Option<String>,

    /// The models that haft tries in this order if the default model fails, each as `provider/model`
    #[schemars(extend("default" = []))]
    pub(in super::super) fallback: Option<Vec<String>>,

    /// Settings of individual models; each key is `provider/model`
    pub(in super::super) settings: Option<BTreeMap<String, RawModelSettings>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct RawModelSettings {
    /// The token prices of the model, instead of the prices in the built-in table
    pub(in super::super) price: Option<RawPrice>,

    /// How the model gets tools: `native` in the format of the provider, `prompted` in the prompt, `none` not at all; by default `native`, and `prompted` after the provider has refused tools
    pub(in super::super) tool_calling: Option<RawToolCalling>,

    /// The maximum number of tokens in one reply of the model
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub(in super::super) max_output_tokens: Option<u32>,

    /// The size of the context window, for providers that let the client set it
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub(in super::super) context_tokens: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct RawPrice {
    /// The price of request tokens
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) input: f64,

    /// The price of reply tokens
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) output: f64,

    /// The price of tokens that the provider reads from its cache; by default the same as `input`
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) cache_read: Option<f64>,

    /// The price of tokens that the provider writes to its cache; by default the same as `input`
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
