//! Sends requests to one provider: encodes a request, sends it, retries until a reply starts, and passes the reply on.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{AttemptFollowUp, ModelAttempt, ModelContext, ModelProvider, ReplyStream};
use haft_core::model_reply::ReplyNote;
use haft_core::model_request::ModelRequest;
use reqwest::Url;
use tokio::time::Instant;

use super::client::{CertificateAuthorities, ModelHttpClient};
use super::client_pool::ClientPool;
use super::endpoint::{Endpoint, EndpointRequest};
use super::model_list::{self, ListedModel};
use super::reply_reader::{self, HttpReplyReader};
use super::retry;
use crate::attempt::RunningAttempt;
use crate::bounded_json::REPLY_BYTES_MAX;
use crate::capability::{self, FittedRequest};
use crate::conversation_cache::ConversationCache;
use crate::encode_memo::EncodeMemo;
use crate::prices::Prices;
use crate::tool_blocks::ToolBlocks;
use crate::unsupported_features::RequestFeature;
use crate::wire::{DecodeContext, WireFormat};
use haft_core::settings::models::ReplyDelivery;
use haft_core::settings::models::{ModelTimeouts, RetryPolicy};

/// The settings of an HTTP provider.
#[derive(Debug)]
pub struct HttpSettings {
    /// The provider name in messages and usage records.
    pub name: Arc<str>,
    pub endpoint: Endpoint,
    pub authorities: CertificateAuthorities,
    pub delivery: ReplyDelivery,
    pub timeouts: ModelTimeouts,
    pub retry: RetryPolicy,
    pub prices: Prices,
}

/// A provider that is reached over HTTP. It reuses connections between requests.
pub struct HttpProvider {
    settings: HttpSettings,
    client: ModelHttpClient,
    memos: ConversationCache<EncodeMemo>,
    tool_blocks: ToolBlocks,
}

impl HttpProvider {
    /// Creates a provider with its own connections.
    pub fn new(settings: HttpSettings) -> Result<Self, ModelError> {
        Self::sharing(settings, &ClientPool::default())
    }

    /// Creates a provider that shares connections with the other providers of the pool.
    pub fn sharing(settings: HttpSettings, pool: &ClientPool) -> Result<Self, ModelError> {
        let server = settings.endpoint.server();
        let client = ModelHttpClient::of_pool(pool, settings.timeouts, server, &settings.authorities)?;
        let tool_blocks = pool.tool_blocks().clone();
        Ok(Self { settings, client, memos: ConversationCache::default(), tool_blocks })
    }

    /// Returns the models that the provider lists, in the provider's order.
    pub async fn models(&self) -> Result<Vec<ListedModel>, ModelError> {
        let deadline = Instant::now() + self.client.timeouts().total;
        let mut models = Vec::new();
        let mut path = Some(model_list::first_page(self.settings.endpoint.wire().format()));
        for _ in 0..model_list::PAGES_MAX {
            let Some(page) = path.take() else { break };
            let page = self.page_in_time(&page, deadline).await;
            let (listed, next) = page.map_err(|error| self.settings.endpoint.redact_secrets(error))?;
            models.extend(listed);
            path = next;
        }
        Ok(models)
    }

    /// Requests a page of the model list, with the same retries as for a reply.
    async fn page_in_time(
        &self,
        path: &str,
        deadline: Instant,
    ) -> Result<(Vec<ListedModel>, Option<String>), ModelError> {
        for number in 1.. {
            let decode_context = tokio::time::timeout_at(deadline, self.page(path)).await;
            let error = match decode_context.unwrap_or_else(|_| Err(reply_reader::out_of_time())) {
                Ok(page) => return Ok(page),
                Err(error) => error,
            };
            match retry::delay(&self.settings.retry, &error, number, random_fraction()) {
                Some(after) if Instant::now() + after < deadline => {
                    tokio::time::sleep(after).await;
                }
                Some(_) | None => return Err(error),
            }
        }
        Err(reply_reader::out_of_time())
    }

    async fn page(&self, path: &str) -> Result<(Vec<ListedModel>, Option<String>), ModelError> {
        let endpoint = &self.settings.endpoint;
        let format = endpoint.wire().format();
        let mut request = endpoint.get(path);
        model_list::add_headers(format, request.headers_mut());
        let url = request.url().clone();
        let mut answer = self.client.send(request).await?;
        if !(200..=299).contains(&answer.status()) {
            let status = answer.status();
            let error = reply_reader::refused(endpoint.wire(), &mut answer).await;
            return Err(with_address(error, status, &url));
        }
        model_list::read_page(format, &answer.body(REPLY_BYTES_MAX).await?)
    }

    fn encode(
        &self,
        request: &ModelRequest,
    ) -> Result<(EndpointRequest, DecodeContext, Vec<ReplyNote>), ModelError> {
        let endpoint = &self.settings.endpoint;
        let mut memo = self.memos.take(&request.conversation);
        memo.share(&self.tool_blocks);
        let FittedRequest { request, mut notes } = capability::fit(request.clone(), endpoint.wire().format());
        let encoded = endpoint.wire().encode(&request, self.settings.delivery, &mut memo);
        self.memos.put(memo);
        notes.extend(unsupported_feature_notes(endpoint.wire(), &encoded.unsupported));
        let decode_context = encoded.decode_context;
        Ok((endpoint.outgoing(encoded)?, decode_context, notes))
    }

    /// Sends the request until a reply starts or a retry cannot help.
    async fn begin(&self, request: ModelRequest, cx: ModelContext) -> Result<HttpReply<'_>, ModelError> {
        let deadline = Instant::now() + self.client.timeouts().total;
        let (outgoing, decode_context, notes) = self.encode(&request)?;
        let mut attempt = ModelAttempt {
            provider: Arc::clone(&self.settings.name),
            model: request.model.as_str().into(),
            number: 1,
        };
        loop {
            let price = self.settings.prices.of(&request.model);
            let mut running = RunningAttempt::start(cx.clone(), attempt.clone(), price);
            running.sent(decode_context.text_bytes);
            let begun = tokio::time::timeout_at(deadline, self.send(&outgoing, &decode_context)).await;
            let error = match begun.unwrap_or_else(|_| Err(reply_reader::out_of_time())) {
                Ok(arriving) => {
                    let (endpoint, arriving) = (&self.settings.endpoint, arriving.noting(notes));
                    return Ok(HttpReply { endpoint, arriving, running, deadline });
                }
                Err(error) => error,
            };
            match retry::delay(&self.settings.retry, &error, attempt.number, random_fraction()) {
                // Do not retry if the time limit of the request would end before the next attempt starts.
                Some(after) if Instant::now() + after < deadline => {
                    running.failed(error.kind, AttemptFollowUp::Retry { after });
                    tokio::time::sleep(after).await;
                    attempt.number += 1;
                }
                Some(_) | None => {
                    running.failed(error.kind, AttemptFollowUp::Nothing);
                    return Err(error);
                }
            }
        }
    }

    async fn send(
        &self,
        outgoing: &EndpointRequest,
        decode_context: &DecodeContext,
    ) -> Result<HttpReplyReader, ModelError> {
        let endpoint = &self.settings.endpoint;
        let request = endpoint.request(outgoing);
        let url = request.url().clone();
        let answer = self.client.send(request).await?;
        let status = answer.status();
        let begun =
            HttpReplyReader::begin(endpoint.wire(), answer, decode_context, self.settings.delivery).await;
        begun.map_err(|error| endpoint.redact_secrets(with_address(error, status, &url)))
    }

    /// Returns true if the server is on this machine.
    pub fn is_local(&self) -> bool {
        let host = self.settings.endpoint.server().host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }

    /// Returns true if the server answers within this time. Requests the model list once, which costs nothing. An error
    /// response is an answer too.
    pub async fn answers(&self, within: Duration) -> bool {
        let endpoint = &self.settings.endpoint;
        let format = endpoint.wire().format();
        let mut request = endpoint.get(&model_list::first_page(format));
        model_list::add_headers(format, request.headers_mut());
        matches!(tokio::time::timeout(within, self.client.send(request)).await, Ok(Ok(_)))
    }
}

/// Returns the address of a request without user, password and query, which may contain a key.
fn address(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    // Ignore the error: removing the user fails only for a URL without a host, and such a URL has no user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// Adds the address to a "not found" error, because a wrong base URL looks like an unknown model.
fn with_address(error: ModelError, status: u16, url: &Url) -> ModelError {
    if status != NOT_FOUND {
        return error;
    }
    let address = address(url);
    ModelError { message: format!("{} ({address} answered with status {status})", error.message), ..error }
}

/// The HTTP status for a path that the server does not have.
const NOT_FOUND: u16 = 404;

impl ModelProvider for HttpProvider {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn ask(&self, request: ModelRequest, cx: &ModelContext) -> ReplyStream<'_> {
        // Box the future: it is several times larger than the reply, and would otherwise occupy memory until the reply
        // ends.
        let begun = stream::once(Box::pin(self.begin(request, cx.clone())));
        begun
            .flat_map(|begun| match begun {
                Ok(reply) => {
                    stream::unfold(reply, async |mut reply| Some((reply.next().await?, reply))).left_stream()
                }
                Err(error) => stream::iter([Err(error)]).right_stream(),
            })
            .boxed()
    }
}

/// A reply that has started, with the attempt that it belongs to.
struct HttpReply<'a> {
    endpoint: &'a Endpoint,
    arriving: HttpReplyReader,
    running: RunningAttempt,
    deadline: Instant,
}

impl HttpReply<'_> {
    async fn next(&mut self) -> Option<Result<ModelEvent, ModelError>> {
        let next = self.arriving.next(self.deadline).await;
        let next = next.map(|next| next.map_err(|error| self.endpoint.redact_secrets(error)));
        match &next {
            Some(Ok(event)) => {
                self.running.see(event);
                if let ModelEvent::Finished { .. } = event {
                    self.running.succeeded();
                }
            }
            Some(Err(error)) => self.running.failed(error.kind, AttemptFollowUp::Nothing),
            None => {}
        }
        next
    }
}

/// Returns notes about features in the request that the format does not support.
fn unsupported_feature_notes(wire: &dyn WireFormat, unsupported: &[RequestFeature]) -> Vec<ReplyNote> {
    let rows = wire.unsupported().iter().filter(|row| unsupported.contains(&row.feature));
    rows.map(|row| ReplyNote::FeatureDropped { what: row.feature.name().into(), instead: row.instead.into() })
        .collect()
}

/// Returns a random number between 0 and 1. Every `RandomState` has new random keys.
fn random_fraction() -> f64 {
    let drawn = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(drawn >> 32).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpProvider").field("settings", &self.settings).finish_non_exhaustive()
    }
}
