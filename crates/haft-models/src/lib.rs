//! Model providers: five wire formats as pure functions, and the HTTP client that they share.
//!
//! Start reading at [`wire`], then at any format's `request.rs`, `response.rs` and `stream.rs`.
//! [`unsupported_features`] lists the features that each format does not support, [`encode_memo`] caches encoded
//! messages, [`schema`] adapts tool schemas, and [`prompted_tools`] emulates tool calls for models that have none. This
//! crate depends on no tool provider and no engine, and its formats use no clock, no network and no randomness.

pub mod anthropic;
mod attempt;
mod bounded_json;
mod call_id;
mod call_list;
pub mod capability;
pub mod cassette;
pub mod claude_code;
mod conversation_cache;
mod draft;
pub mod encode_memo;
mod failure;
pub mod fallback;
pub mod framing;
pub mod gemini;
pub mod http;
mod json_text;
mod media;
pub mod model_data;
mod object_arguments;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
pub mod prices;
pub mod prompted_tools;
pub mod provider_circuit;
pub mod providers;
mod redact;
pub mod schema;
mod stream;
mod tool_blocks;
pub mod tool_calling;
pub mod unsupported_features;
mod url_citation;
pub mod wire;

pub use encode_memo::{EncodeCounters, EncodeMemo};
pub use haft_core::settings::models::ReplyDelivery;
pub use wire::{DecodeContext, EncodedRequest, ErrorHead, StreamDecoder, WireFormat};
