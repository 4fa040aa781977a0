//! OAuth 2.1 authorization for remote servers, as the MCP specification defines it.
//!
//! Start reading at [`Authorizer`], which adds the token to requests and renews a rejected token. `challenge`, `scope`,
//! `authorization_code` and `client` make decisions without IO; `discovery` and `endpoint_requests` send requests;
//! `store` keeps tokens.

mod authorization_code;
mod authorizer;
mod challenge;
mod client;
mod discovery;
mod endpoint_requests;
mod error;
mod keyring;
mod private_target;
mod scope;
mod store;

pub use authorizer::{Authorizer, OauthConfig, OauthConsent};
pub(super) use challenge::Challenge;
pub use client::PreregisteredClient;
pub use error::{AuthError, LOGIN_NEEDED};
pub use haft_core::settings::mcp::{KeyringPreference, OAuthGrant};
pub use keyring::Keyring;
pub use store::TokenFile;
