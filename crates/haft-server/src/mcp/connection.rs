//! The connection of one client: reads its messages, dispatches its requests, and runs its calls.

mod calls;
mod tools;

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use self::calls::CallTable;
use self::tools::ClientTools;
use super::era::{ClientAbilities, CommonParams, ConnectionEra, RequestEra, STATELESS, negotiated};
use super::gateway::{McpGateway, ToolsOpener};
use super::held::HeldCalls;
use super::lines::{GatewayLine, next_line};
use super::message::{
    self, ClientMessage, ClientRequest, GatewayError, INVALID_REQUEST, METHOD_NOT_FOUND, params,
};
use super::progress::ProgressRelay;
use super::questions::ClientQuestions;

/// The longest message of a client, in bytes.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// The most messages that wait for a slow reader. When it is full, haft reads no further requests.
const OUTBOX_MAX: usize = 256;

/// The time that a client may keep a list of tools, in milliseconds. Servers that start later change it.
const LIST_TTL_MS: u64 = 5_000;

/// The levels of log messages, the least severe first.
const LOG_LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Serves one client until it closes its side or stops reading.
pub async fn serve(
    gateway: McpGateway,
    mut input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let (out, outbox) = mpsc::channel(OUTBOX_MAX);
    let mut writer = tokio::spawn(write_all(outbox, output));
    let connection = Arc::new(ClientConnection::new(gateway, out));
    let read = async {
        while let Some(line) = next_line(&mut input, MESSAGE_BYTES_MAX).await? {
            connection.receive(line).await;
        }
        Ok(())
    };
    // A client that stopped reading gets no answer, so nothing more is done for it.
    let ended = tokio::select! {
        ended = read => ended,
        written = &mut writer => written.unwrap_or_else(|error| Err(io::Error::other(error))),
    };
    connection.close().await;
    ended
}

/// Writes messages as lines, as many as wait with one write.
async fn write_all(
    mut outbox: mpsc::Receiver<String>,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut waiting = Vec::new();
    while outbox.recv_many(&mut waiting, OUTBOX_MAX).await > 0 {
        let mut text = String::with_capacity(waiting.iter().map(|message| message.len() + 1).sum());
        for message in waiting.drain(..) {
            text.push_str(&message);
            text.push('\n');
        }
        output.write_all(text.as_bytes()).await?;
        output.flush().await?;
    }
    Ok(())
}

/// The state of one connection.
struct ClientConnection {
    gateway: GatewayFacts,
    out: mpsc::Sender<String>,
    era: Mutex<ConnectionEra>,
    /// Taken by the first request that settles the era.
    opener: Mutex<Option<ToolsOpener>>,
    tools: OnceLock<Arc<ClientTools>>,
    calls: CallTable,
    held: HeldCalls,
    questions: Arc<ClientQuestions>,
    progress: Arc<ProgressRelay>,
    /// The position of the least severe level in `LOG_LEVELS` that the client wants.
    log_rank: AtomicUsize,
}

/// The settings of the gateway without the opener.
struct GatewayFacts {
    name: String,
    version: String,
    instructions: Option<String>,
    selection: haft_engine::ToolFilter,
    ready_wait: std::time::Duration,
    hints: super::gateway::CallHints,
    warn: super::gateway::WarningSink,
}

impl ClientConnection {
    fn new(gateway: McpGateway, out: mpsc::Sender<String>) -> Self {
        let McpGateway { name, version, instructions, selection, ready_wait, open, hints, warn } = gateway;
        Self {
            gateway: GatewayFacts { name, version, instructions, selection, ready_wait, hints, warn },
            era: Mutex::default(),
            opener: Mutex::new(Some(open)),
            tools: OnceLock::new(),
            calls: CallTable::default(),
            held: HeldCalls::default(),
            questions: Arc::new(ClientQuestions::new(out.clone())),
            progress: Arc::new(ProgressRelay::new(out.clone())),
            log_rank: AtomicUsize::new(0),
            out,
        }
    }

    async fn receive(self: &Arc<Self>, line: GatewayLine) {
        let text = match line {
            GatewayLine::Text(text) => text,
            GatewayLine::TooLong => {
                let message = format!("a message may have at most {MESSAGE_BYTES_MAX} bytes");
                return self.fail(None, &GatewayError::new(INVALID_REQUEST, message)).await;
            }
        };
        if text.trim().is_empty() {
            return;
        }
        match message::read(&text) {
            Ok(ClientMessage::Request(request)) => self.request(request).await,
            Ok(ClientMessage::Notification { method, params }) => self.notified(&method, params.as_deref()),
            Ok(ClientMessage::Reply { id, outcome }) => {
                // A late answer to a question that was withdrawn is not an error.
                self.questions.answered(id, outcome);
            }
            Err(unusable) => self.fail(unusable.id.as_deref(), &unusable.error).await,
        }
    }

    async fn request(self: &Arc<Self>, request: ClientRequest) {
        let admitted = params::<CommonParams>(request.params.as_deref())
            .and_then(|common| Ok((self.era().admit(&request.method, &common.meta)?, common)));
        let (era, common) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        let outcome = match (request.method.as_str(), era) {
            ("initialize", RequestEra::Handshake) => self.initialize(request.params.as_deref()),
            ("ping", RequestEra::Handshake) => Ok("{}".into()),
            ("logging/setLevel", RequestEra::Handshake) => self.set_level(request.params.as_deref()),
            ("server/discover", RequestEra::Stateless(_)) => Ok(self.discovered()),
            ("tools/list", era) => return self.begin_list(request, era).await,
            ("tools/call", era) => return self.begin_call(request, era, common.meta.progress_token).await,
            ("subscriptions/listen", RequestEra::Stateless(abilities)) => {
                return self.listen(request, abilities).await;
            }
            (method, _) => {
                let message = format!("the method `{method}` is not supported");
                Err(GatewayError::new(METHOD_NOT_FOUND, message))
            }
        };
        match outcome {
            Ok(result) => self.send(message::success(&request.id, &result)).await,
            Err(error) => self.fail(Some(&request.id), &error).await,
        }
    }

    fn notified(&self, method: &str, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled {
            request_id: Box<RawValue>,
        }
        // Other notifications, and a cancellation of a request that has ended, need no action.
        if method == "notifications/cancelled"
            && let Ok(cancelled) = message::params::<Cancelled>(params)
        {
            self.calls.cancel(&cancelled.request_id);
        }
    }

    fn initialize(self: &Arc<Self>, params: Option<&RawValue>) -> Result<String, GatewayError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct InitializeParams {
            protocol_version: String,
            #[serde(default)]
            capabilities: Value,
        }
        let asked: InitializeParams = match message::params(params) {
            Ok(asked) => asked,
            Err(error) => {
                // The client may try again.
                *self.era() = ConnectionEra::Open;
                return Err(error);
            }
        };
        self.open(ClientAbilities::of(&asked.capabilities));
        let mut result = json!({
            "protocolVersion": negotiated(&asked.protocol_version),
            "capabilities": { "tools": { "listChanged": true }, "logging": {} },
            "serverInfo": self.server_info(),
        });
        if let Some(instructions) = &self.gateway.instructions {
            result["instructions"] = instructions.as_str().into();
        }
        Ok(result.to_string())
    }

    fn discovered(&self) -> String {
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": [STATELESS],
            "capabilities": { "tools": { "listChanged": true } },
            "ttlMs": LIST_TTL_MS,
            "cacheScope": "private",
            "_meta": { "io.modelcontextprotocol/serverInfo": self.server_info() },
        });
        if let Some(instructions) = &self.gateway.instructions {
            result["instructions"] = instructions.as_str().into();
        }
        result.to_string()
    }

    fn server_info(&self) -> Value {
        json!({ "name": self.gateway.name, "version": self.gateway.version })
    }

    /// Accepts every level that the protocol knows. haft itself logs only warnings about servers.
    fn set_level(&self, params: Option<&RawValue>) -> Result<String, GatewayError> {
        #[derive(Deserialize)]
        struct SetLevel {
            level: String,
        }
        let SetLevel { level } = message::params(params)?;
        let Some(rank) = LOG_LEVELS.iter().position(|known| *known == level) else {
            let message = format!("unknown level `{level}`; known are {}", LOG_LEVELS.join(", "));
            return Err(GatewayError::new(message::INVALID_PARAMS, message));
        };
        self.log_rank.store(rank, Ordering::Relaxed);
        Ok("{}".into())
    }

    /// Returns true if the client wants warnings. In the era without sessions each request would have to ask for them.
    fn wants_warnings(&self) -> bool {
        let wanted = LOG_LEVELS[self.log_rank.load(Ordering::Relaxed)];
        let is_wanted = matches!(wanted, "debug" | "info" | "notice" | "warning");
        is_wanted && *self.era() == ConnectionEra::Handshake
    }

    async fn send(&self, message: String) {
        // The writer has ended if the client is gone; the connection closes then.
        let _ = self.out.send(message).await;
    }

    async fn fail(&self, id: Option<&RawValue>, error: &GatewayError) {
        self.send(message::failure(id, error)).await;
    }

    fn era(&self) -> MutexGuard<'_, ConnectionEra> {
        self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels all calls and stops the upstream servers.
    async fn close(&self) {
        self.calls.cancel_all();
        if let Some(tools) = self.tools.get() {
            tools.close(&self.gateway.warn).await;
        }
    }
}
