//! The seam between a conversation and its bytes: one implementation per wire format, each a pure function.

use haft_core::settings::models::Delivery;
use std::time::Duration;

use haft_core::conversation::Format;
use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;
use haft_core::model_reply::ModelReply;
use haft_core::model_request::ModelRequest;

use crate::failure;
use crate::memo::Memo;
use crate::unsaid::{Feature, Unsaid};

/// Turns requests into bytes and bytes into replies.
pub trait WireFormat: Send + Sync {
    fn format(&self) -> Format;

    /// Everything this format cannot say, and what happens instead.
    fn unsaid(&self) -> &'static [Unsaid];

    /// `memo` belongs to one conversation on one format; what it kept of the turn before is not encoded again.
    fn encode(&self, request: &ModelRequest, delivery: Delivery, memo: &mut Memo) -> EncodedRequest;

    fn decode(&self, body: &[u8], asked: &Asked) -> Result<ModelReply, ModelError>;

    fn stream_decoder(&self, asked: &Asked) -> Box<dyn StreamDecoder>;

    /// What an answer with an error status means.
    fn decode_error(&self, head: &ErrorHead<'_>, body: &[u8]) -> ModelError {
        failure::decode(head, body)
    }
}

/// A format that all servers speak alike, by its parts.
#[derive(Debug, Clone, Copy)]
pub struct Codec {
    pub(crate) format: Format,
    pub(crate) unsaid: &'static [Unsaid],
    pub(crate) encode: fn(&ModelRequest, Delivery, &mut Memo) -> EncodedRequest,
    pub(crate) decode: fn(&[u8], &Asked) -> Result<ModelReply, ModelError>,
    pub(crate) stream_decoder: fn(&Asked) -> Box<dyn StreamDecoder>,
}

impl WireFormat for Codec {
    fn format(&self) -> Format {
        self.format
    }

    fn unsaid(&self) -> &'static [Unsaid] {
        self.unsaid
    }

    fn encode(&self, request: &ModelRequest, delivery: Delivery, memo: &mut Memo) -> EncodedRequest {
        (self.encode)(request, delivery, memo)
    }

    fn decode(&self, body: &[u8], asked: &Asked) -> Result<ModelReply, ModelError> {
        (self.decode)(body, asked)
    }

    fn stream_decoder(&self, asked: &Asked) -> Box<dyn StreamDecoder> {
        (self.stream_decoder)(asked)
    }
}

/// A request, ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedRequest {
    /// Below the provider's base address.
    pub path: String,
    /// What the format wants beside the body; keys are not among it.
    pub headers: &'static [(&'static str, &'static str)],
    pub body: Vec<u8>,
    /// What decoding the reply needs to know.
    pub asked: Asked,
    /// What this request has and this format cannot say.
    pub unsaid: Vec<Feature>,
}

/// What was asked, as far as it decides how the reply is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// How many messages came before the reply; ids that a wire does not give are made from it.
    pub turn: usize,
    /// The size of all text in the prompt.
    pub text_bytes: usize,
    /// How much the server was told to read at most, where it is told.
    pub context_tokens: Option<u64>,
}

/// Reads a reply while it arrives, in pieces of any size.
pub trait StreamDecoder: Send {
    /// Adds what happened to `events`, also when an error follows it.
    fn push(&mut self, bytes: &[u8], events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;

    /// The body has ended; what is missing is repaired and noted.
    fn finish(&mut self, events: &mut Vec<ModelEvent>) -> Result<(), ModelError>;
}

/// What an error's status line and headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorHead<'a> {
    pub status: u16,
    /// `Retry-After` in seconds.
    pub retry_after: Option<&'a str>,
    /// `retry-after-ms`, which some providers send beside it.
    pub retry_after_ms: Option<&'a str>,
}

impl ErrorHead<'_> {
    pub fn of_status(status: u16) -> Self {
        Self { status, retry_after: None, retry_after_ms: None }
    }

    /// The longer of what the headers say. A date needs a clock and is left to the client.
    pub(crate) fn delay(&self) -> Option<Duration> {
        let seconds = self.retry_after.and_then(|text| failure::seconds(text.trim()));
        let millis = self.retry_after_ms.and_then(|text| failure::seconds(&format!("{}ms", text.trim())));
        seconds.max(millis)
    }
}
