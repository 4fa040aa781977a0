//! Ollama's native chat API, which exposes more options of local models than its OpenAI-compatible one.

mod context;
mod request;
mod response;
mod stream;

use haft_core::conversation::ModelApiFormat;

use crate::framing::NdjsonDecoder;
use crate::stream::FramedDecoder;
use crate::unsaid::{RequestFeature, UnsupportedFeature};
use crate::wire::Codec;

/// `/api/chat`. Every request states the context size, because the server silently truncates longer prompts.
pub const OLLAMA: Codec = Codec {
    format: ModelApiFormat::Ollama,
    unsaid: UNSAID,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |asked| {
        Box::new(FramedDecoder::<NdjsonDecoder, _>::new(stream::OllamaStreamReader::new(asked)))
    },
};

const UNSAID: &[UnsupportedFeature] = &[
    UnsupportedFeature { feature: RequestFeature::ImageUrl, instead: "the address is sent as text" },
    UnsupportedFeature { feature: RequestFeature::AudioBytes, instead: "described in the text" },
    UnsupportedFeature { feature: RequestFeature::AudioUrl, instead: "the address is sent as text" },
    UnsupportedFeature { feature: RequestFeature::FileBytes, instead: "described in the text" },
    UnsupportedFeature { feature: RequestFeature::FileUrl, instead: "the address is sent as text" },
    UnsupportedFeature { feature: RequestFeature::AssistantMedia, instead: "described in the text" },
    UnsupportedFeature {
        feature: RequestFeature::ReplyError,
        instead: "the text of the reply begins with `Error: `",
    },
    UnsupportedFeature {
        feature: RequestFeature::ReplyImage,
        instead: "sent in a message of the user after the replies",
    },
    UnsupportedFeature { feature: RequestFeature::ReplyAudio, instead: "described in the text" },
    UnsupportedFeature { feature: RequestFeature::ChoiceRequired, instead: "for the loop to insist on" },
    UnsupportedFeature { feature: RequestFeature::ChoiceNamed, instead: "for the loop to insist on" },
    UnsupportedFeature {
        feature: RequestFeature::ChoiceAllowed,
        instead: "other calls are for the loop to refuse",
    },
    UnsupportedFeature {
        feature: RequestFeature::OneCallAtATime,
        instead: "for the loop to do one after the other",
    },
    UnsupportedFeature {
        feature: RequestFeature::Effort,
        instead: "a level to gpt-oss; to others only that they may think",
    },
];
