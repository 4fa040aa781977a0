//! Passes requests other than tool calls to a server, for a client of a gateway.

use haft_core::event::CallProgress;
use haft_core::sampling::OriginatingCall;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::broadcast;

use super::auth::LOGIN_NEEDED;
use super::call::{self, CallError, McpExchange};
use super::era::ProtocolEra;
use super::news::ServerNews;
use super::param_header::encoded;
use super::server::SupervisedServer;
use super::session::ServerOffers;
use super::supervisor::LifecycleEvent;

/// A request from a gateway's client that haft passes to an MCP server.
#[derive(Debug)]
pub struct PassedRequest<'a> {
    pub method: PassedMethod,
    /// The members of `params` as JSON, without braces.
    pub fields: String,
    /// The name or URI that a header repeats in protocol revisions without sessions.
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

    fn is_offered(self, offers: ServerOffers, era: &ProtocolEra) -> bool {
        match self {
            Self::ListResources | Self::ListTemplates | Self::ReadResource => offers.resources,
            // Protocol revisions without sessions have another kind of subscription, which haft does not support.
            Self::Subscribe | Self::Unsubscribe => offers.subscriptions && *era != ProtocolEra::Modern,
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
            if !request.method.is_offered(session.greeting.offers, &session.era) {
                return Err(PassError::NotOffered);
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
                    "the MCP server did not reply within {} ms",
                    patience.as_millis()
                ))
            }
            CallError::Lost(reason) => PassError::Unavailable(reason),
            CallError::SessionExpired => {
                PassError::Unavailable("the session with the MCP server has expired".into())
            }
        }
    }
}
