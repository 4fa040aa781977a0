//! A model server that follows a script, in the wire formats of five providers.
//!
//! Start reading at [`Script`] and [`ModelServer`]. `decision.rs` computes the response to a request without IO. Each
//! format is one file, written from its provider's documentation. A format must not use the codecs of `haft-models`,
//! because its purpose is to check them. Tests start the server with [`ModelServer`]; `haft dev model-server` serves a
//! script file.

mod anthropic;
mod authentication;
mod decision;
mod expect;
mod fault;
mod gemini;
mod gemini_schema;
mod model_rules;
mod models;
mod ollama;
mod openai_chat;
mod openai_responses;
mod pace;
mod pairing;
mod parsed_request;
mod placeholders;
mod playback;
mod protobuf;
mod request_log;
mod responses_stream;
mod router;
pub mod schema_check;
mod script;
mod script_progress;
mod server;
mod strict_schema;
mod wire;

pub use expect::RequestExpectation;
pub use fault::{ErrorResponse, ResponseFault};
pub use pace::ResponsePace;
pub use parsed_request::{RequestToolChoice, ResponseDelivery};
pub use request_log::{RecordedRequest, RequestOutcome};
pub use script::{
    ChatReasoning, CitedText, Script, ScriptCall, ScriptConversation, ScriptPart, ScriptReasoning,
    ScriptStep, ScriptStop, ScriptUsage, StepOrder,
};
pub use server::{ModelServer, serve};
pub use wire::ApiFormat;
