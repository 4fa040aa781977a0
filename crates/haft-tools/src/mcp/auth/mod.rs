//! Who we are to a server elsewhere: OAuth 2.1 the way MCP has it.
//!
//! Start reading at [`Authorizer`], which gives requests their token and gets another when one is refused. `challenge`, `scope`,
//! `grant` and `client` decide and do nothing; `discovery` and `exchange` ask and decide nothing; `store` keeps.

mod authorizer;
mod challenge;
mod client;
mod discovery;
mod error;
mod exchange;
mod grant;
mod keyring;
mod scope;
mod store;

pub use authorizer::{Authorizer, Consent, OauthConfig};
pub(super) use challenge::Challenge;
pub use client::KnownClient;
pub use error::AuthError;
pub use haft_core::settings::mcp::{Grant, Preference};
pub use keyring::Keyring;
pub use store::TokenFile;
