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
mod model_rules;
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

pub use asked::{RequestToolChoice, ResponseDelivery};
pub use expect::RequestExpectation;
pub use fault::{ErrorResponse, ResponseFault};
pub use pace::ResponsePace;
pub use recorded::{RecordedRequest, RequestOutcome};
pub use script::{
    ChatReasoning, CitedText, Script, ScriptCall, ScriptConversation, ScriptPart, ScriptReasoning,
    ScriptStep, ScriptStop, ScriptUsage, StepOrder,
};
pub use server::{ModelServer, serve};
pub use wire::ApiFormat;
