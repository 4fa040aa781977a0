//! Access tokens (JWT) of other issuers, as a second way to log in beside API keys.
//!
//! `jws` checks signatures, `claims` decides who a token speaks for, and `issuer_keys` gets the public keys of an issuer. A
//! token whose keys cannot be had is refused.

mod claims;
mod issuer_keys;
mod jwks;
mod jws;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use haft_config::resolved::{ServeSettings, TokenIssuerSettings};

use self::claims::TokenCheck;
pub(crate) use self::claims::{CREDENTIAL_PREFIX, TokenSubject};
use self::issuer_keys::{IssuerKeys, KeysUnavailable};
use self::jws::SignedToken;
use crate::metrics::Metrics;
use crate::protected_resource::ProtectedResource;

/// The longest token that is read. The largest ones in use, with the groups of a user, have about 8,000 bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The reason why a token does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// The token is wrong.
    Invalid(String),
    /// The keys of its issuer cannot be had, so that nothing can be said about the token.
    KeysUnavailable { retry_after_s: u64 },
}

impl TokenError {
    fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

/// The issuers whose tokens count. A new configuration replaces them.
#[derive(Debug)]
pub(crate) struct AccessTokens {
    metrics: Metrics,
    trusted: RwLock<Arc<TrustedIssuers>>,
}

#[derive(Debug, Default)]
struct TrustedIssuers {
    settings: ServeSettings,
    /// By the issuer's name.
    keys: BTreeMap<String, Arc<IssuerKeys>>,
}

impl AccessTokens {
    pub(crate) fn new(settings: ServeSettings, metrics: Metrics) -> Self {
        let tokens = Self { metrics, trusted: RwLock::default() };
        tokens.replace(settings);
        tokens
    }

    /// Uses other settings from now on. Issuers that stay keep their keys.
    pub(crate) fn replace(&self, settings: ServeSettings) {
        let before = self.trusted();
        let keys = settings.issuers.iter().map(|issuer| {
            let known = before.keys.get(&issuer.issuer).filter(|keys| keys.is_for(issuer));
            let new = || Arc::new(IssuerKeys::new(issuer, self.metrics.clone()));
            (issuer.issuer.clone(), known.map_or_else(new, Arc::clone))
        });
        let trusted = Arc::new(TrustedIssuers { keys: keys.collect(), settings });
        *self.trusted.write().unwrap_or_else(PoisonError::into_inner) = trusted;
    }

    /// Reads the settings in use.
    pub(crate) fn with_settings<T>(&self, read: impl FnOnce(&ServeSettings) -> T) -> T {
        read(&self.trusted().settings)
    }

    /// Tests if a credential is meant as an access token. API keys have no dots.
    pub(crate) fn reads(&self, credential: &str) -> bool {
        !self.trusted().keys.is_empty() && credential.split('.').count() == 3
    }

    /// Returns the subject that a token speaks for. Its audience is a configured one, or the URL of the resource.
    pub(crate) async fn subject(
        &self,
        token: &str,
        resource: ProtectedResource,
        now_ms: u64,
    ) -> Result<TokenSubject, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::invalid(format!(
                "the access token has more than {TOKEN_BYTES_MAX} bytes"
            )));
        }
        let token = SignedToken::parse(token)?;
        let trusted = self.trusted();
        let (settings, keys) = trusted.issuer(&token)?;
        let found = keys.for_token(&token).await.map_err(|KeysUnavailable { retry_after }| {
            TokenError::KeysUnavailable { retry_after_s: retry_after.as_secs() + 1 }
        })?;
        let claims = token.verify(&found)?;
        let resource = resource.url(&trusted.settings);
        TokenCheck { issuer: settings, resource: resource.as_deref(), now_s: now_ms / 1000 }.subject(claims)
    }

    fn trusted(&self) -> Arc<TrustedIssuers> {
        Arc::clone(&self.trusted.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl TrustedIssuers {
    /// Finds the issuer that a token names. The name proves nothing before the signature is checked with its keys.
    fn issuer(
        &self,
        token: &SignedToken<'_>,
    ) -> Result<(&TokenIssuerSettings, &Arc<IssuerKeys>), TokenError> {
        let name = token.claimed_issuer();
        let settings = self.settings.issuers.iter().find(|issuer| Some(issuer.issuer.as_str()) == name);
        let keys = settings.and_then(|issuer| self.keys.get(&issuer.issuer));
        let unknown =
            || TokenError::invalid("this server does not accept tokens of the issuer of this token");
        settings.zip(keys).ok_or_else(unknown)
    }
}
