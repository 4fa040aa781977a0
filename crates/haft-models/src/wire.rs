//! The interface between conversations and bytes. Each wire format implements it without IO.

use haft_core::settings::models::ReplyDelivery;
use std::time::Duration;

use haft_core::conversation::ModelApiFormat;
use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;
use haft_core::model_reply::{ModelReply, ReplyFold};
use haft_core::model_request::ModelRequest;

use crate::encode_memo::EncodeMemo;
use crate::failure;
use crate::unsupported_features::{RequestFeature, UnsupportedFeature};

/// Encodes requests and decodes replies in one wire format.
pub trait WireFormat: Send + Sync {
    fn format(&self) -> ModelApiFormat;

    /// Returns the features that this format does not support, with their substitutes.
    fn unsupported(&self) -> &'static [UnsupportedFeature];

    /// Encodes a request. `memo` belongs to one conversation in one format, and avoids encoding the earlier turns
    /// again.
    fn encode(
        &self,
        request: &ModelRequest,
        delivery: ReplyDelivery,
        memo: &mut EncodeMemo,
    ) -> EncodedRequest;

    /// Decodes a whole response into the events of its reply. The events tell more than the reply: for example, that
    /// reasoning is a summary.
    fn decode_events(
        &self,
        body: &[u8],
        decode_context: &DecodeContext,
    ) -> Result<Vec<ModelEvent>, ModelError>;

    fn decode(&self, body: &[u8], decode_context: &DecodeContext) -> Result<ModelReply, ModelError> {
        self.decode_events(body, decode_context).map(ReplyFold::of)
    }

    fn stream_decoder(&self, decode_context: &DecodeContext) -> Box<dyn StreamDecoder>;

    /// Decodes a response with an error status.
    fn decode_error(&self, head: &ErrorHead<'_>, body: &[u8]) -> ModelError {
        failure::decode(head, body)
    }
}

/// A wire format without dialects, as a table of functions.
#[derive(Debug, Clone, Copy)]
pub struct Codec {
    pub(crate) format: ModelApiFormat,
    pub(crate) unsupported: &'static [UnsupportedFeature],
    pub(crate) encode: fn(&ModelRequest, ReplyDelivery, &mut EncodeMemo) -> EncodedRequest,
    pub(crate) decode: fn(&[u8], &DecodeContext) -> Result<Vec<ModelEvent>, ModelError>,
    pub(crate) stream_decoder: fn(&DecodeContext) -> Box<dyn StreamDecoder>,
}

impl WireFormat for Codec {
    fn format(&self) -> ModelApiFormat {
        self.format
    }

    fn unsupported(&self) -> &'static [UnsupportedFeature] {
        self.unsupported
    }

    fn encode(
        &self,
        request: &ModelRequest,
        delivery: ReplyDelivery,
        memo: &mut EncodeMemo,
    ) -> EncodedRequest {
        (self.encode)(request, delivery, memo)
    }

    fn decode_events(
        &self,
        body: &[u8],
        decode_context: &DecodeContext,
    ) -> Result<Vec<ModelEvent>, ModelError> {
        (self.decode)(body, decode_context)
    }

    fn stream_decoder(&self, decode_context: &DecodeContext) -> Box<dyn StreamDecoder> {
        (self.stream_decoder)(decode_context)
    }
}

/// An encoded request that is ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedRequest {
    /// The path relative to the provider's base URL.
    pub path: String,
    /// The headers that the format requires, without credentials.
    pub headers: &'static [(&'static str, &'static str)],
    pub body: Vec<u8>,
    /// The facts about the request that the decoder needs.
    pub decode_context: DecodeContext,
    /// The features in this request that the format does not support.
    pub unsupported: Vec<RequestFeature>,
}

/// The facts about a request that the decoder needs for the reply.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeContext {
    /// The number of messages before the reply, which is used to generate missing call ids.
    pub turn: usize,
    /// The size of all text in the prompt, in bytes.
    pub text_bytes: usize,
    /// The context size that the request set, in tokens, if the format has this field.
    pub context_tokens: Option<u64>,
}

/// Decodes a reply while it arrives, in chunks of any size.
pub trait StreamDecoder: Send {
    /// Decodes a chunk. Adds its events to `events`, including those before an error.
    fn push(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;

    /// Ends the body. Fills in missing parts of the reply, and notes them.
    fn finish(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;
}

/// The status and headers of an error response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorHead<'a> {
    pub status: u16,
    /// The `Retry-After` header, in seconds.
    pub retry_after: Option<&'a str>,
    /// The `retry-after-ms` header, which some providers also send.
    pub retry_after_ms: Option<&'a str>,
}

impl ErrorHead<'_> {
    pub fn of_status(status: u16) -> Self {
        Self { status, retry_after: None, retry_after_ms: None }
    }

    /// Returns the longer of the two delays. A date would need a clock, so the client converts it to seconds first.
    pub(crate) fn delay(&self) -> Option<Duration> {
        let seconds = self.retry_after.and_then(|text| failure::seconds(text.trim()));
        let millis = self.retry_after_ms.and_then(|text| failure::seconds(&format!("{}ms", text.trim())));
        seconds.max(millis)
    }
}
