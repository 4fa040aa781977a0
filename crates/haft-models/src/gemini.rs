//! Google's Gemini API, through `generateContent`.

mod citations;
mod request;
mod response;
mod stream;

use haft_core::conversation::ModelApiFormat;

use crate::framing;
use crate::stream::FramedDecoder;
use crate::unsupported_features::{RequestFeature, UnsupportedFeature};
use crate::wire::Codec;

/// The codec for `generateContent` and `streamGenerateContent`.
pub const GEMINI: Codec = Codec {
    format: ModelApiFormat::Gemini,
    unsupported: UNSUPPORTED,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |decode_context| {
        Box::new(FramedDecoder::new(framing::sse(), stream::GeminiStreamReader::new(decode_context)))
    },
};

const UNSUPPORTED: &[UnsupportedFeature] = &[
    UnsupportedFeature {
        feature: RequestFeature::SystemInside,
        instead: "haft sends a user message in `<system>` tags",
    },
    UnsupportedFeature {
        feature: RequestFeature::ReplyImage,
        instead: "haft sends the images in the same message as the replies",
    },
    UnsupportedFeature { feature: RequestFeature::ReplyAudio, instead: "haft sends a description as text" },
    UnsupportedFeature {
        feature: RequestFeature::OneCallAtATime,
        instead: "haft runs the calls one after another",
    },
    UnsupportedFeature {
        feature: RequestFeature::ContextTokens,
        instead: "the server chooses the context size",
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
