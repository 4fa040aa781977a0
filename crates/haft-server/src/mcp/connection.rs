//! The connection of one client: reads its messages, dispatches its requests, and runs its calls.

mod calls;
mod changes;
mod lists;
mod opened;
mod passed;
mod required_urls;
mod rounds;
mod task_requests;
mod upstream_login;
mod user_step;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use haft_core::run::untrusted::UntrustedReads;
use haft_runtime::lines::{InputLine, InputLineReader};
use haft_tools::mcp::SentParamHeaders;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use self::calls::{CallTable, RequestedNotices};
use self::opened::OpenSlot;
use super::call_notices::NoticeTable;
use super::client_log::{ClientLog, McpLogLevel};
use super::client_outputs::OutputOwner;
use super::era::{ClientAbilities, CommonParams, ConnectionEra, RequestEra, STATELESS, negotiated};
use super::gateway::{GatewayUser, McpGateway, ProfileRequest, TaskListAccess};
use super::held::AbortOnDrop;
use super::logins::LoginPlace;
use super::message::{
    self, ClientMessage, ClientRequest, GatewayError, INVALID_REQUEST, LISTEN, METHOD_NOT_FOUND,
    UnusableMessage, params,
};
use super::older_content::{ContentPlace, known_content};
use super::outbox::{HeldBytes, MessageScope, OUTBOX_MAX, OutMessage, Outbox};
use super::questions::ClientQuestions;
use super::shared_tools::ToolPool;
use super::tasks::{TASKS_EXTENSION, TaskSupport};
use super::upstream::UpstreamList;

/// The maximum size of a message from a client, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// The time for which a client may cache a list, in milliseconds. It is short, because the list changes when more
/// servers start.
const LIST_TTL_MS: u64 = 5_000;

/// The only protocol revision with batches of messages.
const BATCHES: &str = "2025-03-26";

/// The maximum number of characters that haft keeps of the name that a client sends.
const CLIENT_NAME_CHARS_MAX: usize = 200;

/// The only protocol revision with a handshake that has tasks and URL elicitation.
const CORE_TASKS: &str = "2025-11-25";

/// The size up to which messages are written together, in bytes.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// The maximum time for writing the waiting replies after the client has closed its side of the connection.
const LAST_WRITES_MAX: Duration = Duration::from_secs(1);

/// Serves one client until it closes its side or stops reading.
pub async fn serve(
    gateway: McpGateway,
    input: impl AsyncBufRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let pool = Arc::new(ToolPool::new(Arc::new(gateway), LoginPlace::Loopback).for_one_client());
    let owner = (GatewayUser::local(), OutputOwner::new_connection());
    let (connection, outbox) = ClientConnection::with_outbox(Arc::clone(&pool), owner);
    let connection = Arc::new(connection);
    // Read and write in separate tasks, because tasks wake each other without a system call. Waking the root future of
    // the runtime takes two system calls: one to wake the runtime, and one for the runtime to detect the wake-up.
    let (closing, closed) = oneshot::channel();
    let mut writer = tokio::spawn(write_all((outbox, closed), output));
    let mut reader = tokio::spawn(read_all(Arc::clone(&connection), input));
    let _tasks = [writer.abort_handle(), reader.abort_handle()].map(AbortOnDrop);
    // A client that has stopped reading gets no replies, so its calls are cancelled.
    let ended = tokio::select! {
        ended = &mut reader => {
            // The client may have sent requests and closed its side at once. Write the replies that already wait.
            drop(closing);
            let _ = timeout(LAST_WRITES_MAX, &mut writer).await;
            ended
        }
        written = &mut writer => written,
    };
    let ended = ended.unwrap_or_else(|error| Err(io::Error::other(error)));
    connection.close();
    pool.close().await;
    ended
}

/// Handles each line of the client, until the client closes its side.
async fn read_all(connection: Arc<ClientConnection>, input: impl AsyncBufRead + Unpin) -> io::Result<()> {
    let mut lines = InputLineReader::new(input, MESSAGE_BYTES_MAX);
    while let Some(line) = lines.next().await? {
        connection.receive_line(line).await;
    }
    Ok(())
}

/// Writes each message as one line, and small messages together. After `closing` resolves, writes only the messages that
/// already wait.
async fn write_all(
    (mut outbox, mut closing): (mpsc::Receiver<OutMessage>, oneshot::Receiver<()>),
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (mut waiting, mut is_open) = (Vec::new(), true);
    loop {
        let received = tokio::select! {
            biased;
            received = outbox.recv_many(&mut waiting, OUTBOX_MAX) => received,
            _ = &mut closing, if is_open => {
                is_open = false;
                outbox.close();
                continue;
            }
        };
        if received == 0 {
            return Ok(());
        }
        write_lines(&waiting, &mut output).await?;
        // The messages occupy their bytes until they are written.
        waiting.clear();
    }
}

/// Writes messages as lines. Copies only small messages, so that many of them need one system call.
async fn write_lines(messages: &[OutMessage], output: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let mut batch = String::new();
    for OutMessage { text, .. } in messages.iter().filter(|message| !message.text.is_empty()) {
        if text.len() > BATCH_BYTES_MAX {
            output.write_all(batch.as_bytes()).await?;
            output.write_all(text.as_bytes()).await?;
            batch.clear();
        } else {
            batch.push_str(text);
        }
        batch.push('\n');
        if batch.len() > BATCH_BYTES_MAX {
            output.write_all(batch.as_bytes()).await?;
            batch.clear();
        }
    }
    output.write_all(batch.as_bytes()).await?;
    output.flush().await
}

/// The state of one connection.
pub(super) struct ClientConnection {
    pool: Arc<ToolPool>,
    user: GatewayUser,
    /// The clients that can read the outputs of the calls.
    outputs: OutputOwner,
    /// The untrusted text that the client has read. A reload keeps it.
    untrusted: Arc<UntrustedReads>,
    out: Outbox,
    era: Mutex<ConnectionEra>,
    /// The revision that the handshake chose.
    negotiated: OnceLock<&'static str>,
    /// The tools of this connection. The first request that determines the protocol revision opens them, and haft opens
    /// them again after a reload.
    slot: Mutex<OpenSlot>,
    calls: CallTable,
    questions: Arc<ClientQuestions>,
    /// The calls whose progress and log messages the client may want.
    notices: Arc<NoticeTable>,
    /// The tasks that notify the client when a login ends, by login id.
    watched_logins: Mutex<HashMap<String, AbortOnDrop>>,
    /// The name that the client gave itself in its first request.
    client_name: OnceLock<String>,
    log: Arc<ClientLog>,
    /// The headers that repeat the arguments of the only request of this connection; `None` over stdio and in a session,
    /// where no such headers exist.
    param_headers: Option<SentParamHeaders>,
}

impl ClientConnection {
    pub(super) fn new(pool: Arc<ToolPool>, (user, outputs): (GatewayUser, OutputOwner), out: Outbox) -> Self {
        let log = Arc::new(ClientLog::new(out.clone()));
        let untrusted = match &outputs {
            OutputOwner::Connection(_) => Arc::default(),
            // Each request is a connection of its own, so the record belongs to the principal.
            OutputOwner::Principal => Arc::clone(&pool.principals.get(&user.principal).untrusted),
        };
        Self {
            pool,
            user,
            outputs,
            untrusted,
            era: Mutex::default(),
            negotiated: OnceLock::new(),
            slot: Mutex::default(),
            calls: CallTable::default(),
            questions: Arc::new(ClientQuestions::new(out.clone(), Arc::clone(&log))),
            notices: Arc::clone(&log.calls),
            watched_logins: Mutex::default(),
            client_name: OnceLock::new(),
            log,
            out,
            param_headers: None,
        }
    }

    /// Creates a connection, and its messages to the client.
    pub(super) fn with_outbox(
        pool: Arc<ToolPool>,
        (user, outputs): (GatewayUser, OutputOwner),
    ) -> (Self, mpsc::Receiver<OutMessage>) {
        let (out, messages) = Outbox::of_principal(&pool.principals.get(&user.principal));
        (Self::new(pool, (user, outputs), out), messages)
    }

    /// Checks the arguments of the connection's only request against its headers.
    pub(super) fn with_param_headers(self, sent: SentParamHeaders) -> Self {
        Self { param_headers: Some(sent), ..self }
    }

    /// Returns true if a request has opened the tools.
    pub(super) fn is_open(&self) -> bool {
        !self.slot().opened.is_empty()
    }

    /// Returns the current settings of the gateway. A reload replaces them.
    fn gateway(&self) -> Arc<McpGateway> {
        self.pool.gateway()
    }

    /// Returns the properties of the client that determine its profile.
    fn profile_request(&self) -> ProfileRequest<'_> {
        ProfileRequest {
            named: self.user.profile.as_deref(),
            client_name: self.client_name.get().map(String::as_str),
        }
    }

    /// Returns the instructions for the client's model, which depend on the profile.
    fn instructions(&self) -> Option<String> {
        let gateway = self.gateway();
        let view = gateway.view_of(gateway.profile_of(self.profile_request()))?;
        view.instructions.clone()
    }

    async fn receive_line(self: &Arc<Self>, line: InputLine) {
        let text = match line {
            // The JSON parser reports bytes that are not UTF-8, and accepts a CR at the end.
            InputLine::Text(line) => String::from_utf8(line)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            InputLine::TooLong { .. } => {
                let message = format!("a message may have at most {MESSAGE_BYTES_MAX} bytes");
                return self.fail(None, &GatewayError::new(INVALID_REQUEST, message)).await;
            }
        };
        if text.trim().is_empty() {
            return;
        }
        if message::is_batch(&text) && self.has_batches() {
            match message::read_batch(&text) {
                Ok(messages) => {
                    for message in messages {
                        self.receive_or_fail(message).await;
                    }
                }
                Err(error) => self.fail(None, &error).await,
            }
            return;
        }
        self.receive_or_fail(message::read(&text)).await;
    }

    async fn receive_or_fail(self: &Arc<Self>, message: Result<ClientMessage, UnusableMessage>) {
        match message {
            Ok(message) => self.receive(message).await,
            Err(unusable) => self.fail(unusable.id.as_deref(), &unusable.error).await,
        }
    }

    /// Returns true if the client may send several messages at once. It gets each reply separately.
    pub(super) fn has_batches(&self) -> bool {
        self.negotiated.get() == Some(&BATCHES)
    }

    pub(super) async fn receive(self: &Arc<Self>, message: ClientMessage) {
        match message {
            ClientMessage::Request(request) => self.request(request).await,
            ClientMessage::Notification { method, params } => {
                self.notified(&method, params.as_deref()).await;
            }
            ClientMessage::Reply { id, outcome } => {
                // Ignore the result: a late reply to a withdrawn request is not an error.
                self.questions.answered(id, outcome);
            }
        }
    }

    async fn request(self: &Arc<Self>, request: ClientRequest) {
        if let Err(error) = self.out.check_room() {
            return self.fail(Some(&request.id), &error).await;
        }
        let admitted = params::<CommonParams>(request.params.as_deref()).and_then(|CommonParams { meta }| {
            let era = self.era().admit(&request.method, &meta)?;
            Ok((era, meta.log_level(era)?, meta))
        });
        let (era, log_level, meta) = match admitted {
            Ok(admitted) => admitted,
            Err(error) => return self.fail(Some(&request.id), &error).await,
        };
        self.note_client_name(meta.client_info.as_ref());
        let (tasks, notices) =
            (meta.tasks(), RequestedNotices { progress_token: meta.progress_token, log_level });
        let outcome = match (request.method.as_str(), era) {
            ("initialize", RequestEra::Handshake) => self.initialize(request.params.as_deref()),
            ("ping", RequestEra::Handshake) => Ok("{}".into()),
            ("logging/setLevel", RequestEra::Handshake) => self.set_level(request.params.as_deref()),
            ("server/discover", RequestEra::Stateless(_)) => Ok(self.discovered()),
            ("tools/list", era) => return self.begin_list(request, era).await,
            ("tools/call", era) => return self.begin_call(request, (era, tasks), notices).await,
            ("resources/list", era) => return self.begin_merged(request, era, UpstreamList::Resources).await,
            ("resources/templates/list", era) => {
                return self.begin_merged(request, era, UpstreamList::Templates).await;
            }
            ("prompts/list", era) => return self.begin_merged(request, era, UpstreamList::Prompts).await,
            ("resources/read" | "prompts/get" | "completion/complete", era) => {
                return self.begin_passed(request, era, notices).await;
            }
            ("resources/subscribe" | "resources/unsubscribe", RequestEra::Handshake) => {
                return self.begin_passed(request, era, notices).await;
            }
            (LISTEN, RequestEra::Stateless(abilities)) => {
                return self.listen(request, abilities).await;
            }
            ("tasks/get" | "tasks/update" | "tasks/cancel", RequestEra::Stateless(abilities)) => {
                self.task(&request, abilities, tasks)
            }
            ("tasks/get" | "tasks/cancel", RequestEra::Handshake) if self.has_core_tasks() => {
                self.core_task(&request)
            }
            ("tasks/list", RequestEra::Handshake) if self.lists_core_tasks() => self.core_task(&request),
            ("tasks/result", RequestEra::Handshake) if self.has_core_tasks() => {
                return self.begin_task_result(request, notices).await;
            }
            (method, _) => {
                let message = format!("the method `{method}` is not supported");
                Err(GatewayError::new(METHOD_NOT_FOUND, message))
            }
        };
        self.reply(&request.id, outcome).await;
    }

    async fn notified(&self, method: &str, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Cancelled {
            request_id: Box<RawValue>,
        }
        if method == "notifications/roots/list_changed" {
            let opened = self.slot().opened.clone();
            let servers = opened.iter().flat_map(|opened| &opened.shared.upstreams.servers);
            servers.for_each(|server| server.announce_changed_roots());
        }
        // Other notifications, and a cancellation of a request that has ended, need no action.
        if method == "notifications/cancelled"
            && let Ok(cancelled) = message::params::<Cancelled>(params)
        {
            self.cancel(&cancelled.request_id);
            self.out.send(MessageScope::Cancelled(cancelled.request_id), String::new()).await;
        }
    }

    /// Cancels a request, which then gets no reply.
    pub(super) fn cancel(&self, id: &RawValue) {
        self.calls.cancel(id);
    }

    /// Notes that the client no longer reads the reply to this request. The request continues, because the client
    /// has not cancelled it, but its questions to the operator are withdrawn.
    pub(super) fn reader_leaves(&self, id: &RawValue) {
        self.calls.reader_leaves(id);
    }

    /// Waits until the client no longer reads the reply to this request.
    pub(super) async fn reader_left(&self, id: &RawValue) {
        self.calls.reader_left(id).await;
    }

    fn initialize(self: &Arc<Self>, params: Option<&RawValue>) -> Result<String, GatewayError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct InitializeParams {
            protocol_version: String,
            #[serde(default)]
            capabilities: Value,
            client_info: Option<Value>,
        }
        let asked: InitializeParams = match message::params(params) {
            Ok(asked) => asked,
            Err(error) => {
                // The handshake failed, so allow another one.
                *self.era() = ConnectionEra::Open;
                return Err(error);
            }
        };
        self.note_client_name(asked.client_info.as_ref());
        self.pool.set_only_client(&self.questions);
        let opened = self.open(ClientAbilities::of(&asked.capabilities))?;
        self.watch_changes(&opened);
        let mut capabilities = Self::capabilities();
        self.log.begin();
        let version = negotiated(&asked.protocol_version);
        // Only the first handshake of a connection reaches this line.
        let _ = self.negotiated.set(version);
        if self.has_core_tasks() {
            capabilities["tasks"] = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
        }
        if self.lists_core_tasks() {
            capabilities["tasks"]["list"] = json!({});
        }
        let mut result = json!({
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": self.server_info(),
        });
        if let Some(instructions) = self.instructions() {
            result["instructions"] = instructions.into();
        }
        Ok(result.to_string())
    }

    /// Remembers the name of the client, for its profile and for questions to the operator. Only the first name counts.
    fn note_client_name(&self, client_info: Option<&Value>) {
        if let Some(name) = client_info.and_then(|info| info["name"].as_str())
            && self.client_name.get().is_none()
        {
            let _ = self.client_name.set(name.chars().take(CLIENT_NAME_CHARS_MAX).collect());
        }
    }

    /// Returns a result with only the content that the negotiated protocol revision knows.
    fn known_content(&self, result: String, place: ContentPlace) -> String {
        match self.negotiated.get() {
            Some(revision) => known_content(result, place, revision),
            None => result,
        }
    }

    /// Returns true if tasks are part of the negotiated protocol revision itself, not of an extension.
    fn has_core_tasks(&self) -> bool {
        self.negotiated.get() == Some(&CORE_TASKS)
    }

    /// Returns true if the client may also list its tasks.
    fn lists_core_tasks(&self) -> bool {
        self.has_core_tasks() && self.user.task_list == TaskListAccess::Offered
    }

    fn discovered(&self) -> String {
        let mut capabilities = Self::capabilities();
        capabilities["extensions"] = json!({ TASKS_EXTENSION: {} });
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": [STATELESS],
            "capabilities": capabilities,
            "ttlMs": LIST_TTL_MS,
            "cacheScope": "private",
            "_meta": { "io.modelcontextprotocol/serverInfo": self.server_info() },
        });
        if let Some(instructions) = self.instructions() {
            result["instructions"] = instructions.into();
        }
        result.to_string()
    }

    /// Returns the capabilities of the gateway. The upstream servers are not known yet, so the gateway declares all
    /// capabilities that they may have.
    fn capabilities() -> Value {
        json!({
            "tools": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "prompts": { "listChanged": true },
            "completions": {},
            "logging": {},
        })
    }

    /// Answers a request about a task.
    fn task(
        self: &Arc<Self>,
        request: &ClientRequest,
        abilities: ClientAbilities,
        support: TaskSupport,
    ) -> Result<String, GatewayError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct TaskParams {
            task_id: String,
            #[serde(default)]
            input_responses: HashMap<String, Box<RawValue>>,
        }
        support.require()?;
        let TaskParams { task_id, input_responses } = message::params(request.params.as_deref())?;
        let opened = self.open(abilities)?;
        let tasks = &opened.shared.tasks;
        match request.method.as_str() {
            "tasks/update" => tasks.update(&task_id, input_responses),
            "tasks/cancel" => tasks.cancel(&task_id),
            _ => tasks.get(&task_id),
        }
    }

    fn server_info(&self) -> Value {
        let gateway = self.gateway();
        json!({ "name": gateway.name, "version": gateway.version })
    }

    /// Sets the minimum level of the log messages that the client gets, and requests this level from the upstream servers.
    /// haft itself sends only warnings about servers.
    fn set_level(&self, params: Option<&RawValue>) -> Result<String, GatewayError> {
        #[derive(Deserialize)]
        struct SetLevel {
            level: String,
        }
        let SetLevel { level } = message::params(params)?;
        let level = McpLogLevel::requested(&level);
        self.log.set_level(level.map_err(|message| GatewayError::new(message::INVALID_PARAMS, message))?);
        let opened = self.slot().opened.clone();
        for opened in opened {
            opened.request_log_level(self.log.connection_level());
        }
        Ok("{}".into())
    }

    async fn reply(&self, id: &RawValue, outcome: Result<String, GatewayError>) {
        self.reply_held(id, outcome, HeldBytes::default()).await;
    }

    /// Replies to a request for whose result the outbox already holds bytes.
    async fn reply_held(&self, id: &RawValue, outcome: Result<String, GatewayError>, held: HeldBytes) {
        match outcome {
            Ok(result) => {
                let turn = self.out.conversion_turn(result.len()).await;
                let text = message::success(id, &result);
                drop((result, turn));
                self.out.send_reply(id.to_owned(), text, held).await;
            }
            Err(error) => self.fail(Some(id), &error).await,
        }
    }

    pub(super) async fn fail(&self, id: Option<&RawValue>, error: &GatewayError) {
        let scope = id.map_or(MessageScope::Connection, |id| MessageScope::Reply(id.to_owned()));
        self.out.send(scope, message::failure(id, error)).await;
    }

    fn watched_logins(&self) -> MutexGuard<'_, HashMap<String, AbortOnDrop>> {
        self.watched_logins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn era(&self) -> MutexGuard<'_, ConnectionEra> {
        self.era.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels all calls and stops watching for changes.
    pub(super) fn close(&self) {
        self.calls.cancel_all();
        self.watched_logins().clear();
        let mut slot = self.slot();
        slot.is_closed = true;
        for opened in &slot.opened {
            opened.close();
        }
    }
}
