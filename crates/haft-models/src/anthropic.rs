//! Anthropic's Messages API.

mod request;
mod response;
mod stream;

use haft_core::conversation::Format;

use crate::framing::SseDecoder;
use crate::stream::Framed;
use crate::unsaid::{Feature, Unsaid};
use crate::wire::Codec;

/// The Messages API. Cache markers go after the tools, the system prompt and the last two user turns.
pub const ANTHROPIC: Codec = Codec {
    format: Format::Anthropic,
    unsaid: UNSAID,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |asked| Box::new(Framed::<SseDecoder, _>::new(stream::Reader::new(asked))),
};

const UNSAID: &[Unsaid] = &[
    Unsaid { feature: Feature::SystemInside, instead: "sent as the user, between `<system>` tags" },
    Unsaid { feature: Feature::AudioBytes, instead: "described in the text" },
    Unsaid { feature: Feature::AudioUrl, instead: "the address is sent as text" },
    Unsaid { feature: Feature::ReplyAudio, instead: "described in the text" },
    Unsaid { feature: Feature::AssistantMedia, instead: "described in the text" },
    Unsaid {
        feature: Feature::ChoiceAllowed,
        instead: "`auto` or `any`; other calls are for the loop to refuse",
    },
    Unsaid { feature: Feature::OutputJson, instead: "left to the prompt" },
    Unsaid { feature: Feature::Seed, instead: "left out" },
    Unsaid { feature: Feature::PresencePenalty, instead: "left out" },
    Unsaid { feature: Feature::FrequencyPenalty, instead: "left out" },
    Unsaid { feature: Feature::ContextTokens, instead: "the server decides" },
];
