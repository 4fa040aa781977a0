//! Supplies the access token for requests to one server, and renews a token that the server rejects. All concurrent
//! requests share one renewal.

use std::path::PathBuf;
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client as Http, Request, Response};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use url::Url;

use super::assertion;
use super::authorization_code::{AuthorizationParams, AuthorizationRequest};
use super::challenge::Challenge;
use super::client::{self, ClientIdentitySource, OauthClient, PreregisteredClient};
use super::discovery::{self, OauthDiscovery};
use super::dpop::{self, DpopKey, ProofTarget};
use super::endpoint_requests::{self, OauthTokenResponse, TOKEN_TYPE_DPOP, TokenRequest, TokenRequestError};
use super::error::{AuthError, LOGIN_NEEDED};
use super::private_target::ServerNetwork;
use super::scope::ScopeSources;
use super::store::{OauthToken, TokenFile, TokenFileLock};

/// The time before expiry at which a token is renewed, so that it does not expire in transit.
const EARLY: Duration = Duration::from_secs(30);

/// The OAuth settings of the operator for one server.
#[derive(Debug, Clone, Default)]
pub struct OauthConfig {
    pub client: Option<PreregisteredClient>,
    /// The only authorization server that haft may use. `None` if the operator names no authorization server.
    pub issuer: Option<String>,
    /// The URL of this client's metadata document, for authorization servers that support such documents.
    pub client_metadata_url: Option<Url>,
    pub scopes: Vec<String>,
    pub grant: OauthGrantConfig,
}

/// The OAuth grant with which haft requests tokens, and the data that this grant needs.
#[derive(Debug, Clone, Default)]
pub enum OauthGrantConfig {
    /// The authorization code grant: a person logs in.
    #[default]
    Person,
    /// The client credentials grant: the client authenticates itself.
    ClientCredentials,
    /// The JWT bearer grant (RFC 7523): a token in this file proves the identity of the workload. The platform that
    /// runs the workload renews the file.
    JwtBearer { assertion: PathBuf },
    /// Enterprise-managed authorization: the identity provider exchanges the ID token in this file for a grant that the
    /// authorization server accepts.
    Enterprise { id_token: PathBuf, provider: IdentityProvider },
}

/// The identity provider of an organization.
#[derive(Debug, Clone)]
pub struct IdentityProvider {
    pub issuer: String,
    pub client: PreregisteredClient,
}

/// An OAuth access token, and the key that it is bound to.
#[derive(Clone)]
pub(in crate::mcp) struct AccessToken {
    secret: SecretString,
    dpop: Option<DpopKey>,
}

impl AccessToken {
    fn of(token: &OauthToken) -> Self {
        Self { secret: token.access.clone(), dpop: token.dpop.clone() }
    }
}

/// Asks the user for consent. The user interface implements this trait: it opens a browser, or prints a URL to copy.
pub trait OauthConsent: Send + Sync {
    /// Returns the redirect URI for the authorization request.
    fn redirect_uri(&self) -> String;

    /// Sends the user to the authorization URL, and returns the URL that the browser was redirected to.
    fn ask<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Url, String>>;
}

/// The OAuth client for one server.
pub struct Authorizer {
    /// The server's name as the operator wrote it, for debug output.
    name: String,
    server: Url,
    oauth: OauthConfig,
    file: TokenFile,
    /// `None` when haft cannot ask a user; the error then states that a user must log in.
    consent: Option<Arc<dyn OauthConsent>>,
    http: Http,
    network: ServerNetwork,
    /// The cached token. The lock is held during a renewal, so that concurrent callers wait for the new token and use
    /// it.
    cached_token: Mutex<Option<OauthToken>>,
    /// The `DPoP` nonce that the server sent last. The next proof contains it.
    nonce: StdMutex<Option<String>>,
}

impl Authorizer {
    pub fn new(
        name: &str,
        server: &Url,
        oauth: OauthConfig,
        file: TokenFile,
        consent: Option<Arc<dyn OauthConsent>>,
    ) -> Result<Self, AuthError> {
        let network = ServerNetwork::of(server);
        Ok(Self {
            name: name.to_owned(),
            server: server.clone(),
            oauth,
            file,
            consent,
            http: endpoint_requests::http(server, &network)?,
            network,
            cached_token: Mutex::new(None),
            nonce: StdMutex::new(None),
        })
    }

    /// Adds the token to a request, and a new `DPoP` proof if the token is bound to a key. Returns the nonce of the
    /// proof.
    pub(in crate::mcp) fn authorize(
        &self,
        request: &mut Request,
        token: &AccessToken,
    ) -> Result<Option<String>, AuthError> {
        let AccessToken { secret, dpop } = token;
        let header = |text: String| {
            let mut value = HeaderValue::from_str(&text).map_err(|_| {
                AuthError::refused("the access token has characters that are not valid in an HTTP header")
            })?;
            value.set_sensitive(true);
            Ok::<_, AuthError>(value)
        };
        let Some(key) = dpop else {
            let bearer = header(format!("Bearer {}", secret.expose_secret()))?;
            request.headers_mut().insert(AUTHORIZATION, bearer);
            return Ok(None);
        };
        let nonce = self.nonce.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let method = request.method().as_str();
        let target = ProofTarget { method, url: request.url(), nonce: nonce.as_deref(), token: Some(secret) };
        let proof = header(key.proof(target, now()).map_err(AuthError::Refused)?)?;
        request.headers_mut().insert(AUTHORIZATION, header(format!("DPoP {}", secret.expose_secret()))?);
        request.headers_mut().insert(dpop::PROOF_HEADER, proof);
        Ok(nonce)
    }

    /// Stores the `DPoP` nonce of a response. Returns true if the caller should repeat the request: the server demands
    /// a nonce, and the new one differs from `sent`, the nonce of the rejected proof. The stored nonce cannot serve for
    /// this comparison, because a concurrent request may have replaced it already.
    pub(in crate::mcp) fn keep_nonce(
        &self,
        headers: &HeaderMap,
        challenge: Option<&Challenge>,
        sent: Option<&str>,
    ) -> bool {
        let Some(new) = dpop::nonce(headers) else { return false };
        let is_demanded =
            challenge.is_some_and(|challenge| challenge.error.as_deref() == Some(dpop::NONCE_REQUIRED));
        let is_new = sent != Some(&new);
        *self.nonce.lock().unwrap_or_else(PoisonError::into_inner) = Some(new);
        is_demanded && is_new
    }

    /// Returns the access token to send, if there is one. If the token is about to expire, renews it first.
    pub(in crate::mcp) async fn access_token(&self) -> Result<Option<AccessToken>, AuthError> {
        let token = {
            let mut cached_token = self.cached_token.lock().await;
            if cached_token.is_none() {
                *cached_token = self.file.load().await?;
            }
            cached_token.clone()
        };
        let Some(token) = token else { return Ok(None) };
        if ends_soon(&token, now()) && token.refresh.is_some() {
            return match self.renew(Some(&AccessToken::of(&token)), &Challenge::default()).await {
                Ok(()) => Ok(self.cached_token.lock().await.as_ref().map(AccessToken::of)),
                // haft renews a token before it expires, so the old token is still valid. Use the old token while the
                // issuer cannot be reached.
                Err(AuthError::Unreachable(_)) if !has_ended(&token, now()) => {
                    Ok(Some(AccessToken::of(&token)))
                }
                Err(error) => Err(error),
            };
        }
        Ok(Some(AccessToken::of(&token)))
    }

    /// Replaces a token that the server rejected. Returns at once if another task or process has replaced it already.
    pub(in crate::mcp) async fn renew(
        &self,
        refused: Option<&AccessToken>,
        challenge: &Challenge,
    ) -> Result<(), AuthError> {
        let refused = refused.map(|token| &token.secret);
        let mut cached_token = self.cached_token.lock().await;
        if differs_from_rejected(cached_token.as_ref(), refused) {
            return Ok(());
        }
        let locked = self.file.lock().await?;
        let stored = locked.load().await?;
        if differs_from_rejected(stored.as_ref(), refused) {
            *cached_token = stored;
            return Ok(());
        }
        *cached_token = Some(self.obtain(locked, stored, challenge).await?);
        Ok(())
    }

    /// Logs in, even if there is a token already.
    pub async fn login(&self) -> Result<(), AuthError> {
        let mut cached_token = self.cached_token.lock().await;
        let demand = self.trigger_unauthorized().await?;
        let challenge = demand.clone().unwrap_or_default();
        let found = match (self.discover(&challenge).await, demand) {
            (Err(AuthError::Refused(_)), None) => {
                return Err(AuthError::NotNeeded);
            }
            (found, _) => found?,
        };
        // Ignore an unreadable stored token, because the login replaces it.
        let before = self.file.load().await.unwrap_or_default();
        *cached_token = Some(match self.oauth.grant {
            OauthGrantConfig::Person => self.ask(&found, before.as_ref(), &challenge).await?,
            OauthGrantConfig::ClientCredentials
            | OauthGrantConfig::JwtBearer { .. }
            | OauthGrantConfig::Enterprise { .. } => {
                self.grant_without_person(&self.file.lock().await?, &found, &challenge).await?
            }
        });
        Ok(())
    }

    /// Deletes the stored token; returns whether a token was stored.
    pub async fn forget(&self) -> Result<bool, AuthError> {
        self.file.forget().await
    }

    /// Finds the authorization server. If the operator sets `oauth.issuer`, refuses every other authorization server,
    /// because it would receive the client secret.
    async fn discover(&self, challenge: &Challenge) -> Result<OauthDiscovery, AuthError> {
        self.learn_network(challenge).await?;
        let found = discovery::discover(&self.http, &self.server, challenge).await?;
        let required = self.oauth.issuer.as_deref().map(|issuer| issuer.trim_end_matches('/'));
        if required.is_some_and(|required| required != found.issuer.issuer.trim_end_matches('/')) {
            return Err(AuthError::refused(
                "the MCP server names an authorization server other than `oauth.issuer`, so haft refuses it",
            ));
        }
        Ok(found)
    }

    /// Determines whether the MCP server is in a private network. If it is, its authorization server may be in a
    /// private network too.
    async fn learn_network(&self, challenge: &Challenge) -> Result<(), AuthError> {
        if self.network.is_known() {
            return Ok(());
        }
        let from = match challenge.from {
            Some(from) => Some(from),
            None => self.request_without_token().await?.remote_addr().map(|address| address.ip()),
        };
        if let Some(from) = from {
            self.network.learn(from);
        }
        Ok(())
    }

    /// Sends a request without a token, and returns the server's challenge; `None` when the server does not require a
    /// token.
    async fn trigger_unauthorized(&self) -> Result<Option<Challenge>, AuthError> {
        Ok(Challenge::of(&self.request_without_token().await?))
    }

    async fn request_without_token(&self) -> Result<Response, AuthError> {
        let body = r#"{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{}}"#;
        let request = self
            .http
            .post(self.server.clone())
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .body(body);
        let sent = request.send().await;
        sent.map_err(|_| AuthError::Unreachable("the server cannot be reached; try again later".into()))
    }

    async fn obtain(
        &self,
        locked: TokenFileLock<'_>,
        stored: Option<OauthToken>,
        challenge: &Challenge,
    ) -> Result<OauthToken, AuthError> {
        let found = self.discover(challenge).await?;
        // Never send a token to an issuer that did not issue it, and do not reuse a client registration at another
        // issuer.
        let stored = stored.filter(|token| token.issuer == found.issuer.issuer);
        if let Some(token) = stored.as_ref().filter(|_| !challenge.needs_more_scopes())
            && let Some(renewed) = self.refresh(&locked, token).await?
        {
            return Ok(renewed);
        }
        match self.oauth.grant {
            OauthGrantConfig::ClientCredentials
            | OauthGrantConfig::JwtBearer { .. }
            | OauthGrantConfig::Enterprise { .. } => {
                self.grant_without_person(&locked, &found, challenge).await
            }
            OauthGrantConfig::Person => {
                // A login can take minutes. Release the file lock during the login, so that other processes do not time
                // out on it.
                drop(locked);
                self.ask(&found, stored.as_ref(), challenge).await
            }
        }
    }

    /// Exchanges the refresh token for a new access token. Returns `None` when there is no refresh token, or when the
    /// authorization server no longer accepts it.
    async fn refresh(
        &self,
        locked: &TokenFileLock<'_>,
        token: &OauthToken,
    ) -> Result<Option<OauthToken>, AuthError> {
        let Some(refresh) = &token.refresh else { return Ok(None) };
        let form = [
            ("grant_type", "refresh_token".to_owned()),
            ("refresh_token", refresh.expose_secret().to_owned()),
            ("resource", token.resource.clone()),
        ];
        // The key of the client comes from the configuration; the stored token does not contain it.
        let key = self.oauth.client.as_ref().and_then(|known| known.key.clone());
        let client = OauthClient { key, ..token.client.clone() };
        let request = TokenRequest {
            endpoint: &token.endpoint,
            issuer: &token.issuer,
            client: &client,
            grant: &form,
            dpop: token.dpop.as_ref(),
        };
        match endpoint_requests::token(&self.http, &request).await {
            Ok(given) => {
                let mut renewed = fresh(token.clone(), given, now());
                // The response has no refresh token when the server keeps the old one valid.
                renewed.refresh = renewed.refresh.or_else(|| token.refresh.clone());
                locked.save(&renewed).await?;
                Ok(Some(renewed))
            }
            Err(TokenRequestError::InvalidGrant) => {
                // Remove the refresh token that the server rejected, so that haft does not try it again. The client
                // registration stays usable.
                locked.save(&OauthToken { refresh: None, ..token.clone() }).await?;
                Ok(None)
            }
            Err(error @ (TokenRequestError::NonceRequired(_) | TokenRequestError::Other(_))) => {
                Err(not_given(error))
            }
        }
    }

    /// Gets a token without a user: the client, its platform or its organization proves its own identity.
    async fn grant_without_person(
        &self,
        locked: &TokenFileLock<'_>,
        found: &OauthDiscovery,
        challenge: &Challenge,
    ) -> Result<OauthToken, AuthError> {
        let ClientIdentitySource::Known(client) = client::choose_client_identity(&self.oauth, &found.issuer)?
        else {
            return Err(AuthError::refused("the configured `oauth.grant` needs `oauth.clientId`"));
        };
        let scopes = self.scopes(found, None, challenge);
        let mut form = self.grant_form(found, &scopes).await?;
        form.push(("resource", found.resource.clone()));
        if !scopes.is_empty() {
            form.push(("scope", scopes.join(" ")));
        }
        let token = self.redeem(found, client, scopes, &form).await?;
        locked.save(&token).await?;
        Ok(token)
    }

    /// Returns the form fields of the configured grant.
    async fn grant_form(
        &self,
        found: &OauthDiscovery,
        scopes: &[String],
    ) -> Result<Vec<(&'static str, String)>, AuthError> {
        let bearer = |assertion: SecretString| {
            vec![
                ("grant_type", assertion::JWT_BEARER.to_owned()),
                ("assertion", assertion.expose_secret().to_owned()),
            ]
        };
        match &self.oauth.grant {
            OauthGrantConfig::ClientCredentials => Ok(vec![("grant_type", "client_credentials".to_owned())]),
            OauthGrantConfig::JwtBearer { assertion: file } => assertion::of_file(file).await.map(bearer),
            OauthGrantConfig::Enterprise { id_token, provider } => {
                let id_token = assertion::of_file(id_token).await?;
                self.exchange_id_token(&id_token, provider, found, scopes).await.map(bearer)
            }
            OauthGrantConfig::Person => Err(AuthError::PersonNeeded(LOGIN_NEEDED.into())),
        }
    }

    /// Exchanges an ID token at the identity provider for a grant that is valid only at this authorization server and
    /// only for this MCP server. The identity provider may be in a private network even if the MCP server is public,
    /// because the operator configured its address. Therefore these requests use an HTTP client that depends on the
    /// network of the identity provider, not on the network of the MCP server.
    async fn exchange_id_token(
        &self,
        id_token: &SecretString,
        provider: &IdentityProvider,
        found: &OauthDiscovery,
        scopes: &[String],
    ) -> Result<SecretString, AuthError> {
        let address = Url::parse(&provider.issuer)
            .map_err(|_| AuthError::refused("`oauth.identityProvider.issuer` is not a URL"))?;
        let http = endpoint_requests::http(&address, &ServerNetwork::of(&address))?;
        let issuer = discovery::authorization_server(&http, &address, &provider.issuer).await?;
        let mut form = vec![
            ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange".to_owned()),
            ("requested_token_type", endpoint_requests::TOKEN_TYPE_ID_JAG.to_owned()),
            ("subject_token", id_token.expose_secret().to_owned()),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:id_token".to_owned()),
            ("audience", found.issuer.issuer.clone()),
            ("resource", found.resource.clone()),
        ];
        if !scopes.is_empty() {
            form.push(("scope", scopes.join(" ")));
        }
        let client = client::of_operator(&provider.client, &issuer);
        let request = TokenRequest {
            endpoint: &issuer.token_endpoint,
            issuer: &issuer.issuer,
            client: &client,
            grant: &form,
            dpop: None,
        };
        endpoint_requests::exchange(&http, &request).await.map_err(|error| match error {
            TokenRequestError::InvalidGrant => {
                AuthError::refused("the identity provider rejected the ID token in `oauth.assertionFile`")
            }
            TokenRequestError::NonceRequired(_) | TokenRequestError::Other(_) => not_given(error),
        })
    }

    /// Redeems a grant for a token. The token is bound to a new key if the server supports that.
    async fn redeem(
        &self,
        found: &OauthDiscovery,
        client: OauthClient,
        scopes: Vec<String>,
        form: &[(&str, String)],
    ) -> Result<OauthToken, AuthError> {
        let dpop = found.binds_tokens.then(DpopKey::generate).transpose().map_err(AuthError::Refused)?;
        let request = TokenRequest {
            endpoint: &found.issuer.token_endpoint,
            issuer: &found.issuer.issuer,
            client: &client,
            grant: form,
            dpop: dpop.as_ref(),
        };
        let given = endpoint_requests::token(&self.http, &request).await.map_err(not_given)?;
        let token = OauthToken { dpop, ..token_without_secrets(found, client, scopes) };
        Ok(fresh(token, given, now()))
    }

    /// Runs the authorization code flow with the user, or returns `PersonNeeded` when no user can be asked.
    async fn ask(
        &self,
        found: &OauthDiscovery,
        before: Option<&OauthToken>,
        challenge: &Challenge,
    ) -> Result<OauthToken, AuthError> {
        let Some(consent) = &self.consent else {
            self.store_demanded_scopes(found, before, challenge).await?;
            return Err(login_required_error(challenge));
        };
        let redirect = consent.redirect_uri();
        let client = self.client_for_issuer(found, before, &redirect).await?;
        let scopes = self.scopes(found, before, challenge);
        let subject = AuthorizationParams {
            client: &client,
            redirect: &redirect,
            resource: &found.resource,
            scopes: &scopes,
        };
        let question = AuthorizationRequest::new(&found.issuer, &subject)?;
        let answer = consent.ask(&question.url).await.map_err(AuthError::Refused)?;
        let form = [
            ("grant_type", "authorization_code".to_owned()),
            ("code", question.code(&found.issuer, &answer)?),
            ("redirect_uri", question.redirect),
            ("code_verifier", question.verifier),
            ("resource", found.resource.clone()),
        ];
        let token = self.redeem(found, client, scopes, &form).await?;
        self.file.lock().await?.save(&token).await?;
        Ok(token)
    }

    /// Returns the client for this issuer: the configured client, a client that was registered earlier with the same
    /// redirect URI, or a newly registered client.
    async fn client_for_issuer(
        &self,
        found: &OauthDiscovery,
        before: Option<&OauthToken>,
        redirect: &str,
    ) -> Result<OauthClient, AuthError> {
        let endpoint = match client::choose_client_identity(&self.oauth, &found.issuer)? {
            ClientIdentitySource::Known(client) => return Ok(client),
            ClientIdentitySource::Register(endpoint) => endpoint,
        };
        let same = |token: &&OauthToken| {
            token.issuer == found.issuer.issuer && token.client.redirect.as_deref() == Some(redirect)
        };
        if let Some(token) = before.filter(same) {
            return Ok(token.client.clone());
        }
        let body = client::registration(redirect, &found.issuer);
        let answer = endpoint_requests::register(&self.http, endpoint, &body).await?;
        client::registered(&answer, redirect, &found.issuer)
    }

    fn scopes(
        &self,
        found: &OauthDiscovery,
        before: Option<&OauthToken>,
        challenge: &Challenge,
    ) -> Vec<String> {
        let sources = ScopeSources {
            challenge: Some(challenge),
            before: before.map(|token| token.scopes.as_slice()).unwrap_or_default(),
            operator: &self.oauth.scopes,
            resource: &found.scopes,
            issuer: &found.issuer.scopes_supported,
        };
        sources.scopes()
    }

    /// Stores the scopes that the server demanded, in addition to the earlier ones, so that the next login requests
    /// them all.
    async fn store_demanded_scopes(
        &self,
        found: &OauthDiscovery,
        before: Option<&OauthToken>,
        challenge: &Challenge,
    ) -> Result<(), AuthError> {
        let Some(before) = before.filter(|_| challenge.needs_more_scopes()) else { return Ok(()) };
        let locked = self.file.lock().await?;
        match locked.load().await? {
            // Another process may have logged in meanwhile; keep its newer token.
            Some(stored) if !differs_from_rejected(Some(&stored), Some(&before.access)) => {
                let updated = OauthToken { scopes: self.scopes(found, Some(before), challenge), ..stored };
                locked.save(&updated).await
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorizer").field("name", &self.name).finish_non_exhaustive()
    }
}

fn login_required_error(challenge: &Challenge) -> AuthError {
    let why = if challenge.needs_more_scopes() {
        "the MCP server requires OAuth scopes that the token does not have"
    } else {
        "the server requires a login"
    };
    AuthError::PersonNeeded(format!("{why}; {LOGIN_NEEDED}"))
}

/// Builds a token for this issuer without its secrets; `fresh` then sets the secrets.
fn token_without_secrets(found: &OauthDiscovery, client: OauthClient, scopes: Vec<String>) -> OauthToken {
    OauthToken {
        issuer: found.issuer.issuer.clone(),
        endpoint: found.issuer.token_endpoint.clone(),
        resource: found.resource.clone(),
        client,
        access: SecretString::default(),
        refresh: None,
        expires_at: None,
        scopes,
        dpop: None,
    }
}

fn not_given(why: TokenRequestError) -> AuthError {
    match why {
        TokenRequestError::InvalidGrant => {
            AuthError::refused("the authorization server rejected the grant; start the login again")
        }
        TokenRequestError::NonceRequired(_) => {
            AuthError::refused("the authorization server rejects the DPoP nonces that it issued itself")
        }
        TokenRequestError::Other(error) => error,
    }
}

fn fresh(token: OauthToken, given: OauthTokenResponse, now: u64) -> OauthToken {
    let OauthTokenResponse { access_token, token_type, expires_in, refresh_token } = given;
    OauthToken {
        // An authorization server may return a bearer token although the client sent a DPoP proof. Drop the key then,
        // because the token is not bound to it.
        dpop: token.dpop.filter(|_| token_type.eq_ignore_ascii_case(TOKEN_TYPE_DPOP)),
        access: access_token,
        refresh: refresh_token,
        expires_at: expires_in.map(|seconds| now.saturating_add(whole_seconds(seconds))),
        ..token
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast from a float to an integer saturates"
)]
fn whole_seconds(seconds: f64) -> u64 {
    seconds as u64
}

fn ends_soon(token: &OauthToken, now: u64) -> bool {
    token.expires_at.is_some_and(|end| end <= now.saturating_add(EARLY.as_secs()))
}

fn has_ended(token: &OauthToken, now: u64) -> bool {
    token.expires_at.is_some_and(|end| end <= now)
}

/// Returns whether there is a token other than the rejected one.
fn differs_from_rejected(token: Option<&OauthToken>, refused: Option<&SecretString>) -> bool {
    let secret = |secret: &SecretString| secret.expose_secret().to_owned();
    token.is_some_and(|token| Some(secret(&token.access)) != refused.map(secret))
}

/// Returns the seconds since the Unix epoch.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
