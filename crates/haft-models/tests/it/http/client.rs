use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use haft_core::conversation::{Conversation, Message, ModelApiFormat};
use haft_core::event::{Event, EventSink};
use haft_core::model_error::ModelError;
use haft_core::model_event::ModelEvent;
use haft_core::model_provider::{ModelContext, ModelProvider};
use haft_core::model_reply::{ModelReply, ReplyFold};
use haft_core::model_request::ModelRequest;
use haft_core::price::Price;
use haft_core::provider::Principal;
use haft_model_server::{ModelServer, Script, ScriptStep};
use haft_models::ReplyDelivery;
use haft_models::http::{CertificateAuthorities, HttpProvider, HttpSettings, ModelTimeouts, RetryPolicy};
use haft_models::prices::Prices;
use haft_models::providers::{ProviderOverrides, ProviderRow};

/// The key that every script in these tests requires.
pub(crate) const KEY: &str = "test-key-0123456789";

/// A scripted server, with the settings of its client.
pub(crate) struct ClientFixture {
    pub(crate) server: ModelServer,
    pub(crate) format: ModelApiFormat,
    pub(crate) delivery: ReplyDelivery,
    pub(crate) timeouts: ModelTimeouts,
    pub(crate) events: Arc<RecordedEvents>,
}

/// Records all events, in order.
#[derive(Default)]
pub(crate) struct RecordedEvents(Mutex<Vec<Event>>);

impl EventSink for RecordedEvents {
    fn emit(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

impl RecordedEvents {
    /// Returns the attempts so far, each with its model, number and result.
    pub(crate) fn attempts(&self) -> Vec<String> {
        let said = |event: &Event| match event {
            Event::ModelFinished { attempt, account, .. } => {
                let end = account.failure.map_or("ok", |kind| kind.name());
                Some(format!("{} {} {end}", attempt.model, attempt.number))
            }
            _ => None,
        };
        self.0.lock().unwrap().iter().filter_map(said).collect()
    }

    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().unwrap().clone()
    }
}

impl ClientFixture {
    pub(crate) fn new(format: ModelApiFormat, steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        let server = ModelServer::start(Script::of(steps).with_key(KEY)).unwrap();
        let timeouts = ModelTimeouts { total: Duration::from_mins(1), ..ModelTimeouts::default() };
        Self { server, format, delivery: ReplyDelivery::Streamed, timeouts, events: Arc::default() }
    }

    pub(crate) fn delivered(self, delivery: ReplyDelivery) -> Self {
        Self { delivery, ..self }
    }

    pub(crate) fn provider(&self) -> HttpProvider {
        self.provider_with(ProviderOverrides::default())
    }

    pub(crate) fn provider_with(&self, wishes: ProviderOverrides) -> HttpProvider {
        let base_url = Some(format!("{}{}", self.server.url(), version(self.format)));
        let row = ProviderRow::named(row_of(self.format)).unwrap();
        let key = wishes.key.or(Some(KEY.into()));
        let endpoint = row.endpoint(ProviderOverrides { base_url, key, ..wishes }, &|_| None).unwrap();
        HttpProvider::new(HttpSettings {
            name: row.name.into(),
            endpoint,
            authorities: CertificateAuthorities::default(),
            delivery: self.delivery,
            timeouts: self.timeouts,
            retry: RetryPolicy { delay_first: Duration::from_millis(1), ..RetryPolicy::default() },
            prices: Prices::default().with("m", Price::flat(1.0, 2.0)),
        })
        .unwrap()
    }

    pub(crate) fn context(&self) -> ModelContext {
        ModelContext::new("r1", Principal::local(), Arc::clone(&self.events) as Arc<dyn EventSink>)
    }

    pub(crate) async fn ask(&self, request: ModelRequest) -> Result<ModelReply, ModelError> {
        whole(&self.provider(), request, &self.context()).await
    }
}

/// Returns the complete reply of a provider.
pub(crate) async fn whole(
    provider: &dyn ModelProvider,
    request: ModelRequest,
    cx: &ModelContext,
) -> Result<ModelReply, ModelError> {
    let events: Vec<Result<ModelEvent, ModelError>> = provider.ask(request, cx).collect().await;
    let events: Result<Vec<ModelEvent>, ModelError> = events.into_iter().collect();
    Ok(ReplyFold::of(events?))
}

pub(crate) fn asking(text: &str) -> ModelRequest {
    request([Message::user(text)])
}

pub(crate) fn request(messages: impl IntoIterator<Item = Message>) -> ModelRequest {
    let mut conversation = Conversation::default();
    for message in messages {
        conversation.push(message).unwrap();
    }
    ModelRequest::new("m", Arc::new(conversation))
}

fn version(format: ModelApiFormat) -> &'static str {
    match format {
        ModelApiFormat::OpenaiChat | ModelApiFormat::OpenaiResponses | ModelApiFormat::Anthropic => "/v1",
        ModelApiFormat::Gemini => "/v1beta",
        ModelApiFormat::Ollama => "",
    }
}

fn row_of(format: ModelApiFormat) -> &'static str {
    match format {
        ModelApiFormat::OpenaiChat => "openai",
        ModelApiFormat::OpenaiResponses => "openai-responses",
        ModelApiFormat::Anthropic => "anthropic",
        ModelApiFormat::Gemini => "gemini",
        ModelApiFormat::Ollama => "ollama",
    }
}
