//! Passes requests other than tool calls to a server, for a client of a gateway.

use std::sync::Weak;
use std::time::Duration;

use haft_core::client_relay::ClientRelay;
use haft_core::duration_text;
use haft_core::event::CallProgress;
use haft_core::sampling::OriginatingCall;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use tokio::time::timeout;

use super::auth::LOGIN_NEEDED;
use super::call::{self, CallError, McpExchange};
use super::era::ProtocolEra;
use super::log_level::LogLevelRequest;
use super::news::ServerNews;
use super::param_header::encoded;
use super::server::SupervisedServer;
use super::session::ServerOffers;
use super::supervisor::LifecycleEvent;
use super::watched_resources::ResourceWatch;

/// The maximum wait until a server without sessions confirms that it watches a resource.
const CONFIRMATION_WAIT_MAX: Duration = Duration::from_secs(10);

/// A request from a gateway's client that haft passes to an MCP server.
#[derive(Debug)]
pub struct PassedRequest<'a> {
    pub method: PassedMethod,
    /// The members of `params` as JSON, without braces.
    pub fields: String,
    /// The name of the prompt or the URI of the resource. A header repeats it in protocol revisions without sessions.
    pub name: Option<&'a str>,
    /// The client, which answers requests from the server during this request.
    pub caller: OriginatingCall,
}

/// The methods that a gateway can pass to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassedMethod {
    ListResources,
    ListTemplates,
    ReadResource,
    Subscribe,
    Unsubscribe,
    ListPrompts,
    GetPrompt,
    Complete,
}

impl PassedMethod {
    fn name(self) -> &'static str {
        match self {
            Self::ListResources => "resources/list",
            Self::ListTemplates => "resources/templates/list",
            Self::ReadResource => "resources/read",
            Self::Subscribe => "resources/subscribe",
            Self::Unsubscribe => "resources/unsubscribe",
            Self::ListPrompts => "prompts/list",
            Self::GetPrompt => "prompts/get",
            Self::Complete => "completion/complete",
        }
    }

    fn is_offered(self, offers: ServerOffers) -> bool {
        match self {
            Self::ListResources | Self::ListTemplates | Self::ReadResource => offers.resources,
            Self::Subscribe | Self::Unsubscribe => offers.subscriptions,
            Self::ListPrompts | Self::GetPrompt => offers.prompts,
            Self::Complete => offers.completions,
        }
    }
}

/// The reason why a passed request has no result.
#[derive(Debug, Clone, PartialEq)]
pub enum PassError {
    /// The server does not have this feature.
    NotOffered,
    /// The server answered with an error.
    Refused { code: i64, message: String, data: Option<Value> },
    /// A user must log in at the server. The text is for the operator.
    LoginRequired(String),
    /// The server gave no answer. The text is for the operator.
    Unavailable(String),
}

impl PassError {
    fn of_reason(reason: String) -> Self {
        if reason.contains(LOGIN_NEEDED) { Self::LoginRequired(reason) } else { Self::Unavailable(reason) }
    }
}

impl SupervisedServer {
    /// Returns the server features other than tools; `None` if the server has never been connected.
    pub fn offers(&self) -> Option<ServerOffers> {
        self.is_known().then(|| self.shared.offers())
    }

    /// Removes the host and port of a remote server from a text.
    pub fn without_address(&self, text: String) -> String {
        self.shared.host.address.redact(text)
    }

    /// Subscribes to all later notifications of the server.
    pub fn news(&self) -> broadcast::Receiver<ServerNews> {
        self.shared.host.news.subscribe()
    }

    /// Passes a request to the server. Starts the server if needed. Sends the request a second time only if the session
    /// had expired.
    pub async fn pass(
        &self,
        request: &PassedRequest<'_>,
        progress: &(dyn Fn(CallProgress) + Send + Sync),
    ) -> Result<Box<RawValue>, PassError> {
        let begun = self.shared.host.calls.begin(request.caller.clone());
        for _ in 0..2 {
            let connection = self.ready().await.map_err(|error| PassError::of_reason(error.message))?;
            let session = &connection.session;
            if !request.method.is_offered(session.greeting.offers) {
                return Err(PassError::NotOffered);
            }
            if let Some(done) = self.subscription_by_haft(&session.era, request).await {
                return done;
            }
            let header = request.name.filter(|_| session.era == ProtocolEra::Modern);
            let exchange = McpExchange {
                method: request.method.name(),
                fields: request.fields.clone(),
                headers: header.map(|name| ("mcp-name".to_owned(), encoded(name))).into_iter().collect(),
                trace_parent: None,
                patience: self.shared.config.request_timeout,
                in_flight: &begun.call,
                progress,
            };
            match call::exchange(session, &self.shared.host, &exchange).await {
                Ok(raw) => return Ok(raw),
                Err(CallError::SessionExpired) => self.note(connection.generation, LifecycleEvent::Expired),
                Err(error) => return Err(self.not_passed(connection.generation, error)),
            }
        }
        Err(PassError::Unavailable(
            "the MCP server ends every session right after it opens the session".into(),
        ))
    }

    /// Sets the client that answers requests for roots outside of calls. A gateway with several clients has no such
    /// client, because haft could not know which of them should answer. Only the first call has an effect.
    pub fn set_only_client(&self, client: Weak<dyn ClientRelay>) {
        let _ = self.shared.host.only_client.set(client);
    }

    /// Tells the server that the client of the gateway works in other directories. Servers without sessions have no such
    /// notification.
    pub fn announce_changed_roots(&self) {
        if let Some(connection) = self.shared.connection()
            && connection.session.era != ProtocolEra::Modern
            && self.shared.host.roots_change()
        {
            connection.session.peer.notify("notifications/roots/list_changed", "");
        }
    }

    /// Requests a level of log messages for a client of the gateway, until the returned value is dropped. Returns `None`
    /// for an unknown level.
    pub fn request_log_level(&self, level: &str) -> Option<LogLevelRequest> {
        self.shared.host.log_levels.add(level)
    }

    /// Watches a resource for a client of the gateway. A server with a handshake also needs a subscription request.
    pub fn watch_resource(&self, uri: &str) -> Option<ResourceWatch> {
        self.shared.host.watched.add(uri)
    }

    /// Answers a subscription request that the server does not get. A server without sessions has no such requests: the
    /// stream for the watched resources takes their place. A server keeps a resource that other clients watch. Returns
    /// `None` for all other requests.
    async fn subscription_by_haft(
        &self,
        era: &ProtocolEra,
        request: &PassedRequest<'_>,
    ) -> Option<Result<Box<RawValue>, PassError>> {
        let uri = request.name?;
        let is_shared =
            || request.method == PassedMethod::Unsubscribe && self.shared.host.watched.is_shared(uri);
        if *era != ProtocolEra::Modern && !is_shared() {
            return None;
        }
        match request.method {
            // The last watch ends after this request.
            PassedMethod::Unsubscribe => {}
            PassedMethod::Subscribe => {
                let patience = self.shared.config.request_timeout.min(CONFIRMATION_WAIT_MAX);
                match timeout(patience, self.shared.host.watched.is_confirmed(uri)).await {
                    Ok(true) => {}
                    Ok(false) => return Some(Err(PassError::NotOffered)),
                    Err(_) => {
                        let waited = duration_text::in_words(patience);
                        let reason =
                            format!("the MCP server did not confirm the subscription within {waited}");
                        return Some(Err(PassError::Unavailable(reason)));
                    }
                }
            }
            _ => return None,
        }
        Some(RawValue::from_string("{}".into()).map_err(|error| PassError::Unavailable(error.to_string())))
    }

    fn not_passed(&self, generation: u64, error: CallError) -> PassError {
        match error {
            CallError::Rpc(error) => {
                PassError::Refused { code: error.code, message: error.message, data: error.data }
            }
            CallError::Tool(error) => PassError::Unavailable(self.shared.host.withheld.redact(error.message)),
            CallError::NeedsAuth(reason) => {
                self.note(generation, LifecycleEvent::AuthNeeded { reason: reason.clone() });
                PassError::of_reason(reason)
            }
            CallError::Silent(patience) => {
                self.note(generation, LifecycleEvent::Silent);
                PassError::Unavailable(format!(
                    "the MCP server did not reply within {}",
                    duration_text::in_words(patience)
                ))
            }
            CallError::Lost(reason) => PassError::Unavailable(reason),
            CallError::SessionExpired => {
                PassError::Unavailable("the session with the MCP server has expired".into())
            }
        }
    }
}
