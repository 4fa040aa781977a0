//! What an authorization server knows us as.

use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::Url;

use super::authorizer::OauthConfig;
use super::discovery::AuthorizationServer;
use super::error::AuthError;

/// Credentials that the operator got from the authorization server.
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

/// A client and how it proves itself. It belongs to one issuer.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) id: String,
    pub(super) secret: Option<SecretString>,
    pub(super) proof: Proof,
    /// The address it was registered with, where that matters.
    pub(super) redirect: Option<String>,
}

/// How a client proves itself where tokens are given.
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

    /// The first that the server takes; one that says nothing takes `Basic`.
    fn among(preferred: &[Self], taken: &[String]) -> Self {
        let taken = |proof: &&Self| taken.iter().any(|word| word == proof.word());
        preferred.iter().find(taken).copied().unwrap_or(Self::Basic)
    }
}

/// How we come to be known.
pub(super) enum Introduction {
    Known(Client),
    /// At this address we are registered.
    Register(Url),
}

/// First what the operator has, then the address of our own description, then registration.
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

/// What we say about ourselves when we register.
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

/// The client that came of it.
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
    /// What stands in the form beside the grant.
    pub(super) fn form(&self) -> Vec<(&'static str, String)> {
        let id = ("client_id", self.id.clone());
        match (self.proof, &self.secret) {
            (Proof::Basic, Some(_)) => Vec::new(),
            (Proof::Post, Some(secret)) => vec![id, ("client_secret", secret.expose_secret().to_owned())],
            (Proof::Basic | Proof::Post | Proof::None, _) => vec![id],
        }
    }

    /// What stands in the header: the two words, each escaped as in a form.
    pub(super) fn basic(&self) -> Option<(String, String)> {
        let escaped = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        match (self.proof, &self.secret) {
            (Proof::Basic, Some(secret)) => Some((escaped(&self.id), escaped(secret.expose_secret()))),
            (Proof::Basic | Proof::Post | Proof::None, _) => None,
        }
    }
}
