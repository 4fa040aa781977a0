//! Ollama's native chat API, which exposes more options of local models than its OpenAI-compatible one.

mod context;
mod request;
mod response;
mod stream;

use haft_core::conversation::ModelApiFormat;

use crate::framing;
use crate::stream::FramedDecoder;
use crate::unsupported_features::{RequestFeature, UnsupportedFeature};
use crate::wire::Codec;

/// The codec for `/api/chat`. Every request states the context size, because the server silently truncates longer
/// prompts.
pub const OLLAMA: Codec = Codec {
    format: ModelApiFormat::Ollama,
    unsupported: UNSUPPORTED,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |decode_context| {
        Box::new(FramedDecoder::new(framing::lines(), stream::OllamaStreamReader::new(decode_context)))
    },
};

const UNSUPPORTED: &[UnsupportedFeature] = &[
    UnsupportedFeature { feature: RequestFeature::ImageUrl, instead: "haft sends the URL as text" },
    UnsupportedFeature { feature: RequestFeature::AudioBytes, instead: "haft sends a description as text" },
    UnsupportedFeature { feature: RequestFeature::AudioUrl, instead: "haft sends the URL as text" },
    UnsupportedFeature { feature: RequestFeature::FileBytes, instead: "haft sends a description as text" },
    UnsupportedFeature { feature: RequestFeature::FileUrl, instead: "haft sends the URL as text" },
    UnsupportedFeature {
        feature: RequestFeature::AssistantMedia,
        instead: "haft sends a description as text",
    },
    UnsupportedFeature {
        feature: RequestFeature::ReplyError,
        instead: "haft begins the text of the tool reply with `Error: `",
    },
    UnsupportedFeature {
        feature: RequestFeature::ReplyImage,
        instead: "haft sends the images in a user message after the replies",
    },
    UnsupportedFeature { feature: RequestFeature::ReplyAudio, instead: "haft sends a description as text" },
    UnsupportedFeature {
        feature: RequestFeature::ChoiceRequired,
        instead: "haft asks again if the model does not make the call",
    },
    UnsupportedFeature {
        feature: RequestFeature::ChoiceNamed,
        instead: "haft asks again if the model does not make the call",
    },
    UnsupportedFeature {
        feature: RequestFeature::ChoiceAllowed,
        instead: "haft refuses calls to other tools",
    },
    UnsupportedFeature {
        feature: RequestFeature::OneCallAtATime,
        instead: "haft runs the calls one after another",
    },
    UnsupportedFeature {
        feature: RequestFeature::Effort,
        instead: "haft sends a level to gpt-oss, and only turns thinking on for other models",
    },
    UnsupportedFeature {
        feature: RequestFeature::ReasoningSummary,
        instead: "haft does not send this setting",
    },
    UnsupportedFeature { feature: RequestFeature::Verbosity, instead: "haft does not send this setting" },
    UnsupportedFeature {
        feature: RequestFeature::StrictTools,
        instead: "haft does not send this setting; the arguments may not follow the schema",
    },
];
