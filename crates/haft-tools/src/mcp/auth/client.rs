//! The identity of this client at an authorization server, and its authentication method.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::Url;

use super::assertion;
use super::authorizer::OauthConfig;
use super::discovery::AuthorizationServer;
use super::error::AuthError;
use super::signing_key::SigningKey;

/// Client credentials that the operator got from the authorization server.
#[derive(Clone)]
pub struct PreregisteredClient {
    pub id: String,
    pub secret: Option<SecretString>,
    /// The key with which the client signs an assertion in place of a secret.
    pub key: Option<Arc<SigningKey>>,
}

impl std::fmt::Debug for PreregisteredClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PreregisteredClient").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A client and its authentication method. Both are valid for one issuer only.
#[derive(Clone)]
pub(super) struct OauthClient {
    pub(super) id: String,
    pub(super) secret: Option<SecretString>,
    /// The signing key of the method `PrivateKeyJwt`. haft never stores this key with a token.
    pub(super) key: Option<Arc<SigningKey>>,
    pub(super) proof: ClientAuthMethod,
    /// The redirect URI that this client was registered with; `None` for a client that was not registered dynamically.
    pub(super) redirect: Option<String>,
}

/// The client authentication method at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientAuthMethod {
    Basic,
    Post,
    PrivateKeyJwt,
    None,
}

impl ClientAuthMethod {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::PrivateKeyJwt => "private_key_jwt",
            Self::None => "none",
        }
    }

    pub(super) fn from_method_name(word: &str) -> Option<Self> {
        [Self::Basic, Self::Post, Self::PrivateKeyJwt, Self::None]
            .into_iter()
            .find(|proof| proof.word() == word)
    }

    /// Returns the first preferred method that the server supports; otherwise `Basic`, the default of RFC 8414.
    fn among(preferred: &[Self], taken: &[String]) -> Self {
        let taken = |proof: &&Self| taken.iter().any(|word| word == proof.word());
        preferred.iter().find(taken).copied().unwrap_or(Self::Basic)
    }
}

/// The source of the client identity.
pub(super) enum ClientIdentitySource {
    Known(OauthClient),
    /// Register dynamically at this endpoint.
    Register(Url),
}

/// Chooses the client identity: the operator's credentials first, then the client metadata URL, then dynamic
/// registration.
pub(super) fn choose_client_identity(
    oauth: &OauthConfig,
    issuer: &AuthorizationServer,
) -> Result<ClientIdentitySource, AuthError> {
    if let Some(known) = &oauth.client {
        return Ok(ClientIdentitySource::Known(of_operator(known, issuer)));
    }
    match (&oauth.client_metadata_url, &issuer.registration_endpoint) {
        (Some(url), _) if issuer.client_id_metadata_document_supported => {
            let client = OauthClient {
                id: url.to_string(),
                secret: None,
                key: None,
                proof: ClientAuthMethod::None,
                redirect: None,
            };
            Ok(ClientIdentitySource::Known(client))
        }
        (_, Some(endpoint)) => Ok(ClientIdentitySource::Register(endpoint.clone())),
        (_, None) => Err(AuthError::refused(
            "the authorization server does not support dynamic client registration; get a client id there and set `oauth.clientId`",
        )),
    }
}

/// Returns the client that the operator registered, with an authentication method that the server supports.
pub(super) fn of_operator(known: &PreregisteredClient, issuer: &AuthorizationServer) -> OauthClient {
    let methods = &issuer.token_endpoint_auth_methods_supported;
    let PreregisteredClient { id, secret, key } = known.clone();
    let proof = match (&key, &secret) {
        (Some(_), _) => ClientAuthMethod::PrivateKeyJwt,
        (None, Some(_)) => {
            ClientAuthMethod::among(&[ClientAuthMethod::Basic, ClientAuthMethod::Post], methods)
        }
        (None, None) => ClientAuthMethod::None,
    };
    OauthClient { id, secret, key, proof, redirect: None }
}

/// Builds the body of a dynamic registration request.
pub(super) fn registration(redirect: &str, issuer: &AuthorizationServer) -> Value {
    let preferred = [ClientAuthMethod::None, ClientAuthMethod::Basic, ClientAuthMethod::Post];
    json!({
        "client_name": "haft",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method":
            ClientAuthMethod::among(&preferred, &issuer.token_endpoint_auth_methods_supported).word(),
    })
}

/// Reads the client from the response to a registration.
pub(super) fn registered(
    answer: &Value,
    redirect: &str,
    issuer: &AuthorizationServer,
) -> Result<OauthClient, AuthError> {
    let text = |name: &str| answer[name].as_str().filter(|text| !text.is_empty());
    let id = text("client_id").ok_or_else(|| {
        AuthError::refused("the authorization server returned no `client_id` for the client registration")
    })?;
    let secret = text("client_secret").map(SecretString::from);
    let registered_method = text("token_endpoint_auth_method").and_then(ClientAuthMethod::from_method_name);
    let proof = match (&secret, registered_method) {
        (None, _) => ClientAuthMethod::None,
        (Some(_), Some(registered_method)) => registered_method,
        (Some(_), None) => ClientAuthMethod::among(
            &[ClientAuthMethod::Basic, ClientAuthMethod::Post, ClientAuthMethod::None],
            &issuer.token_endpoint_auth_methods_supported,
        ),
    };
    Ok(OauthClient { id: id.to_owned(), secret, key: None, proof, redirect: Some(redirect.to_owned()) })
}

impl OauthClient {
    /// Returns the form fields that identify the client, to be sent together with the grant.
    pub(super) fn form(&self, issuer: &str, now: u64) -> Result<Vec<(&'static str, String)>, AuthError> {
        let id = ("client_id", self.id.clone());
        Ok(match (self.proof, &self.secret, &self.key) {
            (ClientAuthMethod::Basic, Some(_), _) => Vec::new(),
            (ClientAuthMethod::Post, Some(secret), _) => {
                vec![id, ("client_secret", secret.expose_secret().to_owned())]
            }
            (ClientAuthMethod::PrivateKeyJwt, _, Some(key)) => {
                let assertion = assertion::of_client(key, &self.id, issuer, now)?;
                let kind = assertion::CLIENT_ASSERTION_TYPE.to_owned();
                vec![id, ("client_assertion_type", kind), ("client_assertion", assertion)]
            }
            (
                ClientAuthMethod::Basic
                | ClientAuthMethod::Post
                | ClientAuthMethod::PrivateKeyJwt
                | ClientAuthMethod::None,
                ..,
            ) => vec![id],
        })
    }

    /// Returns the user name and password for HTTP Basic: the client id and secret, each form-encoded (RFC 6749,
    /// section 2.3.1).
    pub(super) fn basic(&self) -> Option<(String, String)> {
        let escaped = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        match (self.proof, &self.secret) {
            (ClientAuthMethod::Basic, Some(secret)) => {
                Some((escaped(&self.id), escaped(secret.expose_secret())))
            }
            (
                ClientAuthMethod::Basic
                | ClientAuthMethod::Post
                | ClientAuthMethod::PrivateKeyJwt
                | ClientAuthMethod::None,
                _,
            ) => None,
        }
    }
}
