//! OpenAI's Chat Completions API, which many other servers implement too.

pub mod dialect;
mod request;
mod response;
mod stream;

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;
use haft_core::model_request::ModelRequest;

use crate::encode_memo::EncodeMemo;
use crate::framing;
use crate::stream::FramedDecoder;
use crate::unsupported_features::UnsupportedFeature;
use crate::wire::{DecodeContext, EncodedRequest, StreamDecoder, WireFormat};
use haft_core::settings::models::ReplyDelivery;

pub use dialect::Dialect;
pub(crate) use request::{StrictField, effort_name, write_tools};

/// The Chat Completions API in the dialect of one server.
#[derive(Debug, Clone, Copy)]
pub struct OpenaiChat(pub &'static Dialect);

impl WireFormat for OpenaiChat {
    fn format(&self) -> ModelApiFormat {
        ModelApiFormat::OpenaiChat
    }

    fn unsupported(&self) -> &'static [UnsupportedFeature] {
        self.0.unsupported
    }

    fn encode(
        &self,
        request: &ModelRequest,
        delivery: ReplyDelivery,
        memo: &mut EncodeMemo,
    ) -> EncodedRequest {
        request::encode(self.0, request, delivery, memo)
    }

    fn decode_events(
        &self,
        body: &[u8],
        decode_context: &DecodeContext,
    ) -> Result<Vec<ModelEvent>, ModelError> {
        response::decode(body, decode_context)
    }

    fn stream_decoder(&self, decode_context: &DecodeContext) -> Box<dyn StreamDecoder> {
        Box::new(FramedDecoder::new(framing::sse(), stream::ChatStreamReader::new(decode_context)))
    }
}
