//! The HTTP client that all HTTP providers share.
//!
//! [`HttpProvider`] does the IO. [`retry`] and the codecs make the decisions, without any IO.

mod client;
mod client_pool;
mod endpoint;
mod extra_body;
mod model_list;
mod provider;
mod reply_reader;
pub mod retry;

pub use client::CertificateAuthorities;
pub use client_pool::ClientPool;
pub use endpoint::{Endpoint, EndpointAuth, EndpointError};
pub use haft_core::settings::models::{ModelTimeouts, RetryPolicy};
pub use model_list::{ListedModel, read_page};
pub use provider::{HttpProvider, HttpSettings};
