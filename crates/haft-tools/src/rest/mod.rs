//! Tools over HTTP, written by hand in the configuration or imported from an OpenAPI document.
//!
//! Start reading at [`RestTools`], the provider. For a call, `request` builds a [`RestRequest`] from a [`RestTool`] and
//! the arguments without any IO, `credential` adds the secrets, `client` sends the request, but only to the hosts and
//! addresses that `guard` allows, and `response` converts the response to a tool output. [`openapi`] converts an
//! OpenAPI document to [`RestTool`]s. This module does not depend on the configuration, the engine or a model.

mod address;
mod body;
mod client;
mod credential;
mod encode;
mod guard;
mod oauth;
pub mod openapi;
mod parameter;
mod provider;
mod redact;
mod request;
mod response;
mod retry;
mod stream;
mod template;
mod templated;
mod tool;

pub(crate) use address::is_public;
pub use body::{BodyField, BodyKind, BodyPlan, BodyShape, RestBody};
pub(crate) use client::GuardedResolver;
pub use client::RestClient;
pub use credential::{Credential, RestKeyLocation};
pub use guard::{AllowedHosts, PrivateAddressRule, RequestBlockReason};
pub use haft_core::settings::method::Method;
pub use haft_core::settings::rest::{QueryForm, StreamMode, StreamSettings};
pub use oauth::ClientCredentials;
pub use parameter::{Explode, Parameter, ParameterLocation, ParameterStyle, ReservedCharacters};
pub use provider::RestTools;
pub use request::{OperationPlan, PathPiece, RestRequest, build};
pub use template::{TemplateError, TextTemplate};
pub use templated::{RequestTemplates, TemplateSettings, TemplateSettingsError};
pub use tool::{ExpectedContent, RequestPlan, RestService, RestTool};
