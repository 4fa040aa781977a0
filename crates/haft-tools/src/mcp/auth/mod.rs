//! OAuth 2.1 authorization for remote servers, as the MCP specification defines it.
//!
//! Start reading at [`Authorizer`], which adds the token to requests and renews a rejected token. `challenge`, `scope`,
//! `authorization_code`, `client`, `dpop` and `signing_key` make decisions without IO; `discovery` and
//! `endpoint_requests` send requests; `assertion` signs assertions and reads them from files; `loopback` receives the
//! redirect of a login; `store` keeps tokens.

mod assertion;
mod authorization_code;
mod authorizer;
mod challenge;
mod client;
mod discovery;
mod dpop;
mod endpoint_requests;
mod error;
mod keyring;
mod loopback;
mod private_target;
mod scope;
mod signing_key;
mod store;

pub(super) use authorizer::AccessToken;
pub use authorizer::{Authorizer, IdentityProvider, OauthConfig, OauthConsent, OauthGrantConfig};
pub(super) use challenge::Challenge;
pub use client::PreregisteredClient;
pub use error::{AuthError, LOGIN_NEEDED};
pub use haft_core::settings::mcp::KeyringPreference;
pub use keyring::Keyring;
pub use loopback::{LoopbackRedirect, is_login_redirect, login_state};
pub use signing_key::SigningKey;
pub use store::TokenFile;
