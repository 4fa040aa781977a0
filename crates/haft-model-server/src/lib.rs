//! A model server that says what a script tells it to, in the wire formats of five providers.
//!
//! Start reading at [`Script`] and [`ModelServer`]. `decision.rs` goes from a request to an answer without IO; each format
//! is one file that reads its provider's documents anew and must know nothing of the product's own codecs, because
//! it is there to judge them. Tests start it by [`ModelServer`]; `haft dev model-server` serves a file of one's own.

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
