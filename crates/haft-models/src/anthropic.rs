//! Anthropic's Messages API.

mod request;
mod response;
mod stream;

use haft_core::conversation::ModelApiFormat;

use crate::framing::Framing;
use crate::stream::FramedDecoder;
use crate::unsupported_features::{RequestFeature, UnsupportedFeature};
use crate::wire::Codec;

/// The codec for the Messages API. Cache markers are put after the tools, the system prompt and the last two user
/// turns.
pub const ANTHROPIC: Codec = Codec {
    format: ModelApiFormat::Anthropic,
    unsupported: UNSUPPORTED,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |decode_context| {
        Box::new(FramedDecoder::new(Framing::sse(), stream::AnthropicStreamReader::new(decode_context)))
    },
};

const UNSUPPORTED: &[UnsupportedFeature] = &[
    UnsupportedFeature {
        feature: RequestFeature::SystemInside,
        instead: "sent as a user message between `<system>` tags",
    },
    UnsupportedFeature {
        feature: RequestFeature::AudioBytes,
        instead: "replaced by a description in the text",
    },
    UnsupportedFeature { feature: RequestFeature::AudioUrl, instead: "the URL is sent as text" },
    UnsupportedFeature {
        feature: RequestFeature::ReplyAudio,
        instead: "replaced by a description in the text",
    },
    UnsupportedFeature {
        feature: RequestFeature::AssistantMedia,
        instead: "replaced by a description in the text",
    },
    UnsupportedFeature {
        feature: RequestFeature::ChoiceAllowed,
        instead: "sent as `auto` or `any`; haft refuses other calls",
    },
    UnsupportedFeature {
        feature: RequestFeature::OutputJson,
        instead: "not requested; only the prompt can ask for JSON",
    },
    UnsupportedFeature { feature: RequestFeature::Seed, instead: "not sent" },
    UnsupportedFeature { feature: RequestFeature::PresencePenalty, instead: "not sent" },
    UnsupportedFeature { feature: RequestFeature::FrequencyPenalty, instead: "not sent" },
    UnsupportedFeature { feature: RequestFeature::ContextTokens, instead: "the server decides" },
];
