//! OpenAI's Chat Completions API, which many other servers implement too.

pub mod dialect;
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
use crate::unsaid::Unsaid;
use crate::wire::{Asked, EncodedRequest, StreamDecoder, WireFormat};
use haft_core::settings::models::Delivery;

pub use dialect::Dialect;
pub(crate) use request::effort_name;

/// Chat completions in the dialect of one server.
#[derive(Debug, Clone, Copy)]
pub struct OpenaiChat(pub &'static Dialect);

impl WireFormat for OpenaiChat {
    fn format(&self) -> Format {
        Format::OpenaiChat
    }

    fn unsaid(&self) -> &'static [Unsaid] {
        self.0.unsaid
    }

    fn encode(&self, request: &ModelRequest, delivery: Delivery, memo: &mut Memo) -> EncodedRequest {
        request::encode(self.0, request, delivery, memo)
    }

    fn decode(&self, body: &[u8], asked: &Asked) -> Result<ModelReply, ModelError> {
        response::decode(body, asked)
    }

    fn stream_decoder(&self, asked: &Asked) -> Box<dyn StreamDecoder> {
        Box::new(Framed::<SseDecoder, _>::new(stream::Reader::new(asked)))
    }
}
