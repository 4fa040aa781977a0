//! Google's Gemini, by `generateContent`.

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

/// `generateContent` and its streaming twin.
#[derive(Debug, Clone, Copy)]
pub struct Gemini;

const UNSAID: &[Unsaid] = &[
    Unsaid { feature: Feature::SystemInside, instead: "said by the user, between `<system>` tags" },
    Unsaid { feature: Feature::ReplyImage, instead: "sent beside the replies, in the same message" },
    Unsaid { feature: Feature::ReplyAudio, instead: "described in the text" },
    Unsaid { feature: Feature::AssistantMedia, instead: "described in the text" },
    Unsaid { feature: Feature::OneCallAtATime, instead: "for the loop to do one after the other" },
    Unsaid { feature: Feature::ContextTokens, instead: "the server decides" },
];

impl WireFormat for Gemini {
    fn format(&self) -> Format {
        Format::Gemini
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
