//! The keys of models and their providers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use haft_core::settings::models::{
    CLAUDE_CODE, CLAUDE_CODE_COMMAND, CLAUDE_CODE_RESUMES_MAX, CLAUDE_CODE_TURNS_MAX, PROVIDER_NAMES,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

use super::super::default;
use super::super::format::{AnyJson, Millis, TemplateText};

/// What may hold a secret is kept as it is written: `haft config show` shows the variable, not its value.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct Provider {
    /// Which of the known providers it is; without this key the one of the same name, else `compatible`
    pub(in super::super) kind: Option<KindText>,

    /// Where it is; without this key its usual variable or its own address
    pub(in super::super) base_url: Option<TemplateText>,

    /// Its key, best as a variable; without this key its usual variable
    pub(in super::super) api_key: Option<TemplateText>,

    /// More headers for every request
    pub(in super::super) headers: Option<BTreeMap<String, TemplateText>>,

    /// A file with certificates in PEM: who vouches for it, beside those whom the machine trusts
    pub(in super::super) ca_file: Option<TemplateText>,

    /// The wire format, where it is not that of its kind
    pub(in super::super) format: Option<WireFormat>,

    /// More fields for the body of every request; objects are merged, and these win
    pub(in super::super) extra_body: Option<AnyJson>,

    /// Whether replies come piece by piece or in one
    #[schemars(extend("default" = "streamed"))]
    pub(in super::super) delivery: Option<Delivery>,

    /// How long connecting may take
    #[schemars(extend("default" = default::CONNECT_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) connect_timeout: Option<Millis>,

    /// How long it may take until the answer begins
    #[schemars(extend("default" = default::FIRST_BYTE_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) first_byte_timeout: Option<Millis>,

    /// How long nothing more may come in the middle of an answer
    #[schemars(extend("default" = default::CHUNK_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) chunk_timeout: Option<Millis>,

    /// How long a request may take with all its attempts
    #[schemars(extend("default" = default::REQUEST_TIMEOUT_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) request_timeout: Option<Millis>,

    /// How often a request is sent before its failure is final
    #[schemars(range(min = 1, max = 100), extend("default" = default::ATTEMPTS_MAX))]
    pub(in super::super) attempts_max: Option<u32>,

    /// `claude-code` only: the command, by its name or its path
    #[schemars(extend("default" = CLAUDE_CODE_COMMAND))]
    pub(in super::super) command: Option<String>,

    /// `claude-code` only: how many turns the command may take before it is asked to go on
    #[schemars(range(min = 1), extend("default" = CLAUDE_CODE_TURNS_MAX))]
    pub(in super::super) max_turns: Option<u32>,

    /// `claude-code` only: the command's own tools that need no permission; an empty list takes all of them away
    pub(in super::super) allowed_tools: Option<Vec<String>>,

    /// `claude-code` only: how often its session is taken up again before its failure is final
    #[schemars(range(max = 100), extend("default" = CLAUDE_CODE_RESUMES_MAX))]
    pub(in super::super) max_resumes: Option<u32>,

    /// The longest wait that a provider may ask for; a longer one is a failure
    #[schemars(extend("default" = default::RETRY_AFTER_MAX_MS, "x-unit" = "milliseconds"))]
    pub(in super::super) retry_after_max: Option<Millis>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct Models {
    /// The model that is asked when none is named, as `provider/model`
    pub(in super::super) default: Option<String>,

    /// Of the same provider, for simple steps; without this key the default
    pub(in super::super) fast: Option<String>,

    /// Of the same provider, for difficult steps; without this key the default
    pub(in super::super) complex: Option<String>,

    /// Models that are asked in order when the default fails, as `provider/model`
    #[schemars(extend("default" = []))]
    pub(in super::super) fallback: Option<Vec<String>>,

    /// What holds for single models, by `provider/model`
    pub(in super::super) settings: Option<BTreeMap<String, Model>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct Model {
    /// What its tokens cost, instead of the built-in table
    pub(in super::super) price: Option<Price>,

    /// How it is given tools; without this key `native`, and `prompted` once its provider refuses them
    pub(in super::super) tool_calling: Option<ToolCalling>,

    /// The most it may write in one reply
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub(in super::super) max_output_tokens: Option<u32>,

    /// How much it may see at once, where that is for the asker to say
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub(in super::super) context_tokens: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(in super::super) struct Price {
    /// What is read
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) input: f64,

    /// What is written
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) output: f64,

    /// What is read from the provider's cache; without this key as `input`
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) cache_read: Option<f64>,

    /// What is put into that cache; without this key as `input`
    #[schemars(range(min = 0), extend("x-unit" = "US dollars per million tokens"))]
    pub(in super::super) cache_write: Option<f64>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in super::super) enum ToolCalling {
    Native,
    Prompted,
    None,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(in super::super) enum Delivery {
    Streamed,
    Whole,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum WireFormat {
    OpenaiChat,
    OpenaiResponses,
    Anthropic,
    Gemini,
    Ollama,
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
