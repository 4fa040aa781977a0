//! Ollama's native chat API, which exposes more options of local models than its OpenAI-compatible one.

mod context;
mod request;
mod response;
mod stream;

use haft_core::conversation::Format;

use crate::framing::NdjsonDecoder;
use crate::stream::Framed;
use crate::unsaid::{Feature, Unsaid};
use crate::wire::Codec;

/// `/api/chat`. Every request states the context size, because the server silently truncates longer prompts.
pub const OLLAMA: Codec = Codec {
    format: Format::Ollama,
    unsaid: UNSAID,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |asked| Box::new(Framed::<NdjsonDecoder, _>::new(stream::Reader::new(asked))),
};

const UNSAID: &[Unsaid] = &[
    Unsaid { feature: Feature::ImageUrl, instead: "the address is sent as text" },
    Unsaid { feature: Feature::AudioBytes, instead: "described in the text" },
    Unsaid { feature: Feature::AudioUrl, instead: "the address is sent as text" },
    Unsaid { feature: Feature::FileBytes, instead: "described in the text" },
    Unsaid { feature: Feature::FileUrl, instead: "the address is sent as text" },
    Unsaid { feature: Feature::AssistantMedia, instead: "described in the text" },
    Unsaid { feature: Feature::ReplyError, instead: "the text of the reply begins with `Error: `" },
    Unsaid { feature: Feature::ReplyImage, instead: "sent in a message of the user after the replies" },
    Unsaid { feature: Feature::ReplyAudio, instead: "described in the text" },
    Unsaid { feature: Feature::ChoiceRequired, instead: "for the loop to insist on" },
    Unsaid { feature: Feature::ChoiceNamed, instead: "for the loop to insist on" },
    Unsaid { feature: Feature::ChoiceAllowed, instead: "other calls are for the loop to refuse" },
    Unsaid { feature: Feature::OneCallAtATime, instead: "for the loop to do one after the other" },
    Unsaid { feature: Feature::Effort, instead: "a level to gpt-oss; to others only that they may think" },
];
