//! The Responses API: a conversation as a list of items, with reasoning that goes back encrypted.

mod request;
mod response;
mod stream;

use haft_core::conversation::Format;
use haft_core::model_error::ModelError;
use haft_core::model_reply::ModelReply;
use haft_core::model_request::ModelRequest;

use crate::framing::SseDecoder;
use crate::memo::Memo;
use crate::stream::Framed;
use crate::unsaid::{Feature, Unsaid};
use crate::wire::{Asked, Delivery, EncodedRequest, StreamDecoder, WireFormat};

/// The Responses API without state on the server: every request holds the whole conversation.
#[derive(Debug, Clone, Copy)]
pub struct OpenaiResponses;

const UNSAID: &[Unsaid] = &[
    Unsaid { feature: Feature::ReplyError, instead: "the text of the reply begins with `Error: `" },
    Unsaid { feature: Feature::ReplyAudio, instead: "described in the text" },
    Unsaid { feature: Feature::AudioBytes, instead: "described in the text" },
    Unsaid { feature: Feature::AudioUrl, instead: "the address is said as text" },
    Unsaid { feature: Feature::AssistantMedia, instead: "described in the text" },
    Unsaid { feature: Feature::TopK, instead: "left out" },
    Unsaid { feature: Feature::Seed, instead: "left out" },
    Unsaid { feature: Feature::PresencePenalty, instead: "left out" },
    Unsaid { feature: Feature::FrequencyPenalty, instead: "left out" },
    Unsaid { feature: Feature::StopSequences, instead: "left out" },
    Unsaid { feature: Feature::ContextTokens, instead: "the server decides" },
];

impl WireFormat for OpenaiResponses {
    fn format(&self) -> Format {
        Format::OpenaiResponses
    }

    fn unsaid(&self) -> &'static [Unsaid] {
        UNSAID
    }

    fn encode(&self, request: &ModelRequest, delivery: Delivery, memo: &mut Memo) -> EncodedRequest {
        request::encode(request, delivery, memo)
    }

    fn decode(&self, body: &[u8], asked: &Asked) -> Result<ModelReply, ModelError> {
        response::decode(body, asked)
    }

    fn stream_decoder(&self, asked: &Asked) -> Box<dyn StreamDecoder> {
        Box::new(Framed::<SseDecoder, _>::new(stream::Reader::new(asked)))
    }
}
