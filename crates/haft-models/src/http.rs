//! The one client for every provider that is asked over HTTP.
//!
//! [`HttpProvider`] drives; what it does next is decided in [`retry`] and in the codecs, neither of which waits for anything.

mod arriving;
mod client;
mod endpoint;
mod extra_body;
mod list;
mod provider;
pub mod retry;

pub use client::Authorities;
pub use endpoint::{Auth, Endpoint, EndpointError};
pub use haft_core::settings::models::{RetryPolicy, Timeouts};
pub use list::{Listed, read_page};
pub use provider::{HttpProvider, HttpSettings};
