//! OpenAI's Responses API: a conversation as a list of items, with encrypted reasoning that is sent back.

mod request;
mod response;
mod stream;

use haft_core::conversation::Format;

use crate::framing::SseDecoder;
use crate::stream::Framed;
use crate::unsaid::{Feature, Unsaid};
use crate::wire::Codec;

/// The Responses API without server-side state: every request contains the whole conversation.
pub const OPENAI_RESPONSES: Codec = Codec {
    format: Format::OpenaiResponses,
    unsaid: UNSAID,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |asked| Box::new(Framed::<SseDecoder, _>::new(stream::Reader::new(asked))),
};

const UNSAID: &[Unsaid] = &[
    Unsaid { feature: Feature::ReplyError, instead: "the text of the reply begins with `Error: `" },
    Unsaid { feature: Feature::ReplyAudio, instead: "described in the text" },
    Unsaid { feature: Feature::AudioBytes, instead: "described in the text" },
    Unsaid { feature: Feature::AudioUrl, instead: "the address is sent as text" },
    Unsaid { feature: Feature::AssistantMedia, instead: "described in the text" },
    Unsaid { feature: Feature::TopK, instead: "left out" },
    Unsaid { feature: Feature::Seed, instead: "left out" },
    Unsaid { feature: Feature::PresencePenalty, instead: "left out" },
    Unsaid { feature: Feature::FrequencyPenalty, instead: "left out" },
    Unsaid { feature: Feature::StopSequences, instead: "left out" },
    Unsaid { feature: Feature::ContextTokens, instead: "the server decides" },
];
