//! The vocabulary of haft and its pure decisions: what a tool is, what a call asks, what a result says.
//!
//! Start reading at [`tool`], then [`result`] and [`provider`]; the decisions are in [`naming`] (which tool a name means),
//! [`arguments`] (what a text says), [`validate`] (whether a tool may see it) and [`text`] (how much is shown).
//! What models are asked and answer is in [`conversation`], [`model_request`], [`model_event`] and [`model_reply`].
//! How a model, tools and limits make a run is in [`run`], and the tools that belong to the run itself in [`internal`].
//! This crate does no IO, starts no task and reads no clock; nothing in it is `async` but trait signatures.

pub mod approval;
pub mod arguments;
pub mod conversation;
pub mod digest;
pub mod event;
pub mod glob;
pub mod internal;
pub mod model_error;
pub mod model_event;
pub mod model_reply;
pub mod model_request;
pub mod name;
pub mod naming;
pub mod output;
pub mod provider;
pub mod result;
pub mod rules;
pub mod run;
pub mod shell;
pub mod store;
pub mod text;
pub mod time_limit;
pub mod tool;
pub mod validate;
