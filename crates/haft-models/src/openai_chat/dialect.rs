//! The differences between Chat Completions servers: one row per server, data only.

use crate::call_id::CallIdRule;
use crate::unsupported_features::{RequestFeature, UnsupportedFeature};

/// The differences between the requests of one server and those of the OpenAI API.
#[derive(Debug)]
pub struct Dialect {
    pub name: &'static str,
    /// The role name for the system prompt.
    pub(crate) system_role: &'static str,
    /// The name of the request field for the output token limit.
    pub(crate) output_tokens_key: &'static str,
    pub(crate) seed_key: &'static str,
    /// The field for the text of an earlier refusal.
    pub(crate) refusal: RefusalField,
    pub(crate) call_ids: CallIdRule,
    pub(crate) effort: EffortKey,
    pub(crate) replay: ReasoningReplay,
    pub(crate) after_replies: AfterToolResults,
    pub(crate) stream_usage: StreamUsage,
    pub(crate) unsupported: &'static [UnsupportedFeature],
}

/// The field in which the reasoning effort is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EffortKey {
    /// Written as `reasoning_effort: "high"`.
    Flat,
    /// Written as `reasoning: {effort: "high"}`.
    Nested,
    Nowhere,
}

/// The field for the text of an earlier refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalField {
    /// The field `refusal`, which is OpenAI's own; strict servers reject it.
    Field,
    /// The message text.
    Text,
}

/// The part of a model's reasoning that the server expects back in the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReasoningReplay {
    Nothing,
    /// The array `reasoning_details`, unchanged.
    Details,
    /// The text, in the field in which it arrived.
    Field(&'static str),
    /// The `extra_content` of each call, unchanged. It contains Gemini's thought signatures if Gemini is used through
    /// an OpenAI-compatible API.
    CallExtras,
}

/// The roles that may follow a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterToolResults {
    Anybody,
    /// Only an assistant message may follow. haft inserts an assistant message before a message of any other role.
    Assistant,
}

/// Selects whether a stream reports usage only on request, or always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamUsage {
    Asked,
    Unasked,
}

impl Dialect {
    /// Returns the dialect with this name.
    pub fn named(name: &str) -> Option<&'static Dialect> {
        DIALECTS.iter().copied().find(|dialect| dialect.name == name)
    }
}

/// All dialects. [`COMPATIBLE`] is for OpenAI-compatible servers without a dialect of their own.
pub const DIALECTS: &[&Dialect] =
    &[&OPENAI, &AZURE, &OPENROUTER, &GROQ, &MISTRAL, &DEEPSEEK, &XAI, &TOGETHER, &VLLM, &COMPATIBLE];

pub const OPENAI: Dialect = Dialect {
    name: "openai",
    system_role: "developer",
    output_tokens_key: "max_completion_tokens",
    seed_key: "seed",
    refusal: RefusalField::Field,
    call_ids: CallIdRule::USUAL,
    effort: EffortKey::Flat,
    replay: ReasoningReplay::Nothing,
    after_replies: AfterToolResults::Anybody,
    stream_usage: StreamUsage::Asked,
    unsupported: OPENAI_UNSUPPORTED,
};

/// Any OpenAI-compatible server. Uses the most common fields, and sends each call's `extra_content` back.
pub const COMPATIBLE: Dialect = Dialect {
    name: "compatible",
    replay: ReasoningReplay::CallExtras,
    system_role: "system",
    output_tokens_key: "max_tokens",
    refusal: RefusalField::Text,
    unsupported: COMPATIBLE_UNSUPPORTED,
    ..OPENAI
};

pub const AZURE: Dialect = Dialect { name: "azure", ..OPENAI };
pub const OPENROUTER: Dialect = Dialect {
    name: "openrouter",
    refusal: RefusalField::Field,
    effort: EffortKey::Nested,
    replay: ReasoningReplay::Details,
    stream_usage: StreamUsage::Unasked,
    unsupported: OPENROUTER_UNSUPPORTED,
    ..COMPATIBLE
};
pub const GROQ: Dialect = Dialect {
    name: "groq",
    output_tokens_key: "max_completion_tokens",
    replay: ReasoningReplay::Nothing,
    ..COMPATIBLE
};
pub const MISTRAL: Dialect = Dialect {
    name: "mistral",
    replay: ReasoningReplay::Nothing,
    seed_key: "random_seed",
    call_ids: CallIdRule::NINE,
    effort: EffortKey::Nowhere,
    after_replies: AfterToolResults::Assistant,
    stream_usage: StreamUsage::Unasked,
    unsupported: NO_EFFORT_UNSUPPORTED,
    ..COMPATIBLE
};
pub const DEEPSEEK: Dialect = Dialect {
    name: "deepseek",
    effort: EffortKey::Nowhere,
    replay: ReasoningReplay::Field("reasoning_content"),
    unsupported: DEEPSEEK_UNSUPPORTED,
    ..COMPATIBLE
};
pub const XAI: Dialect = Dialect {
    name: "xai",
    output_tokens_key: "max_completion_tokens",
    replay: ReasoningReplay::Nothing,
    ..COMPATIBLE
};
pub const TOGETHER: Dialect = Dialect { name: "together", replay: ReasoningReplay::Nothing, ..COMPATIBLE };
/// vLLM, and servers that are based on it or behave like it, such as llama.cpp and LM Studio.
pub const VLLM: Dialect = Dialect { name: "vllm", unsupported: VLLM_UNSUPPORTED, ..COMPATIBLE };

const ERROR_PREFIX: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::ReplyError,
    instead: "haft begins the text of the tool reply with `Error: `",
};
const REPLY_IMAGE: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::ReplyImage,
    instead: "haft sends the images in a user message after the replies",
};
const REPLY_AUDIO: UnsupportedFeature =
    UnsupportedFeature { feature: RequestFeature::ReplyAudio, instead: "haft sends a description as text" };
const AUDIO_URL: UnsupportedFeature =
    UnsupportedFeature { feature: RequestFeature::AudioUrl, instead: "haft sends the URL as text" };
const FILE_URL: UnsupportedFeature =
    UnsupportedFeature { feature: RequestFeature::FileUrl, instead: "haft sends the URL as text" };
const ASSISTANT_MEDIA: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::AssistantMedia,
    instead: "haft sends a description as text",
};
const TOP_K: UnsupportedFeature =
    UnsupportedFeature { feature: RequestFeature::TopK, instead: "haft does not send this setting" };
const CONTEXT: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::ContextTokens,
    instead: "the server chooses the context size",
};
const ALLOWED: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::ChoiceAllowed,
    instead: "haft sends `auto` or `required`, and refuses calls to other tools",
};
const EFFORT: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::Effort,
    instead: "haft does not send this setting; the model decides",
};
const EFFORT_OFF: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::EffortOff,
    instead: "haft does not send this setting; the model decides",
};
const SUMMARY: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::ReasoningSummary,
    instead: "haft does not send this setting",
};
const VERBOSITY: UnsupportedFeature =
    UnsupportedFeature { feature: RequestFeature::Verbosity, instead: "haft does not send this setting" };
const STRICT: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::StrictTools,
    instead: "haft does not send this setting; the arguments may not follow the schema",
};
const SCHEMA: UnsupportedFeature = UnsupportedFeature {
    feature: RequestFeature::OutputSchema,
    instead: "haft requests any JSON and puts the schema into the system prompt",
};

const OPENAI_UNSUPPORTED: &[UnsupportedFeature] =
    &[ERROR_PREFIX, REPLY_IMAGE, REPLY_AUDIO, AUDIO_URL, FILE_URL, ASSISTANT_MEDIA, TOP_K, CONTEXT, SUMMARY];
const COMPATIBLE_UNSUPPORTED: &[UnsupportedFeature] = &[
    ERROR_PREFIX,
    REPLY_IMAGE,
    REPLY_AUDIO,
    AUDIO_URL,
    FILE_URL,
    ASSISTANT_MEDIA,
    TOP_K,
    CONTEXT,
    ALLOWED,
    SUMMARY,
    VERBOSITY,
    STRICT,
];
const OPENROUTER_UNSUPPORTED: &[UnsupportedFeature] = &[
    ERROR_PREFIX,
    REPLY_IMAGE,
    REPLY_AUDIO,
    AUDIO_URL,
    FILE_URL,
    ASSISTANT_MEDIA,
    CONTEXT,
    ALLOWED,
    SUMMARY,
];
const VLLM_UNSUPPORTED: &[UnsupportedFeature] = &[
    ERROR_PREFIX,
    REPLY_IMAGE,
    REPLY_AUDIO,
    AUDIO_URL,
    FILE_URL,
    ASSISTANT_MEDIA,
    CONTEXT,
    ALLOWED,
    SUMMARY,
    VERBOSITY,
    STRICT,
];
const NO_EFFORT_UNSUPPORTED: &[UnsupportedFeature] = &[
    ERROR_PREFIX,
    REPLY_IMAGE,
    REPLY_AUDIO,
    AUDIO_URL,
    FILE_URL,
    ASSISTANT_MEDIA,
    TOP_K,
    CONTEXT,
    ALLOWED,
    EFFORT,
    EFFORT_OFF,
    SUMMARY,
    VERBOSITY,
    STRICT,
];

const DEEPSEEK_UNSUPPORTED: &[UnsupportedFeature] = &[
    ERROR_PREFIX,
    REPLY_IMAGE,
    REPLY_AUDIO,
    AUDIO_URL,
    FILE_URL,
    ASSISTANT_MEDIA,
    TOP_K,
    CONTEXT,
    ALLOWED,
    EFFORT,
    EFFORT_OFF,
    SUMMARY,
    VERBOSITY,
    STRICT,
    SCHEMA,
];

impl Dialect {
    pub(crate) fn says(&self, feature: RequestFeature) -> bool {
        self.unsupported.iter().all(|row| row.feature != feature)
    }
}
