//! Opens a connection from a configuration and lists the tools: chooses the transport and the protocol revision, and
//! retries once if that can help.

use std::sync::Arc;
use std::time::Duration;

use haft_core::duration_text;
use serde_json::value::RawValue;

use super::config::{ConnectTarget, ServerConfig};
use super::era::ProtocolEra;
use super::host::Host;
use super::listing;
use super::log_ring::LogRing;
use super::peer::{Peer, PeerError, PendingRequests};
use super::process;
use super::prompts::{self, Prompt};
use super::session::{self, McpSession, OpenError, OpenTimeouts};
use super::transport::client::RemoteAddress;
use super::transport::http::StreamableHttpTransport;
use super::transport::sse::SseTransport;
use super::transport::stdio::StdioTransport;
use super::transport::websocket::WebSocketTransport;
use super::transport::{Inbox, Transport, TransportFailure};
use haft_core::settings::mcp::RemoteTransport;

/// The timeout for listing prompts. It is short, because the tools of the server become available only after this
/// listing.
const PROMPTS_PATIENCE: Duration = Duration::from_secs(3);

/// The wait for a reply to the `server/discover` probe from a local process. An old server may never reply to this
/// unknown method.
const SILENCE_NEAR: Duration = Duration::from_secs(3);
/// The same wait for a remote server. It replies even to unknown methods, but may have to start first.
const SILENCE_FAR: Duration = Duration::from_secs(10);

/// A connected MCP server and its tools.
#[derive(Debug)]
pub(super) struct ConnectedServer {
    pub(super) session: McpSession,
    pub(super) tools: Vec<Box<RawValue>>,
    pub(super) transport: &'static str,
}

/// Opens a connection and lists the tools within the start-up timeout. `known` is the protocol era of an earlier
/// connection.
pub(super) async fn open(
    config: &ServerConfig,
    host: &Arc<Host>,
    stderr: &Arc<LogRing>,
    known: Option<ProtocolEra>,
) -> Result<ConnectedServer, OpenError> {
    let budget = config.startup_timeout;
    let all = open_and_list(config, host, stderr, known);
    tokio::time::timeout(budget, all).await.unwrap_or_else(|_| {
        let hint = "raise `startupTimeout` to give the MCP server more time";
        Err(OpenError::Failed(format!(
            "the MCP server was not ready within {}; {hint}",
            duration_text::in_words(budget)
        )))
    })
}

async fn open_and_list(
    config: &ServerConfig,
    host: &Arc<Host>,
    stderr: &Arc<LogRing>,
    known: Option<ProtocolEra>,
) -> Result<ConnectedServer, OpenError> {
    let mut protocol = protocol_of(config);
    let mut session = match attempt(config, host, stderr, known.as_ref(), protocol_of(config)).await {
        // The server may have crashed because it does not support the probe. Start it again, and begin with the old
        // handshake.
        Err(OpenError::DiedOnProbe(_)) => {
            let old = ProtocolEra::Legacy { version: String::new() };
            attempt(config, host, stderr, Some(&old), protocol_of(config)).await?
        }
        Err(OpenError::WrongTransport(reason)) if protocol_of(config) == Some(RemoteTransport::Http) => {
            // The server may support only the SSE transport, which is older than streamable HTTP. If SSE fails too,
            // return the first error, which explains more.
            protocol = Some(RemoteTransport::Sse);
            let older = attempt(config, host, stderr, None, protocol).await;
            older.map_err(|_| OpenError::Failed(reason))?
        }
        opened => opened?,
    };
    let (tools, prompts) = tokio::join!(
        tools_of(&session, config.startup_timeout),
        prompts_of(&session, host, PROMPTS_PATIENCE)
    );
    let tools = tools.map_err(not_listed)?;
    session.greeting.instructions =
        prompts::instructions_with_prompts(session.greeting.instructions.as_deref(), &prompts);
    Ok(ConnectedServer { session, tools, transport: name_of(config, protocol) })
}

async fn tools_of(session: &McpSession, patience: Duration) -> Result<Vec<Box<RawValue>>, PeerError> {
    if session.greeting.tools { listing::fetch(&session.peer, patience).await } else { Ok(Vec::new()) }
}

/// Lists the prompts. Treats a failure as an empty list, because the names of prompts are used only in the instructions
/// for the model.
async fn prompts_of(session: &McpSession, host: &Host, patience: Duration) -> Vec<Prompt> {
    if !session.greeting.offers.prompts {
        return Vec::new();
    }
    prompts::fetch(&session.peer, patience).await.unwrap_or_else(|error| {
        host.log.note(&format!("haft could not list the prompts of the MCP server: {error}"));
        Vec::new()
    })
}

fn name_of(config: &ServerConfig, protocol: Option<RemoteTransport>) -> &'static str {
    match (&config.connect, protocol) {
        (ConnectTarget::Own(opener), _) => opener.name(),
        (ConnectTarget::Process { .. } | ConnectTarget::Remote { .. }, protocol) => {
            protocol.map_or("stdio", RemoteTransport::name)
        }
    }
}

fn protocol_of(config: &ServerConfig) -> Option<RemoteTransport> {
    match &config.connect {
        ConnectTarget::Process { .. } | ConnectTarget::Own(_) => None,
        ConnectTarget::Remote { protocol, .. } => Some(*protocol),
    }
}

async fn attempt(
    config: &ServerConfig,
    host: &Arc<Host>,
    stderr: &Arc<LogRing>,
    known: Option<&ProtocolEra>,
    protocol: Option<RemoteTransport>,
) -> Result<McpSession, OpenError> {
    let table = PendingRequests::new(Arc::clone(host));
    let transport = transport(config, protocol, Arc::clone(&table) as Arc<dyn Inbox>, stderr).await?;
    let silence = if protocol.is_some() { SILENCE_FAR } else { SILENCE_NEAR };
    let patience = OpenTimeouts { whole: config.startup_timeout, silence };
    session::open(Peer::new(table, transport), host, known, patience).await
}

async fn transport(
    config: &ServerConfig,
    protocol: Option<RemoteTransport>,
    inbox: Arc<dyn Inbox>,
    stderr: &Arc<LogRing>,
) -> Result<Arc<dyn Transport>, OpenError> {
    match (&config.connect, protocol) {
        (ConnectTarget::Process { program, args, policy, .. }, _) => {
            let child = process::start(program, args, policy).await.map_err(|error| {
                OpenError::Failed(format!("haft cannot start the server process: {error}"))
            })?;
            Ok(Arc::new(StdioTransport::over(child, inbox, Arc::clone(stderr))))
        }
        (ConnectTarget::Remote { url, headers, auth, guard, .. }, Some(RemoteTransport::Http) | None) => {
            let address = RemoteAddress { url, headers, guard: guard.as_ref() };
            let transport = StreamableHttpTransport::new(address, auth.clone(), inbox);
            Ok(Arc::new(transport.map_err(not_reached)?))
        }
        (ConnectTarget::Remote { url, headers, auth, guard, .. }, Some(RemoteTransport::Sse)) => {
            let address = RemoteAddress { url, headers, guard: guard.as_ref() };
            Ok(Arc::new(SseTransport::open(address, auth.clone(), inbox).await.map_err(not_reached)?))
        }
        (ConnectTarget::Remote { guard: Some(_), .. }, Some(RemoteTransport::WebSocket)) => {
            Err(OpenError::Failed(
                "haft cannot restrict which addresses a WebSocket connection reaches; use an http or https URL"
                    .into(),
            ))
        }
        (ConnectTarget::Remote { url, headers, .. }, Some(RemoteTransport::WebSocket)) => {
            Ok(Arc::new(WebSocketTransport::open(url, headers, inbox).await.map_err(not_reached)?))
        }
        (ConnectTarget::Own(opener), _) => opener.open(inbox).await.map_err(not_reached),
    }
}

fn not_listed(error: PeerError) -> OpenError {
    match error {
        PeerError::Failed(TransportFailure::NeedsAuth(reason)) => OpenError::NeedsAuth(reason),
        PeerError::Rpc(_) | PeerError::Silent(_) | PeerError::Failed(_) => {
            OpenError::Failed(format!("haft could not list the tools of the MCP server: {error}"))
        }
    }
}

fn not_reached(failure: TransportFailure) -> OpenError {
    match failure {
        TransportFailure::NeedsAuth(reason) => OpenError::NeedsAuth(reason),
        TransportFailure::WrongTransport(_)
        | TransportFailure::Closed(_)
        | TransportFailure::Unreached(_)
        | TransportFailure::TooLarge { .. }
        | TransportFailure::SessionExpired
        | TransportFailure::Broken(_) => OpenError::Failed(failure.to_string()),
    }
}
