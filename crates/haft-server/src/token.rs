//! Access tokens (JWT) from other issuers, as a second way to log in, in addition to API keys.
//!
//! `jws` checks signatures, `claims` determines the principal and the permissions of a token, and `issuer_keys` fetches
//! the public keys of an issuer. If the keys of its issuer are not available, a token is refused.

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

/// The maximum size of a token, in bytes. The largest tokens in use, which list the user's groups, have about 8,000
/// bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// The reason why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// The token is invalid.
    Invalid(String),
    /// The keys of the issuer are not available, so the token cannot be checked.
    KeysUnavailable { retry_after_s: u64 },
}

impl TokenError {
    fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

/// The issuers whose access tokens the server accepts. A configuration reload replaces them.
#[derive(Debug)]
pub(crate) struct AccessTokens {
    metrics: Metrics,
    trusted: RwLock<Arc<TrustedIssuers>>,
}

#[derive(Debug, Default)]
struct TrustedIssuers {
    settings: ServeSettings,
    /// The issuer keys, by issuer name.
    keys: BTreeMap<String, Arc<IssuerKeys>>,
}

impl AccessTokens {
    pub(crate) fn new(settings: ServeSettings, metrics: Metrics) -> Self {
        let tokens = Self { metrics, trusted: RwLock::default() };
        tokens.replace(settings);
        tokens
    }

    /// Replaces the settings. Issuers that are still configured keep their keys.
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

    /// Returns true if a credential has the form of an access token. An API key does not, because it contains no dots.
    pub(crate) fn reads(&self, credential: &str) -> bool {
        !self.trusted().keys.is_empty() && credential.split('.').count() == 3
    }

    /// Returns the subject of a token. The audience of the token must be a configured audience or the URL of the
    /// resource.
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
    /// Returns the configured issuer that a token names. The name is not trusted until the signature is checked.
    fn issuer(
        &self,
        token: &SignedToken<'_>,
    ) -> Result<(&TokenIssuerSettings, &Arc<IssuerKeys>), TokenError> {
        let name = token.claimed_issuer();
        let settings = self.settings.issuers.iter().find(|issuer| Some(issuer.issuer.as_str()) == name);
        let keys = settings.and_then(|issuer| self.keys.get(&issuer.issuer));
        let unknown =
            || TokenError::invalid("this server does not accept tokens from the issuer of this access token");
        settings.zip(keys).ok_or_else(unknown)
    }
}
