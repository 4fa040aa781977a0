//! A model server that follows a script, in the wire formats of five providers.
//!
//! Start reading at [`Script`] and [`ModelServer`]. `decision.rs` computes the response to a request without IO.
//! Each format is one file, written from its provider's documentation. It must not use the product's own codecs,
//! because its purpose is to check them. Tests start the server with [`ModelServer`]; `haft dev model-server`
//! serves a script file.

mod admission;
mod anthropic;
mod asked;
mod decision;
mod expect;
mod fault;
mod gemini;
mod gemini_schema;
pub mod judge;
mod models;
mod ollama;
mod openai_chat;
mod openai_responses;
mod pace;
mod pairing;
mod playback;
mod progress;
mod protobuf;
mod recall;
mod recorded;
mod responses_stream;
mod router;
mod script;
mod server;
mod strict_schema;
mod wire;

pub use asked::{Delivery, ToolChoice};
pub use expect::Expect;
pub use fault::{Failure, Fault};
pub use pace::Pace;
pub use recorded::{Outcome, Recorded};
pub use script::{
    Call, ChatReasoning, Cited, Conversation, Order, Part, Reasoning, Script, Step, Stop, Usage,
};
pub use server::{ModelServer, serve};
pub use wire::Format;
