//! The identity of this client at an authorization server, and its authentication method.

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::Url;

use super::authorizer::OauthConfig;
use super::discovery::AuthorizationServer;
use super::error::AuthError;

/// Client credentials that the operator got from the authorization server.
#[derive(Clone)]
pub struct KnownClient {
    pub id: String,
    pub secret: Option<SecretString>,
}

impl std::fmt::Debug for KnownClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownClient").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A client and its authentication method. It is valid for one issuer only.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<SecretString>,
    pub(super) proof: Proof,
    /// The redirect URI it was registered with; `None` for a client that was not registered dynamically.
    pub(super) redirect: Option<String>,
}

/// The client authentication method at the token endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    Basic,
    Post,
    None,
}

impl Proof {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Basic => "client_secret_basic",
            Self::Post => "client_secret_post",
            Self::None => "none",
        }
    }

    pub(super) fn of_word(word: &str) -> Option<Self> {
        [Self::Basic, Self::Post, Self::None].into_iter().find(|proof| proof.word() == word)
    }

    /// Returns the first preferred method that the server supports, else `Basic`, which RFC 8414 makes the default.
    fn among(preferred: &[Self], taken: &[String]) -> Self {
        let taken = |proof: &&Self| taken.iter().any(|word| word == proof.word());
        preferred.iter().find(taken).copied().unwrap_or(Self::Basic)
    }
}

/// The way to get a client identity.
pub(super) enum Introduction {
    Known(Client),
    /// Register dynamically at this endpoint.
    Register(Url),
}

/// Chooses the client identity: the operator's credentials first, then the client metadata URL, then dynamic
/// registration.
pub(super) fn introduction(
    oauth: &OauthConfig,
    issuer: &AuthorizationServer,
) -> Result<Introduction, AuthError> {
    let methods = &issuer.token_endpoint_auth_methods_supported;
    if let Some(known) = &oauth.client {
        let proof = match &known.secret {
            Some(_) => Proof::among(&[Proof::Basic, Proof::Post], methods),
            None => Proof::None,
        };
        let client = Client { id: known.id.clone(), secret: known.secret.clone(), proof, redirect: None };
        return Ok(Introduction::Known(client));
    }
    match (&oauth.client_metadata_url, &issuer.registration_endpoint) {
        (Some(url), _) if issuer.client_id_metadata_document_supported => {
            let client = Client { id: url.to_string(), secret: None, proof: Proof::None, redirect: None };
            Ok(Introduction::Known(client))
        }
        (_, Some(endpoint)) => Ok(Introduction::Register(endpoint.clone())),
        (_, None) => Err(AuthError::refused(
            "its authorization server registers nobody by itself; get a client id there and set `oauth.clientId`",
        )),
    }
}

/// Builds the body of a dynamic registration request.
pub(super) fn registration(redirect: &str, issuer: &AuthorizationServer) -> Value {
    let preferred = [Proof::None, Proof::Basic, Proof::Post];
    json!({
        "client_name": "haft",
        "application_type": "native",
        "redirect_uris": [redirect],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method":
            Proof::among(&preferred, &issuer.token_endpoint_auth_methods_supported).word(),
    })
}

/// Reads the client from the response to a registration.
pub(super) fn registered(
    answer: &Value,
    redirect: &str,
    issuer: &AuthorizationServer,
) -> Result<Client, AuthError> {
    let text = |name: &str| answer[name].as_str().filter(|text| !text.is_empty());
    let id = text("client_id")
        .ok_or_else(|| AuthError::refused("its authorization server registered us without a client id"))?;
    let secret = text("client_secret").map(SecretString::from);
    let told = text("token_endpoint_auth_method").and_then(Proof::of_word);
    let proof = match (&secret, told) {
        (None, _) => Proof::None,
        (Some(_), Some(told)) => told,
        (Some(_), None) => Proof::among(
            &[Proof::Basic, Proof::Post, Proof::None],
            &issuer.token_endpoint_auth_methods_supported,
        ),
    };
    Ok(Client { id: id.to_owned(), secret, proof, redirect: Some(redirect.to_owned()) })
}

impl Client {
    /// Returns the form fields that identify the client, to be sent beside the grant.
    pub(super) fn form(&self) -> Vec<(&'static str, String)> {
        let id = ("client_id", self.id.clone());
        match (self.proof, &self.secret) {
            (Proof::Basic, Some(_)) => Vec::new(),
            (Proof::Post, Some(secret)) => vec![id, ("client_secret", secret.expose_secret().to_owned())],
            (Proof::Basic | Proof::Post | Proof::None, _) => vec![id],
        }
    }

    /// Returns the user name and password for HTTP Basic: the client id and secret, each form-encoded (RFC 6749,
    /// section 2.3.1).
    pub(super) fn basic(&self) -> Option<(String, String)> {
        let escaped = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        match (self.proof, &self.secret) {
            (Proof::Basic, Some(secret)) => Some((escaped(&self.id), escaped(secret.expose_secret()))),
            (Proof::Basic | Proof::Post | Proof::None, _) => None,
        }
    }
}
