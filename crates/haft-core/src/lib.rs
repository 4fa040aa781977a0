//! The types that haft's crates share (tools, calls, results and runs), and the decisions about them that need no IO.
//!
//! Start reading at [`tool`], then [`result`] and [`provider`]. The decisions about a call are in [`naming`] (the tool
//! for a name), [`arguments`] (JSON that a model wrote), [`validate`] (the schema), [`rules`] and [`grant`]
//! (permissions), [`text`] and [`shorten`] (output limits) and [`budget`] (tokens). Each step emits an [`event`];
//! [`op_tree`] folds events into a tree. [`conversation`], [`model_request`], [`model_event`] and [`model_reply`]
//! describe the traffic with models, and [`model_provider`] is its interface. [`run`] is the state machine of a run,
//! [`internal_tools`] are the tools that the run answers itself, and [`stored`] is the stored form of all of these.
//! [`settings`] holds values that operators set, [`home`] the paths in haft's home directory, and [`redact`] removes
//! secrets from texts.
//!
//! This crate does no IO, starts no task and reads no clock. Only trait methods in it are `async`.

pub mod accounting_store;
pub mod approval;
pub mod arguments;
pub mod blob_store;
pub mod budget;
pub mod cache_store;
pub mod change_counter;
pub mod chunk;
pub mod client_relay;
pub mod compaction;
pub mod conversation;
pub mod digest;
pub mod duration_text;
pub mod elicitation;
pub mod event;
pub mod event_log;
pub mod event_store;
pub mod framing;
pub mod glob;
pub mod grant;
pub mod grant_store;
pub mod home;
pub mod idempotency_store;
pub mod internal_tools;
pub mod json_depth;
pub mod media;
pub mod model_error;
pub mod model_event;
pub mod model_provider;
pub mod model_reply;
pub mod model_request;
pub mod name;
mod name_table;
pub mod naming;
pub mod op_tree;
pub mod output;
pub mod output_store;
pub mod position;
pub mod price;
pub mod principal;
pub mod priority;
pub mod provider;
pub mod provider_instructions;
pub mod redact;
pub mod result;
pub mod rules;
pub mod run;
pub mod sampling;
pub mod settings;
pub mod shell;
pub mod shorten;
pub mod stored;
pub mod text;
pub mod time_limit;
pub mod tokens;
pub mod tool;
pub mod tool_lock;
pub mod tool_switches;
pub mod trace_context;
pub mod validate;
