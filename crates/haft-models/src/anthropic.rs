//! Anthropic's Messages API.

mod request;
mod response;
mod stream;

use haft_core::conversation::ModelApiFormat;

use crate::framing;
use crate::stream::FramedDecoder;
use crate::unsupported_features::{RequestFeature, UnsupportedFeature};
use crate::wire::Codec;

/// The codec for the Messages API. The codec puts cache markers after the tools, the system prompt and the last two
/// user turns.
pub const ANTHROPIC: Codec = Codec {
    format: ModelApiFormat::Anthropic,
    unsupported: UNSUPPORTED,
    encode: request::encode,
    decode: response::decode,
    stream_decoder: |decode_context| {
        Box::new(FramedDecoder::new(framing::sse(), stream::AnthropicStreamReader::new(decode_context)))
    },
};

const UNSUPPORTED: &[UnsupportedFeature] = &[
    UnsupportedFeature {
        feature: RequestFeature::SystemInside,
        instead: "haft sends a user message in `<system>` tags",
    },
    UnsupportedFeature { feature: RequestFeature::AudioBytes, instead: "haft sends a description as text" },
    UnsupportedFeature { feature: RequestFeature::AudioUrl, instead: "haft sends the URL as text" },
    UnsupportedFeature { feature: RequestFeature::ReplyAudio, instead: "haft sends a description as text" },
    UnsupportedFeature {
        feature: RequestFeature::AssistantMedia,
        instead: "haft sends a description as text",
    },
    UnsupportedFeature {
        feature: RequestFeature::ChoiceAllowed,
        instead: "haft sends `auto` or `any`, and refuses calls to other tools",
    },
    UnsupportedFeature {
        feature: RequestFeature::OutputJson,
        instead: "haft does not request JSON; only the prompt can ask for it",
    },
    UnsupportedFeature { feature: RequestFeature::Seed, instead: "haft does not send this setting" },
    UnsupportedFeature {
        feature: RequestFeature::PresencePenalty,
        instead: "haft does not send this setting",
    },
    UnsupportedFeature {
        feature: RequestFeature::FrequencyPenalty,
        instead: "haft does not send this setting",
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
