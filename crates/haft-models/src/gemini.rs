//! Google's Gemini API, by `generateContent`.

mod request;
mod response;
mod stream;

use haft_core::conversation::Format;

use crate::framing::SseDecoder;
use crate::stream::Framed;
use crate::unsaid::{Feature, Unsaid};
use crate::wire::Codec;

/// `generateContent` and `streamGenerateContent`.
pub const GEMINI: Codec = Codec {
    format: Format::Gemini,
    unsaid: UNSAID,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |asked| Box::new(Framed::<SseDecoder, _>::new(stream::Reader::new(asked))),
};

const UNSAID: &[Unsaid] = &[
    Unsaid { feature: Feature::SystemInside, instead: "sent as the user, between `<system>` tags" },
    Unsaid { feature: Feature::ReplyImage, instead: "sent beside the replies, in the same message" },
    Unsaid { feature: Feature::ReplyAudio, instead: "described in the text" },
    Unsaid { feature: Feature::OneCallAtATime, instead: "for the loop to do one after the other" },
    Unsaid { feature: Feature::ContextTokens, instead: "the server decides" },
];
