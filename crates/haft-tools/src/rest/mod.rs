//! Tools over HTTP: written by hand in the configuration, or imported from the description of an API.
//!
//! Start reading at [`RestTools`], the provider. A call goes through `request` (a pure function from a [`RestTool`] and its
//! arguments to a [`Request`]), `credential` (which adds what is secret), `client` (which sends it, only to where `guard`
//! lets it) and `answer` (what came back, as an output). [`openapi`] turns a description into [`RestTool`]s.
//! Nothing here knows the configuration, the engine or a model.

mod address;
mod answer;
mod body;
mod client;
mod credential;
mod encode;
mod guard;
mod oauth;
pub mod openapi;
mod parameter;
mod provider;
mod request;
mod retry;
mod stream;
mod template;
mod templated;
mod tool;
mod withheld;

pub use body::{Body, BodyKind, BodyPlan, BodyShape, Field};
pub use client::Client;
pub use credential::{Credential, KeyPlace};
pub use guard::{Private, Reach, Refusal};
pub use haft_core::settings::method::Method;
pub use haft_core::settings::rest::{QueryForm, StreamMode, Streaming};
pub use oauth::ClientCredentials;
pub use parameter::{Explode, Parameter, Place, Reserved, Style};
pub use provider::RestTools;
pub use request::{OperationPlan, PathPiece, Request, build};
pub use template::{Template, TemplateError};
pub use templated::{Templated, Written, WrittenError};
pub use tool::{Expected, Plan, RestTool, Service};
