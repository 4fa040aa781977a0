//! OpenAI's Responses API: a conversation as a list of items, with encrypted reasoning that is sent back.

mod request;
mod response;
mod stream;

use haft_core::conversation::ModelApiFormat;

use crate::framing;
use crate::stream::FramedDecoder;
use crate::unsupported_features::{RequestFeature, UnsupportedFeature};
use crate::wire::Codec;

/// The Responses API without server-side state: every request contains the whole conversation.
pub const OPENAI_RESPONSES: Codec = Codec {
    format: ModelApiFormat::OpenaiResponses,
    unsupported: UNSUPPORTED,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |decode_context| {
        Box::new(FramedDecoder::new(framing::sse(), stream::ResponsesStreamReader::new(decode_context)))
    },
};

const UNSUPPORTED: &[UnsupportedFeature] = &[
    UnsupportedFeature {
        feature: RequestFeature::ReplyError,
        instead: "haft begins the text of the tool reply with `Error: `",
    },
    UnsupportedFeature { feature: RequestFeature::ReplyAudio, instead: "haft sends a description as text" },
    UnsupportedFeature { feature: RequestFeature::AudioBytes, instead: "haft sends a description as text" },
    UnsupportedFeature { feature: RequestFeature::AudioUrl, instead: "haft sends the URL as text" },
    UnsupportedFeature {
        feature: RequestFeature::AssistantMedia,
        instead: "haft sends a description as text",
    },
    UnsupportedFeature { feature: RequestFeature::TopK, instead: "haft does not send this setting" },
    UnsupportedFeature { feature: RequestFeature::Seed, instead: "haft does not send this setting" },
    UnsupportedFeature {
        feature: RequestFeature::PresencePenalty,
        instead: "haft does not send this setting",
    },
    UnsupportedFeature {
        feature: RequestFeature::FrequencyPenalty,
        instead: "haft does not send this setting",
    },
    UnsupportedFeature { feature: RequestFeature::StopSequences, instead: "haft does not send this setting" },
    UnsupportedFeature {
        feature: RequestFeature::ContextTokens,
        instead: "the server chooses the context size",
    },
];
