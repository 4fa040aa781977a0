//! The vocabulary of haft and its pure decisions: what a tool is, what a call asks, what a result says.
//!
//! Start reading at [`tool`], then [`result`] and [`provider`]; the decisions are in [`naming`] (which tool a name means),
//! [`arguments`] (what a text says), [`validate`] (whether a tool may see it), [`text`] and [`shorten`] (how much is shown)
//! and [`budget`] (whether it fits). What happens is told as [`event`]s, which [`op_tree`] folds into one picture.
//! What models are asked and answer is in [`conversation`], [`model_request`], [`model_event`] and [`model_reply`]; [`model_provider`]
//! is the seam at which they are asked.
//! How a model, tools and limits make a run is in [`run`], and the tools that belong to the run itself in [`internal`].
//! What of it files keep is in [`stored`].
//! Values that operators set are in [`settings`], the paths of haft's own directory in [`home`].
//! This crate does no IO, starts no task and reads no clock; nothing in it is `async` but trait signatures.

#![warn(missing_docs)]

pub mod approval;
pub mod arguments;
pub mod budget;
pub mod cache_store;
pub mod changes;
pub mod chunk;
pub mod conversation;
pub mod digest;
pub mod elicitation;
pub mod event;
pub mod event_log;
pub mod event_store;
pub mod glob;
pub mod grant;
pub mod grant_store;
pub mod home;
pub mod internal;
pub mod media;
pub mod model_error;
pub mod model_event;
pub mod model_provider;
pub mod model_reply;
pub mod model_request;
pub mod name;
pub mod naming;
pub mod op_tree;
pub mod output;
pub mod place;
pub mod price;
pub mod principal;
pub mod priority;
pub mod provider;
pub mod result;
pub mod rules;
pub mod run;
pub mod sampling;
pub mod settings;
pub mod shell;
pub mod shorten;
pub mod store;
pub mod stored;
pub mod text;
pub mod time_limit;
pub mod tokens;
pub mod tool;
pub mod validate;
