//! The differences between servers of chat completions: one row per server, data only.

use crate::call_id::IdRule;
use crate::unsaid::{Feature, Unsaid};

/// The deviations of one server.
#[derive(Debug)]
pub struct Dialect {
    pub name: &'static str,
    /// The role of the system prompt.
    pub(crate) system_role: &'static str,
    /// The key of the output token limit.
    pub(crate) output_tokens_key: &'static str,
    pub(crate) seed_key: &'static str,
    /// The field for an earlier refusal.
    pub(crate) refusal: RefusalPlace,
    pub(crate) call_ids: IdRule,
    pub(crate) effort: EffortKey,
    pub(crate) replay: Replay,
    pub(crate) after_replies: AfterReplies,
    pub(crate) stream_usage: StreamUsage,
    pub(crate) unsaid: &'static [Unsaid],
}

/// The field for the reasoning effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EffortKey {
    /// `reasoning_effort: "high"`
    Flat,
    /// `reasoning: {effort: "high"}`
    Nested,
    Nowhere,
}

/// The field for the text of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalPlace {
    /// In `refusal`, OpenAI's own field; strict servers reject it.
    Field,
    /// In the message text.
    Text,
}

/// The part of a model's reasoning that the server wants back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    Nothing,
    /// The array `reasoning_details`, unchanged.
    Details,
    /// The text, in the field it came in.
    Field(&'static str),
    /// The `extra_content` of each call, unchanged. It holds Gemini's thought signatures behind an
    /// OpenAI-compatible API.
    CallExtras,
}

/// The roles that may follow a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterReplies {
    Anybody,
    /// Only the assistant; an assistant message is inserted if another role follows.
    Assistant,
}

/// The condition for usage in a stream: only if requested, or always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamUsage {
    Asked,
    Unasked,
}

impl Dialect {
    /// Returns the dialect of that name.
    pub fn named(name: &str) -> Option<&'static Dialect> {
        DIALECTS.iter().copied().find(|dialect| dialect.name == name)
    }
}

/// All dialects. [`COMPATIBLE`] is for every server without a row of its own.
pub const DIALECTS: &[&Dialect] =
    &[&OPENAI, &AZURE, &OPENROUTER, &GROQ, &MISTRAL, &DEEPSEEK, &XAI, &TOGETHER, &VLLM, &COMPATIBLE];

pub const OPENAI: Dialect = Dialect {
    name: "openai",
    system_role: "developer",
    output_tokens_key: "max_completion_tokens",
    seed_key: "seed",
    refusal: RefusalPlace::Field,
    call_ids: IdRule::USUAL,
    effort: EffortKey::Flat,
    replay: Replay::Nothing,
    after_replies: AfterReplies::Anybody,
    stream_usage: StreamUsage::Asked,
    unsaid: OPENAI_UNSAID,
};

/// Any OpenAI-compatible server: the most common fields, and each call's `extra_content` is sent back.
pub const COMPATIBLE: Dialect = Dialect {
    name: "compatible",
    replay: Replay::CallExtras,
    system_role: "system",
    output_tokens_key: "max_tokens",
    refusal: RefusalPlace::Text,
    unsaid: COMPATIBLE_UNSAID,
    ..OPENAI
};

pub const AZURE: Dialect = Dialect { name: "azure", ..OPENAI };
pub const OPENROUTER: Dialect = Dialect {
    name: "openrouter",
    refusal: RefusalPlace::Field,
    effort: EffortKey::Nested,
    replay: Replay::Details,
    stream_usage: StreamUsage::Unasked,
    unsaid: OPENROUTER_UNSAID,
    ..COMPATIBLE
};
pub const GROQ: Dialect = Dialect {
    name: "groq",
    output_tokens_key: "max_completion_tokens",
    replay: Replay::Nothing,
    ..COMPATIBLE
};
pub const MISTRAL: Dialect = Dialect {
    name: "mistral",
    replay: Replay::Nothing,
    seed_key: "random_seed",
    call_ids: IdRule::NINE,
    effort: EffortKey::Nowhere,
    after_replies: AfterReplies::Assistant,
    stream_usage: StreamUsage::Unasked,
    unsaid: NO_EFFORT_UNSAID,
    ..COMPATIBLE
};
pub const DEEPSEEK: Dialect = Dialect {
    name: "deepseek",
    effort: EffortKey::Nowhere,
    replay: Replay::Field("reasoning_content"),
    unsaid: DEEPSEEK_UNSAID,
    ..COMPATIBLE
};
pub const XAI: Dialect = Dialect {
    name: "xai",
    output_tokens_key: "max_completion_tokens",
    replay: Replay::Nothing,
    ..COMPATIBLE
};
pub const TOGETHER: Dialect = Dialect { name: "together", replay: Replay::Nothing, ..COMPATIBLE };
/// vLLM and servers that are built on it or behave like it, such as llama.cpp and LM Studio.
pub const VLLM: Dialect = Dialect { name: "vllm", unsaid: VLLM_UNSAID, ..COMPATIBLE };

const ERROR_PREFIX: Unsaid =
    Unsaid { feature: Feature::ReplyError, instead: "the text of the reply begins with `Error: `" };
const REPLY_IMAGE: Unsaid =
    Unsaid { feature: Feature::ReplyImage, instead: "sent in a message of the user after the replies" };
const REPLY_AUDIO: Unsaid = Unsaid { feature: Feature::ReplyAudio, instead: "described in the text" };
const AUDIO_URL: Unsaid = Unsaid { feature: Feature::AudioUrl, instead: "the address is sent as text" };
const FILE_URL: Unsaid = Unsaid { feature: Feature::FileUrl, instead: "the address is sent as text" };
const ASSISTANT_MEDIA: Unsaid = Unsaid { feature: Feature::AssistantMedia, instead: "described in the text" };
const TOP_K: Unsaid = Unsaid { feature: Feature::TopK, instead: "left out" };
const CONTEXT: Unsaid = Unsaid { feature: Feature::ContextTokens, instead: "the server decides" };
const ALLOWED: Unsaid = Unsaid {
    feature: Feature::ChoiceAllowed,
    instead: "`auto` or `required`; other calls are for the loop to refuse",
};
const EFFORT: Unsaid = Unsaid { feature: Feature::Effort, instead: "left to the model" };
const EFFORT_OFF: Unsaid = Unsaid { feature: Feature::EffortOff, instead: "left to the model" };
const SCHEMA: Unsaid = Unsaid {
    feature: Feature::OutputSchema,
    instead: "asked for as any JSON; the schema stands in the system text",
};

const OPENAI_UNSAID: &[Unsaid] =
    &[ERROR_PREFIX, REPLY_IMAGE, REPLY_AUDIO, AUDIO_URL, FILE_URL, ASSISTANT_MEDIA, TOP_K, CONTEXT];
const COMPATIBLE_UNSAID: &[Unsaid] =
    &[ERROR_PREFIX, REPLY_IMAGE, REPLY_AUDIO, AUDIO_URL, FILE_URL, ASSISTANT_MEDIA, TOP_K, CONTEXT, ALLOWED];
const OPENROUTER_UNSAID: &[Unsaid] =
    &[ERROR_PREFIX, REPLY_IMAGE, REPLY_AUDIO, AUDIO_URL, FILE_URL, ASSISTANT_MEDIA, CONTEXT, ALLOWED];
const VLLM_UNSAID: &[Unsaid] = OPENROUTER_UNSAID;
const NO_EFFORT_UNSAID: &[Unsaid] = &[
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
];

const DEEPSEEK_UNSAID: &[Unsaid] = &[
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
    SCHEMA,
];

impl Dialect {
    pub(crate) fn says(&self, feature: Feature) -> bool {
        self.unsaid.iter().all(|row| row.feature != feature)
    }
}
