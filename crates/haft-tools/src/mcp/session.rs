//! Opens a connection: detects the protocol revision, performs the handshake, and sets the metadata of later requests.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use haft_core::duration_text;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::bounded::cut;
use super::era::{HandshakeStep, LEGACY, MODERN, ProbeReaction, ProtocolEra, after_probe};
use super::host::Host;
use super::message::RpcError;
use super::peer::{Peer, PeerError, PeerRequest, RequestMetadata};
use super::task::TASKS_EXTENSION;
use super::transport::TransportFailure;

/// The time limits for opening a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenTimeouts {
    /// The time limit for opening the connection, including all steps.
    pub(super) whole: Duration,
    /// The time to wait for the reply to the probe. After this time, the client sends the old handshake too. The server
    /// is not killed, because its package may still be downloading.
    pub(super) silence: Duration,
}

/// The maximum size of a handshake response, in bytes.
const GREETING_BYTES_MAX: usize = 1 << 20;

/// The maximum number of characters that are kept of a server's name, and of its version.
const NAME_CHARS_MAX: usize = 200;

/// An opened connection to an MCP server, after the handshake or the probe.
#[derive(Debug)]
pub(super) struct McpSession {
    pub(super) peer: Peer,
    pub(super) era: ProtocolEra,
    pub(super) greeting: ServerDescription,
}

/// The properties that a server states in its response to the handshake or to the probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is a separate capability in the protocol")]
pub struct ServerDescription {
    pub name: String,
    pub version: String,
    pub instructions: Option<Arc<str>>,
    /// True when the server has tools.
    pub(super) tools: bool,
    /// The server features other than tools.
    pub offers: ServerOffers,
    /// True when the server reports changes of its tools.
    pub(super) tools_change: bool,
    /// True when the server sends log messages, at a level that haft sets.
    pub(super) logs: bool,
    /// True when the server runs tool calls as tasks on request, in revision 2025-11-25.
    pub(super) core_tasks: bool,
}

/// The features of a server other than its tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each flag is a separate capability in the protocol")]
pub struct ServerOffers {
    pub prompts: bool,
    /// The server has resources and resource templates.
    pub resources: bool,
    /// The server reports changes of single resources.
    pub subscriptions: bool,
    /// The server completes arguments of prompts and templates.
    pub completions: bool,
}

impl ServerOffers {
    fn of(capabilities: &Value) -> Self {
        Self {
            prompts: capabilities["prompts"].is_object(),
            resources: capabilities["resources"].is_object(),
            subscriptions: capabilities["resources"]["subscribe"] == true,
            completions: capabilities["completions"].is_object(),
        }
    }
}

/// The reason why a connection could not be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OpenError {
    /// The connection ended after the probe of the protocol version. The server may not support the probe, so haft
    /// tries again with the old handshake.
    DiedOnProbe(String),
    /// The server at this address does not support this transport.
    WrongTransport(String),
    /// The server answered the handshake with an error.
    NotGreeted(String),
    NeedsAuth(String),
    Failed(String),
}

impl OpenError {
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::DiedOnProbe(reason)
            | Self::WrongTransport(reason)
            | Self::NotGreeted(reason)
            | Self::NeedsAuth(reason)
            | Self::Failed(reason) => reason,
        }
    }
}

/// Opens the connection within the time limits. `known` is the kind of protocol revision (its era) of an earlier
/// connection.
pub(super) async fn open(
    peer: Peer,
    host: &Host,
    known: Option<&ProtocolEra>,
    patience: OpenTimeouts,
) -> Result<McpSession, OpenError> {
    let budget = patience.whole;
    let opened = match known {
        Some(ProtocolEra::Legacy { .. }) => {
            timeout(budget, legacy_handshake_first(&peer, host, budget)).await
        }
        Some(ProtocolEra::Modern) | None => timeout(budget, probe(&peer, host, patience)).await,
    };
    let out_of_time = || {
        OpenError::Failed(format!("the MCP server did not answer within {}", duration_text::in_words(budget)))
    };
    let (era, greeting) = opened.map_err(|_| out_of_time())??;
    peer.settle(manner(&era, host));
    if matches!(era, ProtocolEra::Legacy { .. }) {
        peer.notify("notifications/initialized", "");
    }
    Ok(McpSession { peer, era, greeting })
}

type HandshakeResult = Result<(ProtocolEra, ServerDescription), OpenError>;

/// Begins with the old handshake, which worked before. If the server refuses it, probes whether the server now uses a
/// revision without a handshake; if not, returns the server's error.
async fn legacy_handshake_first(peer: &Peer, host: &Host, budget: Duration) -> HandshakeResult {
    let refused = match greet(peer, host, budget).await {
        Err(refused @ (OpenError::NotGreeted(_) | OpenError::WrongTransport(_))) => refused,
        greeted => return greeted,
    };
    let found = discover(peer, host, budget).await;
    match after_probe(&found.probed) {
        HandshakeStep::SpeakModern => Ok((ProtocolEra::Modern, found.greeting)),
        HandshakeStep::Greet
        | HandshakeStep::GreetBeside
        | HandshakeStep::Respawn
        | HandshakeStep::Incompatible
        | HandshakeStep::GiveUp => Err(refused),
    }
}

async fn probe(
    peer: &Peer,
    host: &Host,
    OpenTimeouts { whole: budget, silence }: OpenTimeouts,
) -> HandshakeResult {
    let mut discovery = pin!(discover(peer, host, budget));
    if let Ok(found) = timeout(silence, &mut discovery).await {
        return after(found, || greet(peer, host, budget)).await;
    }
    let mut greeted = pin!(greet(peer, host, budget));
    tokio::select! {
        found = &mut discovery => after(found, || greeted).await,
        opened = &mut greeted => match opened {
            Ok(opened) => Ok(opened),
            // The handshake failed, but the reply to the probe may still come. Wait for it, because it can show that
            // the server supports a revision without a handshake.
            Err(refused) => after(discovery.await, || std::future::ready(Err(refused))).await,
        },
    }
}

/// Acts on the result of the probe; `greet` performs the old handshake.
async fn after<F: Future<Output = HandshakeResult>>(
    found: ProbeResult,
    greet: impl FnOnce() -> F,
) -> HandshakeResult {
    let ProbeResult { probed, greeting, reason } = found;
    match after_probe(&probed) {
        HandshakeStep::SpeakModern => Ok((ProtocolEra::Modern, greeting)),
        HandshakeStep::Greet | HandshakeStep::GreetBeside => greet().await,
        HandshakeStep::Respawn => Err(OpenError::DiedOnProbe(reason)),
        HandshakeStep::Incompatible => Err(OpenError::Failed(format!(
            "the MCP server supports no MCP version that haft supports ({MODERN}, {})",
            LEGACY.join(", ")
        ))),
        HandshakeStep::GiveUp => Err(OpenError::NeedsAuth(reason)),
    }
}

struct ProbeResult {
    probed: ProbeReaction,
    greeting: ServerDescription,
    reason: String,
}

async fn discover(peer: &Peer, host: &Host, budget: Duration) -> ProbeResult {
    let first = discover_once(peer, host, budget).await;
    match (&first.probed, after_probe(&first.probed)) {
        // The server refused, but named the version of the probe as supported. A second probe may return its
        // capabilities.
        (ProbeReaction::Refused { .. }, HandshakeStep::SpeakModern) => {
            discover_once(peer, host, budget).await
        }
        (_, _) => first,
    }
}

async fn discover_once(peer: &Peer, host: &Host, budget: Duration) -> ProbeResult {
    let mut ask = PeerRequest::new("server/discover", "", budget);
    ask.manner = Some(manner(&ProtocolEra::Modern, host));
    match peer.request(ask).await {
        Ok(raw) => discovered(&raw),
        Err(error) => {
            let reason = error.to_string();
            ProbeResult { probed: refused(error), greeting: ServerDescription::default(), reason }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiscoverResult {
    #[serde(default)]
    supported_versions: Vec<String>,
    #[serde(default)]
    capabilities: Value,
    instructions: Option<String>,
    #[serde(rename = "_meta", default)]
    meta: Value,
}

fn discovered(raw: &RawValue) -> ProbeResult {
    match read_greeting::<DiscoverResult>(raw) {
        Ok(found) => ProbeResult {
            greeting: greeting(
                &found.meta["io.modelcontextprotocol/serverInfo"],
                found.instructions,
                &found.capabilities,
            ),
            probed: ProbeReaction::Discovered { versions: found.supported_versions },
            reason: String::new(),
        },
        Err(error) => ProbeResult {
            probed: ProbeReaction::Refused { code: 0, versions: Vec::new() },
            greeting: ServerDescription::default(),
            reason: error,
        },
    }
}

/// Parses a handshake response. Refuses a large one, because parsed values take many times its size.
fn read_greeting<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, String> {
    let bytes = raw.get().len();
    if bytes > GREETING_BYTES_MAX {
        return Err(format!(
            "the MCP server's handshake response has {bytes} bytes; the limit is {GREETING_BYTES_MAX}"
        ));
    }
    serde_json::from_str(raw.get())
        .map_err(|error| format!("haft cannot parse the MCP server's handshake response: {error}"))
}

fn refused(error: PeerError) -> ProbeReaction {
    match error {
        PeerError::Rpc(error) => ProbeReaction::Refused { code: error.code, versions: versions_in(&error) },
        PeerError::Silent(_) => ProbeReaction::Silent,
        PeerError::Failed(TransportFailure::Closed(_)) => ProbeReaction::Died,
        PeerError::Failed(TransportFailure::NeedsAuth(_)) => ProbeReaction::NeedsAuth,
        PeerError::Failed(
            TransportFailure::TooLarge { .. }
            | TransportFailure::Unreached(_)
            | TransportFailure::SessionExpired
            | TransportFailure::WrongTransport(_)
            | TransportFailure::Broken(_),
        ) => ProbeReaction::Refused { code: 0, versions: Vec::new() },
    }
}

fn versions_in(error: &RpcError) -> Vec<String> {
    let supported = error.data.as_ref().and_then(|data| data["supported"].as_array());
    supported.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

async fn greet(peer: &Peer, host: &Host, budget: Duration) -> HandshakeResult {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InitializeResult {
        protocol_version: String,
        #[serde(default)]
        capabilities: Value,
        #[serde(default)]
        server_info: Value,
        instructions: Option<String>,
    }
    let fields = format!(
        "\"protocolVersion\":\"{}\",\"capabilities\":{},\"clientInfo\":{}",
        LEGACY[0],
        host.capabilities(),
        client_info()
    );
    let raw = peer.request(PeerRequest::new("initialize", fields, budget)).await.map_err(not_opened)?;
    let found: InitializeResult = read_greeting(&raw).map_err(OpenError::Failed)?;
    if !LEGACY.contains(&found.protocol_version.as_str()) {
        let message = format!(
            "the MCP server chose MCP version `{}`, which haft does not support",
            cut(&found.protocol_version, 40)
        );
        return Err(OpenError::Failed(message));
    }
    let greeting = greeting(&found.server_info, found.instructions, &found.capabilities);
    Ok((ProtocolEra::Legacy { version: found.protocol_version }, greeting))
}

fn not_opened(error: PeerError) -> OpenError {
    match error {
        PeerError::Failed(TransportFailure::WrongTransport(reason)) => OpenError::WrongTransport(reason),
        PeerError::Failed(TransportFailure::NeedsAuth(reason)) => OpenError::NeedsAuth(reason),
        PeerError::Rpc(_) => OpenError::NotGreeted(error.to_string()),
        PeerError::Silent(_) | PeerError::Failed(_) => OpenError::Failed(error.to_string()),
    }
}

fn greeting(who: &Value, instructions: Option<String>, capabilities: &Value) -> ServerDescription {
    let text = |value: &Value| cut(value.as_str().unwrap_or_default(), NAME_CHARS_MAX);
    ServerDescription {
        name: text(&who["name"]),
        version: text(&who["version"]),
        instructions: instructions.filter(|text| !text.trim().is_empty()).map(Into::into),
        tools: capabilities["tools"].is_object(),
        offers: ServerOffers::of(capabilities),
        tools_change: capabilities["tools"]["listChanged"] == true,
        logs: capabilities["logging"].is_object(),
        core_tasks: capabilities["tasks"]["requests"]["tools"]["call"].is_object(),
    }
}

fn client_info() -> Value {
    json!({ "name": "haft", "version": env!("CARGO_PKG_VERSION") })
}

/// Returns the metadata and headers of every request for this kind of protocol revision.
fn manner(era: &ProtocolEra, host: &Host) -> RequestMetadata {
    let headers = vec![("mcp-protocol-version".to_owned(), era.version().to_owned())];
    match era {
        ProtocolEra::Legacy { .. } => RequestMetadata { meta: String::new(), headers },
        ProtocolEra::Modern => {
            let prefix = "io.modelcontextprotocol";
            let mut capabilities = host.capabilities();
            capabilities["extensions"] = json!({ TASKS_EXTENSION: {} });
            let meta = format!(
                "\"{prefix}/protocolVersion\":\"{MODERN}\",\"{prefix}/clientInfo\":{},\"{prefix}/clientCapabilities\":{capabilities}",
                client_info(),
            );
            RequestMetadata { meta, headers }
        }
    }
}
