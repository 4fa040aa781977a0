//! One MCP server: runs its lifecycle state machine and provides its connection to calls.

use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haft_core::change_counter::ChangeCounter;
use haft_core::duration_text;
use haft_core::event::CallProgress;
use haft_core::output::ToolOutput;
use haft_core::provider::CallContext;
use haft_core::result::{ProtocolError, ToolError, ToolErrorKind};
use haft_core::sampling::OriginatingCall;
use haft_core::time_limit::TimeLimit;
use haft_core::tool::Effects;
use secrecy::ExposeSecret;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, Semaphore, broadcast, mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::auth::LOGIN_NEEDED;
use super::call::{self, CallError, McpToolCall};
use super::call_timeout::OverdueGuard;
use super::catalog_cache::{CachedCatalog, CatalogCache};
use super::config::ServerConfig;
use super::driver::{DriverMessage, LifecycleDriver};
use super::era::ProtocolEra;
use super::host::{ElicitationSupport, Host, RelayedCapabilities};
use super::in_flight::InFlightCalls;
use super::listing::{self, CalledTool, McpToolEntry, McpToolList};
use super::log_ring::LogRing;
use super::message::{MISSING_CAPABILITY, RpcError, URL_REQUIRED};
use super::news::NEWS_WAITING_MAX;
use super::sampling::SamplingPolicy;
use super::session::{McpSession, ServerDescription, ServerOffers};
use super::shared::ServerUsers;
use super::supervisor::{LifecycleEvent, LifecycleState, RestartCause};
use super::trace::{ServerTrace, TraceLineKind, TraceSink};
use super::trace_parent::TraceParents;
use haft_core::redact::SecretRedactor;

/// The maximum number of queued messages to the driver; each call sends at most two.
const NOTES_WAITING_MAX: usize = 1024;

/// The interval at which a call that waits for its server reports progress.
const STARTING_TOLD_EVERY: Duration = Duration::from_millis(1100);

/// The delay before new log lines are written to the file, which limits the number of writes during a flood.
const KEPT_AFTER: Duration = Duration::from_millis(500);

/// The time for which a server should keep the task of a call without a time limit.
const TASK_TTL: Duration = Duration::from_hours(1);

/// The time for which a server should keep a task after the time limit of its call.
const TASK_TTL_MARGIN: Duration = Duration::from_mins(1);

/// The maximum time for which a server should keep a task.
const TASK_TTL_MAX: Duration = Duration::from_hours(24);

/// An MCP server, running or not. Dropping it ends its process and all child processes.
pub struct SupervisedServer {
    pub(super) shared: Arc<McpServerState>,
    pub(super) users: ServerUsers,
    notes: mpsc::Sender<DriverMessage>,
}

/// Settings and resources that all servers of a process share.
#[derive(Clone)]
pub struct McpEnvironment {
    /// The directory for logs and cached tool lists.
    pub directory: Option<PathBuf>,
    pub log_storage: LogStorage,
    pub elicitation: ElicitationSupport,
    /// The capabilities of the gateway's client; empty if haft is not a gateway.
    pub relayed: RelayedCapabilities,
    /// Limits concurrent starts: each start holds a permit until it ends.
    pub starts: Arc<Semaphore>,
    /// Receives every message between client and servers.
    pub trace: Option<Arc<dyn TraceSink>>,
    /// Looks up the spans of calls, so that servers get the trace context.
    pub parents: Option<Arc<dyn TraceParents>>,
    /// Whether the caller's user can log in at a server.
    pub login: LoginOffer,
}

/// Selects where the log of a server is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogStorage {
    /// In a file in the directory of the environment.
    #[default]
    File,
    /// Only in memory. A server that works for another principal than the local user may log the content of requests,
    /// and the file would be shared by all principals.
    Memory,
}

/// Whether the caller's user can log in at a server during a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoginOffer {
    /// The user can log in. As long as the tools of a server are unknown, haft lists a login tool for this server.
    Offered,
    #[default]
    NotOffered,
}

/// The default number of concurrent server starts.
const STARTS_MAX: usize = 16;

impl Default for McpEnvironment {
    fn default() -> Self {
        Self {
            directory: None,
            log_storage: LogStorage::File,
            elicitation: ElicitationSupport::default(),
            relayed: RelayedCapabilities::default(),
            starts: Arc::new(Semaphore::new(STARTS_MAX)),
            trace: None,
            parents: None,
            login: LoginOffer::NotOffered,
        }
    }
}

/// The state that the driver and the calls share.
pub(super) struct McpServerState {
    pub(super) config: ServerConfig,
    pub(super) host: Arc<Host>,
    pub(super) log: Arc<LogRing>,
    pub(super) memory: Option<CatalogCache>,
    pub(super) state: watch::Sender<LifecycleState>,
    pub(super) changes: ChangeCounter,
    pub(super) starts: Arc<Semaphore>,
    login: LoginOffer,
    /// True after the server required a login before its tools were known.
    is_login_listed: AtomicBool,
    /// The path of the log file.
    log_file: Option<PathBuf>,
    current: Mutex<CurrentConnection>,
}

/// The part of the state that calls use.
#[derive(Default)]
struct CurrentConnection {
    connection: Option<Arc<McpConnection>>,
    listing: Arc<McpToolList>,
    greeting: ServerDescription,
    era: Option<ProtocolEra>,
    transport: Option<&'static str>,
}

/// An open connection to the server. `generation` numbers the connections of this server, so that late events of an
/// earlier connection are recognised.
#[derive(Debug)]
pub(super) struct McpConnection {
    pub(super) session: McpSession,
    pub(super) generation: u64,
}

/// The status of a server for the operator.
#[derive(Debug, Clone)]
pub struct McpServerStatus {
    pub name: String,
    /// One of [`SERVER_STATES`](super::SERVER_STATES).
    pub state: &'static str,
    /// The reason why the server is not ready, if there is one.
    pub reason: Option<String>,
    pub era: Option<ProtocolEra>,
    /// The transport of the latest connection.
    pub transport: Option<&'static str>,
    pub greeting: ServerDescription,
    pub listing: Arc<McpToolList>,
    /// The number of lines on standard output that were not protocol messages.
    pub noise: u64,
}

impl SupervisedServer {
    /// Creates a server without starting it. A cached tool list is available immediately.
    pub fn new(config: ServerConfig, environment: &McpEnvironment) -> Self {
        let McpEnvironment { directory, log_storage, elicitation, relayed, starts, trace, parents, login } =
            environment;
        let withheld = Arc::new(SecretRedactor::of(config.secrets.iter().map(ExposeSecret::expose_secret)));
        let log = Arc::new(LogRing::without(Arc::clone(&withheld)));
        let trace = trace
            .as_ref()
            .map(|sink| ServerTrace::new(&config.name, Arc::clone(sink), Arc::clone(&withheld)));
        let host = Host {
            server: config.name.clone(),
            elicitation: *elicitation,
            relayed: *relayed,
            trace,
            withheld,
            address: SecretRedactor::of(config.connect.authority().as_deref()),
            parents: parents.clone(),
            roots: config.roots.clone(),
            sampling: config.sampling.clone().map(|settings| SamplingPolicy { settings }),
            calls: InFlightCalls::default(),
            log: Arc::clone(&log),
            tools_changed: Arc::new(Notify::new()),
            news: broadcast::Sender::new(NEWS_WAITING_MAX),
            watched: Arc::default(),
            log_levels: Arc::default(),
            only_client: std::sync::OnceLock::new(),
        };
        let memory =
            directory.as_ref().map(|directory| CatalogCache::of(directory, config.namespace.as_str()));
        let remembered = memory.as_ref().and_then(|memory| memory.load(&config.digest));
        let current =
            remembered.map(|remembered| CurrentConnection::of(remembered, &config)).unwrap_or_default();
        let log_file = directory
            .as_ref()
            .filter(|_| *log_storage == LogStorage::File)
            .map(|directory| directory.join(format!("{}.log", config.namespace.as_str())));
        let shared = Arc::new(McpServerState {
            config,
            host: Arc::new(host),
            log,
            memory,
            state: watch::Sender::new(LifecycleState::Configured),
            changes: ChangeCounter::default(),
            starts: Arc::clone(starts),
            login: *login,
            is_login_listed: AtomicBool::new(false),
            log_file,
            current: Mutex::new(current),
        });
        let (notes, inbox) = mpsc::channel(NOTES_WAITING_MAX);
        tokio::spawn(LifecycleDriver::new(Arc::clone(&shared)).run(inbox));
        Self { shared, users: ServerUsers::default(), notes }
    }

    pub fn namespace(&self) -> &str {
        self.shared.config.namespace.as_str()
    }

    /// Returns the name of the server in the configuration.
    pub fn name(&self) -> &str {
        &self.shared.config.name
    }

    /// Returns one of [`SERVER_STATES`](super::SERVER_STATES).
    pub fn state_name(&self) -> &'static str {
        self.shared.state.borrow().name()
    }

    /// Returns true if the tool list is known, from this run or from the cache.
    pub fn is_known(&self) -> bool {
        self.shared.current().era.is_some()
    }

    /// Starts the server if needed, and waits until it is ready or has failed.
    pub async fn start(&self) -> Result<(), ToolError> {
        self.ready().await.map(drop)
    }

    pub fn status(&self) -> McpServerStatus {
        let state = self.shared.state.borrow().clone();
        let current = self.shared.current();
        let reason = state.reason().map(str::to_owned);
        McpServerStatus {
            name: self.shared.config.name.clone(),
            state: state.name(),
            reason,
            era: current.era.clone(),
            transport: current.transport,
            greeting: current.greeting.clone(),
            listing: Arc::clone(&current.listing),
            noise: current.connection.as_ref().map_or(0, |connection| connection.session.peer.noise()),
        }
    }

    /// Returns the last lines of the server's standard error and of its log messages.
    pub fn log(&self, lines: usize) -> Vec<String> {
        self.shared.log.last(lines)
    }

    /// Shuts the server down gracefully.
    pub async fn stop(&self) {
        let (done, ended) = oneshot::channel();
        if self.notes.send(DriverMessage::Stop(done)).await.is_ok() {
            let _ = ended.await;
        }
    }

    /// Calls a tool. Calls it a second time only if the server reports that the session had expired, because then the
    /// tool did not run.
    pub(super) async fn call(
        &self,
        called: &CalledTool<'_>,
        arguments: &Map<String, Value>,
        cx: &CallContext,
    ) -> Result<ToolOutput, ToolError> {
        let tool = called.entry;
        // Without a connection, the tool list comes from the cache, and the running server may define the tool
        // differently. Then only the operator's lock file can refuse the changed tool.
        let mut checked = self.shared.checked_list();
        let progress = |progress| cx.progress(progress);
        let config = &self.shared.config;
        let begun = self.shared.host.calls.begin(OriginatingCall::of(cx));
        let call = McpToolCall {
            tool,
            arguments,
            trace_parent: self.shared.host.trace_parent(cx.operation()),
            patience: config.request_timeout,
            task_ttl: task_ttl(cx.time_limit.as_ref()),
            in_flight: &begun.call,
            progress: &progress,
        };
        for _ in 0..2 {
            let connection = self.ready_reporting(&progress).await?;
            let current = self.shared.listing();
            let is_new = checked.is_some_and(|checked| !Arc::ptr_eq(&checked, &current));
            if is_new && called.differs_in(&current) {
                return Err(self.changed(tool));
            }
            checked = Some(current);
            let watch = OverdueGuard::watch(self, connection.generation, cx.time_limit.as_ref());
            let outcome = call::call(&connection.session, &self.shared.host, &call).await;
            watch.answered();
            if begun.call.samples() > 0 {
                cx.note("sampling", json!({ "requests": begun.call.samples() }));
            }
            match outcome {
                Ok(output) => {
                    self.report_authorized(connection.generation);
                    return Ok(output);
                }
                Err(CallError::Tool(error)) => {
                    let message = self.shared.host.withheld.redact(error.message.clone());
                    // Drop the raw error if a secret was masked in the message, because the raw error still contains
                    // the secret.
                    let raw = error.raw.filter(|_| message == error.message);
                    return Err(ToolError::new(error.kind, message).with_raw(raw));
                }
                Err(CallError::Rpc(error)) => {
                    let message = format!("{} (code {})", error.message, error.code);
                    return Err(
                        ToolError::new(ToolErrorKind::Failed, message).with_protocol(for_client(error))
                    );
                }
                Err(CallError::NeedsAuth(reason)) => {
                    self.note(connection.generation, LifecycleEvent::AuthNeeded { reason: reason.clone() });
                    return Err(self.error(ToolErrorKind::Unavailable, &reason));
                }
                Err(CallError::SessionExpired) => self.note(connection.generation, LifecycleEvent::Expired),
                Err(CallError::Silent(patience)) => {
                    self.note(connection.generation, LifecycleEvent::Silent);
                    return Err(self.silent(tool, patience));
                }
                Err(CallError::Lost(reason)) => return Err(self.lost(tool, called.effects(), &reason)),
            }
        }
        Err(self.error(
            ToolErrorKind::Unavailable,
            "the MCP server ends every session right after it opens the session",
        ))
    }

    /// Waits for the connection, and reports progress during the wait.
    pub(super) async fn ready_reporting(
        &self,
        progress: &(dyn Fn(CallProgress) + Send + Sync),
    ) -> Result<Arc<McpConnection>, ToolError> {
        let mut ready = pin!(self.ready());
        loop {
            if let Ok(ready) = timeout(STARTING_TOLD_EVERY, &mut ready).await {
                return ready;
            }
            let name = &self.shared.config.name;
            progress(CallProgress::Message(format!("MCP server `{name}` is starting")));
        }
    }

    /// Returns the connection as soon as one is open. While the server restarts, returns an error at once, so that the
    /// model can do other work.
    pub(super) async fn ready(&self) -> Result<Arc<McpConnection>, ToolError> {
        let mut state = self.shared.state.subscribe();
        let mut start_requested = false;
        loop {
            if let Some(connection) = self.shared.current().connection.clone() {
                return Ok(connection);
            }
            let found = state.borrow_and_update().clone();
            match found {
                LifecycleState::Configured | LifecycleState::NeedsAuth { .. } if !start_requested => {
                    start_requested = true;
                    let _ = self
                        .notes
                        .try_send(DriverMessage::Event { generation: None, event: LifecycleEvent::Wanted });
                }
                LifecycleState::Configured
                | LifecycleState::Starting { .. }
                | LifecycleState::Ready { .. }
                | LifecycleState::Degraded { .. } => {}
                LifecycleState::Restarting { cause, reason, at, failures } => {
                    let problem = match (cause, failures) {
                        (RestartCause::Ended, _) => "stopped",
                        (RestartCause::NotOpened, 0 | 1) => "did not start",
                        (RestartCause::NotOpened, _) => "did not start again",
                    };
                    return Err(self.restarting(problem, &reason, at));
                }
                LifecycleState::NeedsAuth { reason } => {
                    return Err(self.error(ToolErrorKind::Unavailable, &reason));
                }
                LifecycleState::Stopped => {
                    return Err(self.error(ToolErrorKind::Unavailable, "haft stopped the MCP server"));
                }
            }
            if state.changed().await.is_err() {
                return Err(self.error(ToolErrorKind::Unavailable, "haft stopped the MCP server"));
            }
        }
    }

    /// Reports that the server accepts requests again after it had required a login.
    fn report_authorized(&self, generation: u64) {
        if matches!(*self.shared.state.borrow(), LifecycleState::NeedsAuth { .. }) {
            self.note(generation, LifecycleEvent::Alive);
        }
    }

    /// Sends the driver an event about one connection. If the session has expired, no later call gets this connection.
    pub(super) fn note(&self, generation: u64, event: LifecycleEvent) {
        if event == LifecycleEvent::Expired {
            self.shared.withdraw_generation(generation);
        }
        let _ = self.notes.try_send(DriverMessage::Event { generation: Some(generation), event });
    }

    fn error(&self, kind: ToolErrorKind, message: &str) -> ToolError {
        ToolError::new(kind, format!("MCP server `{}`: {message}", self.shared.config.name))
    }

    fn silent(&self, tool: &McpToolEntry, patience: Duration) -> ToolError {
        let message = format!(
            "tool `{}` sent neither a result nor progress for {}, so haft cancelled the call; raise `requestTimeout` to allow more",
            tool.name,
            duration_text::in_words(patience)
        );
        self.error(ToolErrorKind::Timeout, &message)
    }

    fn changed(&self, tool: &McpToolEntry) -> ToolError {
        let message = format!(
            "the server restarted and changed the definition of tool `{}`, so haft did not make the call; \
             list the tools again, and repeat the call",
            tool.name
        );
        self.error(ToolErrorKind::Unavailable, &message)
    }

    fn lost(&self, tool: &McpToolEntry, effects: Effects, reason: &str) -> ToolError {
        match effects {
            Effects::ReadOnly => {
                let message = format!("the call to tool `{}` was interrupted: {reason}", tool.name);
                self.error(ToolErrorKind::Unavailable, &message)
            }
            Effects::Idempotent | Effects::Mutating | Effects::Unknown => {
                let message = format!(
                    "the call to tool `{}` was interrupted, and haft does not know whether it took effect: {reason}",
                    tool.name
                );
                self.error(ToolErrorKind::UnknownOutcome, &message)
            }
        }
    }

    fn restarting(&self, problem: &str, reason: &str, at: Instant) -> ToolError {
        let name = &self.shared.config.name;
        // Round up, so that a fraction of a second does not read as "now".
        let wait = at.saturating_duration_since(Instant::now()).as_millis().div_ceil(1000);
        let next = if wait == 0 { "now".to_owned() } else { format!("in {wait} s") };
        let message = format!(
            "MCP server `{name}` {problem}: {reason}\nhaft starts the server again {next}; haft did not call the tool"
        );
        ToolError::new(ToolErrorKind::Unavailable, message)
    }
}

impl CurrentConnection {
    fn of(remembered: CachedCatalog, config: &ServerConfig) -> Self {
        Self {
            connection: None,
            listing: Arc::new(listing::read(&remembered.tools, &config.wanted)),
            greeting: ServerDescription {
                instructions: remembered.instructions.map(Into::into),
                offers: remembered.offers.unwrap_or_default(),
                ..ServerDescription::default()
            },
            era: ProtocolEra::of_version(&remembered.version),
            transport: None,
        }
    }
}

impl McpServerState {
    fn current(&self) -> std::sync::MutexGuard<'_, CurrentConnection> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the login tool is in the list of tools. The tool stays in the list after the login, so that a
    /// client can repeat its call.
    pub(super) fn is_login_listed(&self) -> bool {
        self.is_login_listed.load(Ordering::Acquire)
    }

    /// Adds the login tool to the list, if the server requires a login and its own tools are unknown.
    pub(super) fn list_login(&self, state: &LifecycleState) {
        let is_required =
            matches!(state, LifecycleState::NeedsAuth { reason } if reason.contains(LOGIN_NEEDED));
        if self.login == LoginOffer::NotOffered || !is_required || self.era().is_some() {
            return;
        }
        if !self.is_login_listed.swap(true, Ordering::AcqRel) {
            self.changes.announce();
        }
    }

    pub(super) fn era(&self) -> Option<ProtocolEra> {
        self.current().era.clone()
    }

    pub(super) fn connection(&self) -> Option<Arc<McpConnection>> {
        self.current().connection.clone()
    }

    /// Returns the tool list if it comes from the open connection, and not from the cache.
    fn checked_list(&self) -> Option<Arc<McpToolList>> {
        let current = self.current();
        current.connection.as_ref().map(|_| Arc::clone(&current.listing))
    }

    pub(super) fn listing(&self) -> Arc<McpToolList> {
        Arc::clone(&self.current().listing)
    }

    pub(super) fn instructions(&self) -> Option<Arc<str>> {
        self.current().greeting.instructions.clone()
    }

    pub(super) fn offers(&self) -> ServerOffers {
        self.current().greeting.offers
    }

    pub(super) fn publish_connection(&self, connection: Arc<McpConnection>, transport: &'static str) {
        let mut current = self.current();
        current.transport = Some(transport);
        current.era = Some(connection.session.era.clone());
        current.greeting = connection.session.greeting.clone();
        current.connection = Some(connection);
    }

    /// Withdraws the connection, so that no further call gets it.
    pub(super) fn withdraw_connection(&self) -> Option<Arc<McpConnection>> {
        self.current().connection.take()
    }

    /// Logs a lifecycle event of the server.
    pub(super) fn log_lifecycle(&self, what: &str) {
        self.log.note(what);
        self.host.trace(TraceLineKind::Life, what);
        self.keep_log();
    }

    /// Writes new log lines to the file while the server runs, so that the operator can follow them and a crash of this
    /// process does not lose them.
    pub(super) async fn save_log_while_running(&self) {
        loop {
            self.log.wait_for_output().await;
            sleep(KEPT_AFTER).await;
            self.keep_log();
        }
    }

    /// Writes the log file. Ignores an error, because the log is still available in memory.
    fn keep_log(&self) {
        if let Some(path) = &self.log_file {
            let _ = self.log.keep(path);
        }
    }

    fn withdraw_generation(&self, generation: u64) {
        let mut current = self.current();
        if current.connection.as_ref().is_some_and(|connection| connection.generation == generation) {
            current.connection = None;
        }
    }

    /// Replaces the tool list and announces the change. All replacements must use this function, because the catalog
    /// relies on the announcement.
    pub(super) fn replace_tool_list(&self, listing: McpToolList) {
        for skipped in &listing.skipped {
            self.log.note(&format!("haft skipped tool `{}`: {}", skipped.name, skipped.reason));
        }
        self.current().listing = Arc::new(listing);
        self.changes.announce();
    }
}

impl Drop for SupervisedServer {
    fn drop(&mut self) {
        self.shared.keep_log();
    }
}

impl fmt::Debug for McpEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpEnvironment").field("directory", &self.directory).finish_non_exhaustive()
    }
}

impl fmt::Debug for SupervisedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisedServer").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

/// Returns the time for which a server should keep a task: longer than the call may take, so that its result does not
/// expire before it is fetched.
fn task_ttl(limit: Option<&TimeLimit>) -> Duration {
    let left = limit.map(|limit| limit.deadline.saturating_duration_since(Instant::now()));
    left.map_or(TASK_TTL, |left| left.saturating_add(TASK_TTL_MARGIN)).min(TASK_TTL_MAX)
}

/// Returns the error if only the client of a gateway can resolve it, by declaring a capability or opening a URL.
/// Returns `None` for all other errors.
fn for_client(error: RpcError) -> Option<ProtocolError> {
    let RpcError { code, message, data } = error;
    [MISSING_CAPABILITY, URL_REQUIRED].contains(&code).then_some(ProtocolError { code, message, data })
}
